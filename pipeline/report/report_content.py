"""Content shared by the sections of the report; cached properties are computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.analysis.comparison import Comparison, compare_methods
from pipeline.analysis.failures import list_training_failures
from pipeline.analysis.results import LANGUAGE, Results, read_results_json
from pipeline.analysis.selection import Choice, ReportSettings, choose_all, describe_rule
from pipeline.report import gallery
from pipeline.report.headline import choose_headline_pair
from pipeline.report.shared_captions import SharedCaptions, find_shared_captions
from pipeline.report.training_histories import History, average_histories, read_training_histories

HISTORY = "history.jsonl"  # file with the training histories of all cells


@dataclass(frozen=True, eq=False)
class ReportContent:
    """Results, settings of the report, and values that several sections derive from them.

    With `simulated`, a grammar wrote the reference captions. `inputs` are files and folders of optional stages, by
    name. `scenes` reads the facts of drawn scenes. The other fields except `results` are arguments of `write_report`.
    """

    results: Results
    settings: ReportSettings
    sweep: Path
    prepared: Path
    images_root: Path | None = None
    inputs: Mapping[str, Path | None] = field(default_factory=dict)
    retriever: str | None = None
    models: Sequence[Path] = ()
    scene_seed: int | None = None
    scenes: gallery.ReadScenes = gallery.read_no_scenes
    simulated: bool = False

    def find_input(self, name: str) -> Path | None:
        """Return the path of the input `name` if it exists, else None."""
        path = self.inputs.get(name)
        return path if path is not None and path.exists() else None

    @property
    def annotator(self) -> str:
        """Return the author of the reference captions."""
        return "simulated annotator" if self.simulated else "person"

    @property
    def references(self) -> str:
        """Return a name for the reference captions."""
        return "captions of simulated annotators" if self.simulated else "human captions"

    @cached_property
    def choices(self) -> list[Choice]:
        """Return the chosen setting of each method."""
        return choose_all(self.results, self.settings)

    @cached_property
    def comparison(self) -> Comparison:
        """Return the comparison of the methods."""
        return compare_methods(self.results, self.settings)

    @cached_property
    def views(self) -> list[gallery.GalleryView]:
        """Return the views of the gallery."""
        return gallery.build_gallery_views(self.results, self.choices, self.comparison)

    @cached_property
    def pictures(self) -> list[gallery.GalleryPicture]:
        """Return the images of the gallery; empty without image files."""
        return self.load_pictures(gallery.sample_images(self.prepared, self.settings)) if self.images_root else []

    def load_pictures(self, rows: Sequence[int]) -> list[gallery.GalleryPicture]:
        """Return the images `rows` with their captions; empty without image files."""
        if self.images_root is None:
            return []
        return gallery.select_pictures(
            rows,
            self.results,
            self.views,
            self.prepared,
            self.images_root,
            self.scene_seed,
            self.scenes,
            self.annotator,
        )

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the prepared data."""
        manifest: dict[str, Any] = read_results_json(self.prepared / "manifest.json")
        return manifest

    @cached_property
    def trainings(self) -> dict[str, list[History]]:
        """Return the training histories by method, one for each seed."""
        return read_training_histories(
            self.choices, self.sweep / HISTORY, self.models, self.find_input("processor_seconds")
        )

    @cached_property
    def histories(self) -> dict[str, History]:
        """Return the training histories by method, averaged over the seeds; a method without an entry is omitted."""
        means = {method: average_histories(runs) for method, runs in self.trainings.items()}
        return {method: history for method, history in means.items() if history}

    @cached_property
    def headline_choices(self) -> tuple[Choice | None, Choice | None]:
        """Return the chosen settings that the headline compares: of the control, and of the best other method."""
        return choose_headline_pair(self.results, self.choices, self.settings.control)

    @cached_property
    def shared_captions(self) -> SharedCaptions | None:
        """Return pairs of images that share a caption of the control, with the captions of the best other method.

        Return None where either choice is missing, or where `find_shared_captions` returns None.
        """
        control, other = self.headline_choices
        if control is None or control.point is None or other is None or other.point is None:
            return None
        runs = control.point.runs[0], other.point.runs[0]
        return find_shared_captions(self.results, *runs, self.settings.seed, self.load_pictures)

    @cached_property
    def rule(self) -> str:
        """Describe the rule that chose the settings."""
        return describe_rule(self.results, self.settings)

    @cached_property
    def training_failures(self) -> list[str]:
        """Return a line for each kind of training failure."""
        return list_training_failures(self.results, self.choices)

    @cached_property
    def metrics(self) -> list[str]:
        """Return the names of the selected metric of naturalness and of the other measured language metrics."""
        measured = (name for name in LANGUAGE if self.results.has("language", name))
        return list(dict.fromkeys((self.settings.metric, *measured)))

    @cached_property
    def seeds(self) -> int:
        """Return the largest number of seeds of a setting."""
        return max((len(point.seeds) for point in self.results.points), default=0)

    @cached_property
    def images(self) -> int:
        """Return the number of test images, the largest where runs differ; 0 if it is unknown."""
        return int(max(self.results.values("images"), default=0))

    @cached_property
    def rank_judges(self) -> list[str]:
        """Return the names of the judges that ranked an image of the gallery."""
        judges = self.results.judges
        return [judge for judge in judges if any(entry.ranks[judge] is not None for entry in self._captions)]

    @cached_property
    def retrieving_judges(self) -> list[tuple[str, str]]:
        """Return the names and titles of the first and the last judge, if their highest-ranked images are known."""
        judges = self.results.judges
        return [
            (name, judges[name].title)
            for name in self.results.first_and_last_judge
            if any(entry.retrieved[name] for entry in self._captions)
        ]

    @cached_property
    def has_truths(self) -> bool:
        """Return whether the truth of the captions' words is known."""
        return any(entry.truths for entry in self._captions)

    @cached_property
    def _captions(self) -> list[gallery.GalleryCaption]:
        return [entry for picture in self.pictures for entry in picture.captions]

    def get_control_caption(self, picture: gallery.GalleryPicture) -> str:
        """Return the picture's caption by the chosen setting of the control, or ""."""
        chosen = (entry for entry in picture.captions if "chosen" in entry.views)
        captions = (entry.caption for entry in chosen if entry.method == self.settings.control)
        return next(captions, None) or ""
