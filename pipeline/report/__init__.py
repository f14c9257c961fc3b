"""The report: the page, its tables, figures and gallery, and the tables of the documents."""
