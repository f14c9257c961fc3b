"""Run the grid through Snakemake; every cell's runs are children of one MLflow run.

python -m stages.sweep → data/sweep: metrics and captions of all cells; the cells themselves lie in data/cells.
"""

import sys

from pipeline.workflow.stage import Stage, main


def run(stage: Stage) -> None:
    """Let Snakemake do the cells that are missing or out of date, SAYWHICH_CORES at once (default: all cores)."""
    import subprocess

    from pipeline.errors import UserError
    from pipeline.runtime import notice
    from pipeline.tracking import recorder
    from pipeline.workflow.sweep import cores, wait_for_another

    wait_for_another()
    with recorder.run(stage.title, stage.params.plain()) as record:
        command = [sys.executable, "-m", "snakemake", "--cores", str(cores())]
        with notice.noted() as asked:  # the cells save what they have and end, and Snakemake with them
            status = notice.awaited(subprocess.Popen(command, env=record.environment, process_group=0), asked)
        if status:
            raise UserError("a cell failed, see the log above and data/cells; run it again to go on from here")
        record.outputs([stage.out / name for name in ("cells.json", "captions.parquet", "history.jsonl")])


if __name__ == "__main__":
    sys.exit(main("sweep", run))
