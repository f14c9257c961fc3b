"""Records of runs: written here, sent to MLflow."""
