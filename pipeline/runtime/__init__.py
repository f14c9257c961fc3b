"""What a process needs: files, memory, ranks."""
