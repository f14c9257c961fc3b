"""Draw the embedded data set.

python -m stages.draw --dataset scenes → data/raw/scenes: images, captions in Karpathy's and COCO's form, facts,
and dialogs in VisDial's form where they are asked for; --dataset films → data/raw/films: the same of moving pictures.
"""

import sys
from collections.abc import Callable

from pipeline.workflow.stage import Stage, main


def run(stage: Stage) -> None:
    """Draw the scenes or films that params.yaml asks for."""
    from pipeline.films.write import draw as draw_films
    from pipeline.scenes.write import draw as draw_scenes
    from pipeline.tracking import recorder

    assert stage.instance is not None
    draw: dict[str, Callable[..., object]] = {"scenes": draw_scenes, "films": draw_films}
    with recorder.run(stage.title, stage.params.plain()) as record:
        draw[stage.instance](stage.out, seed=stage.seed, **stage.params.draw[stage.instance].plain())
        record.outputs([stage.out])


if __name__ == "__main__":
    sys.exit(main("draw", run))
