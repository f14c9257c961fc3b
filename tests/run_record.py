"""The record of a whole `make test`, which `make record PROFILE=tests` reads."""

from pathlib import Path

CAPTION = "Time of the tests"


def write_run_record(path: Path, command: str, tests: int, seconds: float, processes: int) -> None:
    """Write a table of the number of tests that passed and the time that they took."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = "| command | tests | minutes | processes |\n| :-- | --: | --: | --: |"
    path.write_text(f"**{CAPTION}**\n\n{head}\n| {command} | {tests:,} | {seconds / 60:.1f} | {processes} |\n")
