"""Drawing of scenes as images."""
