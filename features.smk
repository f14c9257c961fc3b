# The features stage in shards, on one machine or on many that share this folder.
#
#   snakemake -s features.smk --cores 8 --config shards=8          all shards, then data/features, without DVC
#   snakemake shards -s features.smk --cores 8 --config shards=8   the shards; `dvc repro` puts them together and goes on
#   snakemake -s features.smk --workflow-profile profiles/slurm --config shards=32
#
# Each shard's images are kept in data/checkpoints/features, by a key of parameters, data and code: whatever is there is
# not seen again, killed or not, with as many shards or with others.
from functools import cache

from pipeline.workflow import sweep
from pipeline.workflow.stage import opened
from stages.features import inputs

SHARDS = int(config.get("shards", 8))
MARK = "data/checkpoints/features/{k}-of-{n}.seen"
SEEN = expand(MARK, k=range(1, SHARDS + 1), n=SHARDS)
ALIVE = sweep.free_locks()


@cache
def key():
    """What decides the features, as the stage itself has it."""
    stage = opened("features")
    return stage.key(inputs(stage))


localrules:
    all,
    shards,


rule all:
    input:
        "data/features/features.h5",
        "data/features/manifest.json",


rule shards:
    input:
        SEEN,


rule shard:
    input:
        ancient("data/prepared/manifest.json"),
    output:
        temp(touch(MARK)),
    log:
        "data/cells/features/{k}-of-{n}.log",
    conda:
        "profiles/environment.yaml"
    threads: 1
    resources:
        gpu=sweep.gpus(),
    params:
        key=lambda wildcards: key(),
    shell:
        "OMP_NUM_THREADS={threads} python -m stages.features --shard {wildcards.k}/{wildcards.n} > {log:q} 2>&1"


rule join:
    input:
        SEEN,
    output:
        "data/features/features.h5",
        "data/features/manifest.json",
    log:
        "data/cells/features/join.log",
    conda:
        "profiles/environment.yaml"
    params:
        key=lambda wildcards: key(),
    shell:
        "python -m stages.features > {log:q} 2>&1"
