# The features stage in shards, on one machine or on many that share this folder.
#
#   snakemake -s features.smk --cores 8 --config shards=8          all shards, then data/features/main, without DVC
#   snakemake shards -s features.smk --cores 8 --config shards=8   the shards; `dvc repro` puts them together and goes on
#   snakemake -s features.smk --workflow-profile profiles/slurm --config shards=32
#
# `--config features=judge` is for another set of features than main.
#
# Each shard's images are kept in data/checkpoints/features, by a key of parameters, data and code: whatever is there is
# not seen again, killed or not, with as many shards or with others.
from functools import cache

from pipeline.workflow import grid_cells
from pipeline.workflow.stage import open_stage
from stages.features import inputs

SHARDS = int(config.get("shards", 8))
FEATURES = config.get("features", "main")
MARK = f"data/checkpoints/features/{FEATURES}-{{k}}-of-{{n}}.seen"
SEEN = expand(MARK, k=range(1, SHARDS + 1), n=SHARDS)
ALIVE = grid_cells.free_locks() if workflow.is_main_process else None


@cache
def key():
    """What decides the features, as the stage itself has it."""
    stage = open_stage("features", ["--features", FEATURES])
    return stage.key(inputs(stage))


localrules:
    all,
    shards,


rule all:
    input:
        f"data/features/{FEATURES}/features.h5",
        f"data/features/{FEATURES}/manifest.json",


rule shards:
    input:
        SEEN,


rule shard:
    input:
        ancient("data/prepared/manifest.json"),
    output:
        temp(touch(MARK)),
    log:
        f"data/cells/features/{FEATURES}-{{k}}-of-{{n}}.log",
    conda:
        "profiles/environment.yaml"
    threads: 1
    resources:
        gpu=grid_cells.gpus(),
    params:
        key=lambda wildcards: key(),
        features=FEATURES,
    shell:
        "OMP_NUM_THREADS={threads} python -m stages.features --features {params.features:q} --shard {wildcards.k}/{wildcards.n} > {log:q} 2>&1"


rule join:
    input:
        SEEN,
    output:
        f"data/features/{FEATURES}/features.h5",
        f"data/features/{FEATURES}/manifest.json",
    log:
        f"data/cells/features/{FEATURES}-join.log",
    conda:
        "profiles/environment.yaml"
    params:
        key=lambda wildcards: key(),
        features=FEATURES,
    shell:
        "python -m stages.features --features {params.features:q} > {log:q} 2>&1"
