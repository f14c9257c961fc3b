#!/bin/bash
# One training on several nodes, whose processes connect by Slurm's variables:
#
#   sbatch --nodes=2 --gpus-per-node=4 profiles/slurm/several_nodes.sh train --method psst_multinomial
#
# A node runs one process for each of its GPUs, or SAYWHICH_PROCESSES processes.
#SBATCH --ntasks-per-node=1
set -euo pipefail

stage=$1
shift
processes=${SAYWHICH_PROCESSES:-${SLURM_GPUS_ON_NODE:-1}}
port=$((20000 + SLURM_JOB_ID % 20000)) # equal on all nodes; jobs that share a node rarely have equal ports
echo "$SLURM_JOB_NUM_NODES nodes: $(scontrol show hostnames "$SLURM_JOB_NODELIST" | tr '\n' ' ')"

# srun sets SLURM_NODEID and SLURM_LAUNCH_NODE_IPADDR, the address of the job's first node, for each task
# shellcheck disable=SC2016
srun bash -c '
    exec python -m torch.distributed.run --nnodes="$SLURM_NNODES" --node-rank="$SLURM_NODEID" \
        --master-addr="$SLURM_LAUNCH_NODE_IPADDR" --master-port="$0" --nproc-per-node="$1" -m "stages.$2" "${@:3}"
' "$port" "$processes" "$stage" "$@"
