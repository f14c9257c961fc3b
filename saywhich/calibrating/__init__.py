"""Agreement of judges and metrics with people's ratings of captions."""
