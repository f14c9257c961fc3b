"""The grid, run by Snakemake; the runs of every cell are children of one MLflow run.

python -m stages.sweep → data/sweep: metrics, captions and histories of all cells, whose own files lie in data/cells.
"""

import subprocess
import sys

from pipeline.errors import UserError
from pipeline.runtime import signals
from pipeline.runtime.command import end_process
from pipeline.tracking import recorder
from pipeline.workflow.grid_cells import count_parallel_cells, wait_for_other_snakemake
from pipeline.workflow.stage import Stage, main


def run(stage: Stage) -> None:
    """Run Snakemake on the missing and outdated cells, SAYWHICH_CORES at once (default: all allowed cores).

    Raises UserError where Snakemake fails, and as `count_parallel_cells` does.
    """
    wait_for_other_snakemake()
    with recorder.record_run(stage.title, stage.params.as_dict()) as record:
        command = [sys.executable, "-m", "snakemake", "--cores", str(count_parallel_cells())]
        # on a request the cells save a checkpoint and end, and then Snakemake ends
        with signals.record_requests() as get_request:
            snakemake = subprocess.Popen(command, env=record.environment, process_group=0)
            status = signals.wait_for_process(snakemake, get_request)
        if status:
            raise UserError(
                f"a cell failed, or Snakemake itself (status {status}): see the log above and data/cells, and correct "
                "the cause; then run the sweep again, which continues from here"
            )
        record.log_outputs([stage.out / name for name in ("cells.json", "captions.parquet", "history.jsonl")])


if __name__ == "__main__":
    end_process(main("sweep", run))
