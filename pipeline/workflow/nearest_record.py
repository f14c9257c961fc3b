"""The recorded profile that is nearest to params.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.config.overlays import Profiles, find_nearest_profile
from pipeline.report.result_file import ResultFile, locate_result_file, read_result

MAX_DIFFERENCES = 20  # largest number of lines of params.yaml that may differ from a recorded profile
MAX_NAMED = 3  # largest number of different lines that the description quotes


@dataclass(frozen=True)
class NearestRecord:
    """Recorded profile that is nearest to params.yaml, and the lines of params.yaml that differ from it."""

    name: str
    result: ResultFile
    different_lines: Sequence[str]

    def describe(self) -> str:
        """Return one sentence on the recorded profile and the differences."""
        lines = self.different_lines
        remainder = f" and {len(lines) - MAX_NAMED} more" if len(lines) > MAX_NAMED else ""
        differences = f"; params.yaml differs in: {'; '.join(lines[:MAX_NAMED])}{remainder}" if lines else ""
        return f"Recorded: the profile {self.name}, results/{self.name}.json{differences}."


def find_nearest_record(root: Path) -> NearestRecord | None:
    """Return the nearest recorded profile; None if no recorded profile has at most MAX_DIFFERENCES different lines.

    Raises UserError if the result file cannot be read, and for an error in a profile.
    """
    profiles = Profiles(root / "profiles")
    recorded_names = [name for name in profiles.list_names() if locate_result_file(root, name).is_file()]
    if not recorded_names:
        return None
    text = (root / "params.yaml").read_text(encoding="utf-8")
    name, lines = find_nearest_profile(text, recorded_names, profiles)
    return None if len(lines) > MAX_DIFFERENCES else NearestRecord(name, read_result(root, name), lines)
