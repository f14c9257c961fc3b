"""Process-level support: files, memory, signals and ranks."""
