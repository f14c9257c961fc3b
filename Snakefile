# The grid of params.yaml's section sweep. The stages of DVC train and evaluate every cell, and adapt a listener to its
# speaker.
#
#   snakemake --cores 2                      run missing and outdated cells, two at once
#   snakemake --cores 2 --dry-run            list these cells, with reasons
#   snakemake --report report.html           write one page of results with their provenance
#   snakemake --workflow-profile profiles/slurm  submit the cells to Slurm
#
# A cell runs again when its parameters or the content of its inputs or code change (pipeline/workflow/grid_cells.py
# makes one digest of them). Times of files do not matter.
import os
from pathlib import Path

from pipeline.workflow import grid_cells
from pipeline.workflow.dependencies import CODE, write_code_digests
from pipeline.metrics import shared_meteor
from pipeline.runtime import signals
from pipeline.config.name_checks import read_checked_names
from pipeline.config.reading import read_mapping
from pipeline.config.views import list_deps

PARAMS = read_checked_names()
if workflow.is_main_process:
    write_code_digests(PARAMS)
CELLS = {(cell.method, cell.name): cell for cell in grid_cells.list_cells(PARAMS)}
WORKFLOW = read_mapping(Path("dvc.yaml"))
DEPS = {
    (stage, method): list_deps(WORKFLOW, stage, PARAMS["methods"][method] or {})
    for stage in grid_cells.CELL_STAGES
    for method in {cell.method for cell in CELLS.values()}
}
CONTENT = grid_cells.compute_digests(path for paths in DEPS.values() for path in paths)
# Digests are computed once: Snakemake evaluates the parameters of each waiting job many times.
DIGESTS = {
    (stage, *key): grid_cells.compute_cell_digest(cell, stage, PARAMS, CONTENT, WORKFLOW)
    for key, cell in CELLS.items()
    for stage in grid_cells.CELL_STAGES
}
LOCK = grid_cells.free_locks() if workflow.is_main_process else None
SERVERS = []

FOLDER = "data/cells/{method}/{cell}"


def list_inputs(stage):
    """Return the files of other stages that `stage` reads."""
    paths = {path for key in DEPS if key[0] == stage for path in DEPS[key]}
    return sorted(path for path in paths if path.startswith("data/") and not path.startswith(f"{CODE}/"))


def get_options(wildcards):
    return CELLS[wildcards.method, wildcards.cell].options


def get_folder(wildcards):
    return str(CELLS[wildcards.method, wildcards.cell].folder)


def make_digest_getter(stage):
    return lambda wildcards: DIGESTS[stage, wildcards.method, wildcards.cell]


report: "docs/snakemake/workflow.rst"


wildcard_constraints:
    method="[A-Za-z0-9_]+",
    cell="[^/]+",


localrules:
    all,


# A cell that a signal has ended also ends the grid; a failed cell does not.
shell.prefix("set -euo pipefail; trap 'case $? in 129|130|143) kill -$(($? - 128)) $PPID;; esac' EXIT; ")


# Neither a dry run nor a job runs this block. All cells of this machine share one METEOR server. A signal to the grid also
# ends the cells that run on this machine; a cluster's scheduler keeps its cells.
onstart:
    SERVERS.append(shared_meteor.start_server(os.environ))
    if workflow.local_exec:
        signals.end_with_children("the grid")


rule all:
    input:
        "data/sweep/cells.json",
        "data/sweep/captions.parquet",
        "data/sweep/history.jsonl",


rule train:
    input:
        ancient(list_inputs("train")),
    output:
        weights=f"{FOLDER}/weights.safetensors",
        history=f"{FOLDER}/history.jsonl",
        metrics=f"{FOLDER}/metrics.json",
    log:
        f"{FOLDER}/train.log",
    benchmark:
        f"{FOLDER}/train.tsv"
    conda:
        "profiles/environment.yaml"
    threads: 1
    resources:
        gpu=grid_cells.count_requested_gpus(),
    params:
        options=get_options,
        folder=get_folder,
        basis=make_digest_getter("train"),
    shell:
        "OMP_NUM_THREADS={threads} SAYWHICH_PROCESSES=$(({resources.gpu} > 1 ? {resources.gpu} : 1)) "
        "SAYWHICH_CELL={wildcards.cell:q} python -m stages.train {params.options:q} --out {params.folder:q} > {log:q} 2>&1"


rule adapt:
    input:
        ancient(list_inputs("adapt")),
        weights=rules.train.output.weights,
    output:
        weights=f"{FOLDER}/adapted/weights.safetensors",
        history=f"{FOLDER}/adapted/history.jsonl",
        metrics=f"{FOLDER}/adapted/metrics.json",
    log:
        f"{FOLDER}/adapt.log",
    benchmark:
        f"{FOLDER}/adapt.tsv"
    conda:
        "profiles/environment.yaml"
    threads: 1
    resources:
        gpu=grid_cells.count_requested_gpus(),
    params:
        options=get_options,
        folder=get_folder,
        basis=make_digest_getter("adapt"),
    shell:
        "OMP_NUM_THREADS={threads} SAYWHICH_PROCESSES=$(({resources.gpu} > 1 ? {resources.gpu} : 1)) "
        "SAYWHICH_CELL={wildcards.cell:q} python -m stages.adapt {params.options:q} "
        "--model {params.folder:q} --out {params.folder:q}/adapted > {log:q} 2>&1"


rule evaluate:
    input:
        ancient(list_inputs("evaluate")),
        weights=rules.train.output.weights,
        adapted=rules.adapt.output.weights,
    output:
        metrics=report(
            f"{FOLDER}/evaluation/metrics.json",
            caption="docs/snakemake/cell.rst",
            category="Cells",
            subcategory="{method}",
            labels={"cell": "{cell}"},
        ),
        captions=f"{FOLDER}/evaluation/captions.parquet",
    log:
        f"{FOLDER}/evaluate.log",
    benchmark:
        f"{FOLDER}/evaluate.tsv"
    conda:
        "profiles/environment.yaml"
    threads: 1
    resources:
        gpu=grid_cells.count_requested_gpus(),
    params:
        options=get_options,
        folder=get_folder,
        basis=make_digest_getter("evaluate"),
    shell:
        "OMP_NUM_THREADS={threads} SAYWHICH_CELL={wildcards.cell:q} python -m stages.evaluate {params.options:q} "
        "--model {params.folder:q} --out {params.folder:q}/evaluation > {log:q} 2>&1"


rule gather:
    input:
        [f"{cell.folder}/evaluation/metrics.json" for cell in CELLS.values()],
        [f"{cell.folder}/evaluation/captions.parquet" for cell in CELLS.values()],
        [f"{cell.folder}/history.jsonl" for cell in CELLS.values()],
    output:
        cells=report(
            "data/sweep/cells.json",
            caption="docs/snakemake/sweep.rst",
            category="Sweep",
            labels={"file": "all cells"},
        ),
        captions="data/sweep/captions.parquet",
        history="data/sweep/history.jsonl",
    log:
        "data/cells/gather.log",
    conda:
        "profiles/environment.yaml"
    params:
        cells=[str(cell.folder) for cell in CELLS.values()],
    shell:
        "python -m pipeline.workflow.grid_cells gather data/sweep > {log:q} 2>&1"
