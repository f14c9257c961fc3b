"""The corpora of the papers: data cards, download and unpacking."""
