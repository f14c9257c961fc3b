"""Generation of the drawn data sets, scenes and films.

    python -m stages.draw --dataset scenes → data/raw/scenes
    python -m stages.draw --dataset films → data/raw/films

Each folder gets images, captions in Karpathy's and COCO's form, and facts. Scenes also get dialogs in VisDial's form,
if configured.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.runtime.command import end_process
from pipeline.tracking import recorder
from pipeline.workflow.stage import Stage, main


def run(stage: Stage) -> None:
    """Draw the scenes or films that params.yaml configures."""
    from pipeline.dialog.drawn.write_dialogs import FILES, write_scene_dialogs
    from pipeline.worlds.films.write_films import draw_films
    from pipeline.worlds.scenes.write_scenes import draw_scenes

    def draw_scenes_with_dialogs(out: Path, dialogs: bool = False, **settings: Any) -> dict[str, int]:
        return draw_scenes(out, annotate=write_scene_dialogs if dialogs else None, additional=FILES, **settings)

    assert stage.instance is not None
    draw: dict[str, Callable[..., object]] = {"scenes": draw_scenes_with_dialogs, "films": draw_films}
    with recorder.record_run(stage.title, stage.params.as_dict()) as record:
        draw[stage.instance](stage.out, seed=stage.seed, **getattr(stage.settings.draw, stage.instance).model_dump())
        record.log_outputs([stage.out])


if __name__ == "__main__":
    end_process(main("draw", run))
