"""snakemake-executor-plugin-kubernetes for pods that share a volume: each job is a pod that works in the folder there.

The plugin takes pods for machines without a common file system, and copies each job's code and files to them and back.
A cell is more than its files: its checkpoints, by which a killed training goes on, and what waits to be sent to MLflow.
"""

import os
import shlex
from dataclasses import replace

import snakemake_executor_plugin_kubernetes as plugin
from snakemake_executor_plugin_kubernetes import ExecutorSettings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

common_settings = replace(
    plugin.common_settings,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    auto_deploy_default_storage_provider=False,
)


class Executor(plugin.Executor):
    """The plugin's, whose pods begin in the folder that Snakemake runs in."""

    def format_job_exec(self, job):
        return f"cd {shlex.quote(os.getcwd())} && {super().format_job_exec(job)}"
