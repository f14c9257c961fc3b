"""How a score's gradient reaches the speaker: estimators, baselines, credit, rollouts."""
