"""Drawing of scenes."""
