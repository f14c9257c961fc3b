"""Executor for Kubernetes pods that share a volume: each job is a pod that works in the repository's folder.

snakemake-executor-plugin-kubernetes assumes that pods have no common file system, and copies a job's files to them and
back. Checkpoints and the spool of MLflow's records are no outputs of a job, and would be lost.
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
    """Executor of the plugin, whose pods start in the folder in which Snakemake runs."""

    def format_job_exec(self, job):
        return f"cd {shlex.quote(os.getcwd())} && {super().format_job_exec(job)}"
