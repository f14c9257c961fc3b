"""Tables, figures and the section of the report on measured gradient estimators."""
