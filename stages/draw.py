"""Draw the embedded data set.

python -m stages.draw --dataset scenes → data/raw/scenes: images, captions in Karpathy's and COCO's form, facts,
and dialogs in VisDial's form where they are asked for.
"""

import sys

from pipeline.workflow.stage import Stage, main


def run(stage: Stage) -> None:
    """Draw the scenes that params.yaml asks for."""
    from pipeline.scenes.write import draw
    from pipeline.tracking import recorder

    assert stage.instance is not None
    settings = stage.params.draw[stage.instance]
    with recorder.run(stage.title, stage.params.plain()) as record:
        draw(
            stage.out, settings.images, settings.size, settings.val, settings.test, stage.seed, dialogs=settings.dialogs
        )
        record.outputs([stage.out])


if __name__ == "__main__":
    sys.exit(main("draw", run))
