"""Human evaluation of captions: both tasks of the PSST paper as pages for raters, and the analysis of their answers."""
