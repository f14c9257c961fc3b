"""Names of the judges that each method has, in `evaluate.judges` of params.yaml and in results."""

from __future__ import annotations

OWN = "own"  # the listener that was trained with the speaker
ADAPTED = "adapted"  # the pretrained listener that was adapted to the speaker
