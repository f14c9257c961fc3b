"""What a scene looks like."""
