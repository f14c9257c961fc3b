"""snakemake-executor-plugin-kubernetes for pods that share a volume: each job is a pod that works in the folder there.

The plugin takes pods for machines without a common file system, and copies each job's code and files to them and back.
A cell is more than its files: its checkpoints, by which a killed training goes on, and what waits to be sent to MLflow.
"""

from dataclasses import replace

from snakemake_executor_plugin_kubernetes import Executor, ExecutorSettings
from snakemake_executor_plugin_kubernetes import common_settings as those

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

common_settings = replace(
    those, implies_no_shared_fs=False, job_deploy_sources=False, auto_deploy_default_storage_provider=False
)
