"""People judge captions: both tasks of the PSST paper as pages for raters, and what their answers say."""
