"""The report: curves, tables and pictures.

python -m stages.report → data/report: report.html; table.md, tables.md; the figures as PNG and their numbers as CSV;
for few photos, a summary in photos.txt.
"""

from pathlib import Path

from pipeline.runtime.checksums import check_checksums, write_checksums
from pipeline.runtime.command import end_process
from pipeline.runtime.processor_seconds import FOLDER
from pipeline.tracking import recorder
from pipeline.workflow.stage import Stage, main


def run(stage: Stage) -> None:
    """Write the report on the sweep and on the existing evaluations of the methods in params.yaml."""
    from pipeline.analysis.results import find_evaluations
    from pipeline.report.report_page import write_report
    from pipeline.slices.slice_reports import REPORT

    settings = stage.settings
    evaluations = find_evaluations(stage.root, settings.methods)
    sweep, prepared = stage.root / "sweep", stage.root / "prepared"
    crossed = stage.root / "crossed" / "crossed.json"
    gradients = stage.root / "gradients" / "gradients.json"  # written by make gradients: it may not exist
    study = stage.root / "study"  # its answers come from study participants: it may not exist
    has_answers = any((study / "answers").glob("**/*.json*"))
    optional_inputs = [*([gradients] if gradients.exists() else []), *([study / "answers"] if has_answers else [])]
    inputs = [sweep, prepared, crossed, *evaluations, *optional_inputs]
    check_checksums(prepared, "run the prepare stage again")
    check_checksums(crossed.parent, "run the cross stage again")
    check_checksums(gradients.parent, "run make gradients again")
    with recorder.record_run(stage.title, stage.params.as_dict(), inputs=stage.compute_digests(inputs)) as record:
        prepare = settings.prepare
        images = None if prepare.images is None else Path(prepare.root) / prepare.images
        write_report(
            sweep,
            evaluations,
            prepared,
            images,
            stage.out,
            settings.report,
            inputs={
                "crossed": crossed,
                "gradients": gradients,
                "study": study if has_answers else None,
                "processor_seconds": stage.root / "checkpoints" / FOLDER,
            },
            retriever=settings.retriever.model if settings.retriever else None,
            models=[stage.root / "models" / method for method in settings.methods],
            scene_seed=stage.seed,
            parts=REPORT,
        )
        write_checksums(stage.out)
        for path in sorted(stage.out.iterdir()):
            record.log_artifact(path)


if __name__ == "__main__":
    end_process(main("report", run))
