"""Records of runs, and how they are sent to MLflow."""
