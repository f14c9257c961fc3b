"""What is read: documents, whose tables and figures are those of result files."""
