"""Cross-play: R@10 of every method's captions with every method's listener, at the settings chosen on validation.

python -m stages.cross → data/crossed/crossed.json: R@10 on the test split by speaker, listener and seed. The judges of
`evaluate.judges` are further listeners.
"""

import json

from pipeline.analysis.judge_titles import make_recall_keys
from pipeline.analysis.results import find_evaluations, read_results
from pipeline.analysis.selection import ReportSettings, choose_all
from pipeline.runtime.checksums import write_checksums
from pipeline.runtime.command import end_process
from pipeline.runtime.files import write_atomically
from pipeline.tracking import recorder
from pipeline.workflow.stage import Stage, main


def run(stage: Stage) -> None:
    """Evaluate in cross-play the selected cells of the sweep, and the trained models of methods outside the sweep."""
    from pipeline.analysis.crossing import measure_cross_play
    from pipeline.data.prepared import PreparedData
    from pipeline.slices.judge_kinds import JUDGES

    settings = stage.settings
    evaluations = find_evaluations(stage.root, settings.methods)
    results = read_results(stage.root / "sweep", evaluations, score=settings.report.score)
    selection_settings = ReportSettings(
        control=settings.report.control, min_cider_share=settings.report.min_cider_share
    )
    # a slice's results have no captions to exchange
    has_captions = not results.runs or any(results.has(*make_recall_keys(judge)) for judge in results.judges)
    choices = choose_all(results, selection_settings) if has_captions else []
    points = {choice.method: choice.point for choice in choices if choice.point}
    prepared = PreparedData.load(stage.root / "prepared")
    inputs = [*(stage.root / name for name in ("prepared", "features", "pretrained", "sweep")), *evaluations]
    with recorder.record_run(stage.title, stage.params.as_dict(), inputs=stage.compute_digests(inputs)) as record:
        judges = settings.evaluate.judges if has_captions else {}
        matrix = measure_cross_play(points, judges, JUDGES, prepared, stage.root, stage.device)
        write_atomically(stage.out / "crossed.json", json.dumps(matrix, indent=1) + "\n")
        write_checksums(stage.out)
        record.log_outputs([stage.out / "crossed.json"])


if __name__ == "__main__":
    end_process(main("cross", run))
