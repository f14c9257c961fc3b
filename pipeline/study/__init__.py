"""Human evaluation of captions: both tasks of the PSST paper, analysis of the answers, power analysis, and a game."""
