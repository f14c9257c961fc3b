"""The profile for Kubernetes: a fake API runs each pod's command, and the tests check the manifests.

No cluster and no container runs here. The test of the container image reads the Containerfile, and checks that the
copied files exist.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from dummy_stages import LUO, PSST, ROOT, SMALL, TRAIN, list_jobs, pop_run_stages, write_workspace
from kubernetes_api import serve_kubernetes_api

client = pytest.importorskip("kubernetes.client", reason="not installed: kubernetes; see profiles/slurm/README.md")

PROFILE = "profiles/kubernetes"


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, Any]], str]:
    """Run a grid of dummy stages; return its folder, the requested jobs, and Snakemake's standard error."""
    folder, cluster_folder = tmp_path_factory.mktemp("volume"), tmp_path_factory.mktemp("cluster")
    environment_check = "import os\nassert os.environ['MLFLOW_TRACKING_URI'] == 'http://tracker'\n"
    write_workspace(folder, PROFILE, TRAIN + environment_check)
    (folder / "pipeline").symlink_to(ROOT / "pipeline")
    with serve_kubernetes_api(cluster_folder) as (cluster, kubeconfig):
        # the volume is at `folder` here, not at /saywhich
        command = [sys.executable, "-m", "snakemake", "--workflow-profile", PROFILE, "--directory", str(folder)]
        command += ["--shared-kubernetes-persistent-volumes", f"saywhich:{folder}"]
        settings = {"KUBECONFIG": str(kubeconfig), "MLFLOW_TRACKING_URI": "http://tracker"}
        settings["PYTHONPATH"] = os.pathsep.join([str(folder), str(folder / PROFILE)])
        done = subprocess.run(
            command, cwd=folder, env=os.environ | settings, capture_output=True, text=True, check=False, timeout=1800
        )
        logs = "\n".join(path.read_text() for path in cluster_folder.glob("*/log"))
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:] + logs[-2000:]
        return folder, cluster.jobs, done.stderr


def test_each_job_of_the_grid_is_a_pod_on_the_volume(grid):
    folder, jobs, _ = grid
    assert pop_run_stages(folder) == list_jobs(LUO, PSST, SMALL)
    assert (folder / "data/sweep/cells.json").exists()
    assert len(jobs) == 10, "three cells of three jobs each, and the job that gathers their results"


def test_a_pods_requests_and_limits_are_those_of_the_profile(grid):
    containers = [job["spec"]["template"]["spec"]["containers"][0] for job in grid[1].values()]
    assert {container["image"] for container in containers} == {"registry.example/saywhich:0.1.0"}
    for container in containers:
        requests, limits = (container["resources"][kind] for kind in ("requests", "limits"))
        assert requests["memory"] == limits["memory"] == "8000M"
        assert requests.get("nvidia.com/gpu") == limits.get("nvidia.com/gpu")
    gpus = [container["resources"]["limits"].get("nvidia.com/gpu") for container in containers]
    assert sorted(gpus, key=str) == ["1"] * 9 + [None], "the job that gathers the results has no GPU"
    assert not any(container.get("securityContext") for container in containers), "no container is privileged"


def find_unknown_keys(body: Any, kind: str, path: str = "") -> list[str]:
    """Return the paths of the keys of a manifest that the API's types lack."""
    if kind.lower().startswith("list["):  # versions of the package write list[…] or List[…]
        return [line for n, part in enumerate(body) for line in find_unknown_keys(part, kind[5:-1], f"{path}[{n}]")]
    if kind.startswith("dict(") or not hasattr(client, kind):
        return []
    model = getattr(client, kind)
    names = {key: attribute for attribute, key in model.attribute_map.items()}
    found = [f"{path}.{key}" for key in body if key not in names]
    for key, value in body.items():
        if key in names:
            found += find_unknown_keys(value, model.openapi_types[names[key]], f"{path}.{key}")
    return found


def test_manifests_follow_the_types_of_the_api_and_agree_with_the_profile():
    parts = list(yaml.safe_load_all((ROOT / PROFILE / "cluster.yaml").read_text()))
    assert [part["kind"] for part in parts] == ["PersistentVolumeClaim", "ServiceAccount", "Role", "RoleBinding", "Pod"]
    assert [line for part in parts for line in find_unknown_keys(part, f"V1{part['kind']}", part["kind"])] == []
    misspelt = {"spec": {"container": [], "containers": [{"nam": "a"}]}}
    found = ["Pod.spec.container", "Pod.spec.containers[0].nam"]
    assert find_unknown_keys(misspelt, "V1Pod", "Pod") == found, "unknown keys are reported, in lists too"
    profile = yaml.safe_load((ROOT / PROFILE / "config.v9+.yaml").read_text())
    claim, _, path = profile["shared-kubernetes-persistent-volumes"][0].partition(":")
    pod = parts[-1]["spec"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim == parts[0]["metadata"]["name"]
    assert pod["containers"][0]["volumeMounts"][0]["mountPath"] == path == profile["directory"]
    assert pod["containers"][0]["image"] == profile["container-image"]
    assert profile["shared-kubernetes-service-account-name"] == pod["serviceAccountName"]


def test_the_container_image_copies_existing_files_and_does_not_run_as_root():
    lines = re.sub(r"\\\n\s*", "", (ROOT / "Containerfile").read_text()).splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    base = re.fullmatch(r"docker.io/library/python:(\d+)\.(\d+)-slim-bookworm@sha256:[0-9a-f]{64}", steps[0][1])
    assert base
    assert (int(base[1]), int(base[2])) >= (3, 11)
    copied = [name for instruction, rest in steps if instruction == "COPY" for name in rest.split()[:-1]]
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    users = [rest for instruction, rest in steps if instruction == "USER"]
    assert users
    assert users[-1] not in ("root", "0")
    assert any("-c constraints-hashed.txt" in rest for instruction, rest in steps if instruction == "RUN")
