"""The corpora of the papers: what there is, whose licence, and how it is fetched."""
