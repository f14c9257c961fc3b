# Extraction of features in shards, on one machine or on many that share this folder.
#
#   snakemake -s features.smk --cores 8 --config shards=8          extract all shards, then join them without DVC
#   snakemake shards -s features.smk --cores 8 --config shards=8   extract them; `dvc repro` joins them and continues
#   snakemake -s features.smk --workflow-profile profiles/slurm --config shards=32   submit the shards to Slurm
#
# `--config features=judge` selects another set of features than main.
#
# data/checkpoints/features keeps the features of each shard, by a key of parameters, data and code. A later run reuses
# them after a kill, and with any number of shards.
from functools import cache

from pipeline.workflow import grid_cells
from pipeline.workflow.stage import open_stage
from stages.features import list_inputs

SHARDS = int(config.get("shards", 8))
FEATURES = config.get("features", "main")
MARKER = f"data/checkpoints/features/{FEATURES}-{{k}}-of-{{n}}.done"
MARKERS = expand(MARKER, k=range(1, SHARDS + 1), n=SHARDS)
LOCK = grid_cells.free_locks() if workflow.is_main_process else None


@cache
def compute_key():
    """Return the key of the features' parameters, data and code, as the stage computes it."""
    stage = open_stage("features", ["--features", FEATURES])
    return stage.compute_key(list_inputs(stage))


localrules:
    all,
    shards,


rule all:
    input:
        f"data/features/{FEATURES}/features.h5",
        f"data/features/{FEATURES}/manifest.json",


rule shards:
    input:
        MARKERS,


rule shard:
    input:
        ancient("data/prepared/manifest.json"),
    output:
        temp(touch(MARKER)),
    log:
        f"data/cells/features/{FEATURES}-{{k}}-of-{{n}}.log",
    conda:
        "profiles/environment.yaml"
    threads: 1
    resources:
        gpu=grid_cells.count_requested_gpus(),
    params:
        key=lambda wildcards: compute_key(),
        features=FEATURES,
    shell:
        "OMP_NUM_THREADS={threads} python -m stages.features --features {params.features:q} --shard {wildcards.k}/{wildcards.n} > {log:q} 2>&1"


rule join:
    input:
        MARKERS,
    output:
        f"data/features/{FEATURES}/features.h5",
        f"data/features/{FEATURES}/manifest.json",
    log:
        f"data/cells/features/{FEATURES}-join.log",
    conda:
        "profiles/environment.yaml"
    params:
        key=lambda wildcards: compute_key(),
        features=FEATURES,
    shell:
        "python -m stages.features --features {params.features:q} > {log:q} 2>&1"
