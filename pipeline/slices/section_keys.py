"""Sections of params.yaml that slices own, and the keys that slices add to sections of the core."""

from __future__ import annotations

from pipeline.dialog.settings import CandidateRankers, PrepareDialogs
from pipeline.section import Section
from pipeline.worlds.draw_settings import DrawFilms, DrawScenes

EvaluateKeys = CandidateRankers
PrepareKeys = PrepareDialogs


class DrawScenesWithDialogs(DrawScenes):
    """Settings of drawn scenes, and whether to draw dialogs about them."""

    dialogs: bool = False


class DrawSettings(Section):
    """Settings of the embedded data sets to draw: scenes, films, both or none."""

    scenes: DrawScenesWithDialogs | None = None
    films: DrawFilms | None = None

    @property
    def has_facts(self) -> bool:
        """Return whether the facts of every image are known, as for all drawn images."""
        return self.scenes is not None or self.films is not None
