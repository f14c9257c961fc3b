"""The report on dialogs: rankings, tables and page."""
