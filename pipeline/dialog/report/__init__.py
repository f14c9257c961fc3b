"""Report on dialogs: rankings, tables and page."""
