"""Hard bags: small groups of look-alike photos of a folder, on which captions and retrievers are tested."""
