"""Pure functions that judge captions and rankings; they know no model and no file of ours."""
