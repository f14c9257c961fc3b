"""Records of runs, and their transmission to MLflow."""
