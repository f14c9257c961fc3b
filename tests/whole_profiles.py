"""The profiles as complete parameter files."""

from pathlib import Path
from typing import Any

from pipeline.config import overlays
from pipeline.config.reading import parse_yaml

FOLDER = Path(__file__).parents[1] / "profiles"
PROFILES = overlays.Profiles(FOLDER)
NAMES = PROFILES.list_names()


def read_profile_text(name: str) -> str:
    """Return the parameter file that `make profile` writes."""
    return PROFILES.compose_named(name)


def load_profile(name: str) -> dict[str, Any]:
    """Return the parameters of a profile."""
    return parse_yaml(read_profile_text(name), name)
