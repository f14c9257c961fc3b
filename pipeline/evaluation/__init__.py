"""What a method's captions are worth: generated, read by judges, compared with human ones."""
