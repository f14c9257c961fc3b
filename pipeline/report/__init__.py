"""What is looked at and read: the page, its tables, figures and gallery, and the documents' tables."""
