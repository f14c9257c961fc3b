"""The report: the page, its tables, figures and gallery, and the tables and figures of the documents."""
