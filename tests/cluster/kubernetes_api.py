"""The part of Kubernetes' API that the executor calls: a job's pod is a process, and its volume is a folder."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Cluster:
    """Manifests and processes of the requested jobs, and the secrets, by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: dict[str, dict[str, Any]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.secrets: dict[str, dict[str, str]] = {}

    def create(self, kind: str, body: dict[str, Any]) -> None:
        name = body["metadata"]["name"]
        if kind == "secrets":
            self.secrets[name] = body.get("data") or {}
            return
        self.jobs[name] = body
        (container,) = body["spec"]["template"]["spec"]["containers"]
        environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(self.folder)}
        for entry in container.get("env") or []:
            reference = entry["valueFrom"]["secretKeyRef"]
            environment[entry["name"]] = base64.b64decode(self.secrets[reference["name"]][reference["key"]]).decode()
        (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] != "workdir")
        environment["PYTHONPATH"] = mount["mountPath"]  # the container image sets the same variable
        workdir = self.folder / name
        workdir.mkdir()
        with open(workdir / "log", "wb") as log:
            command = [*container["command"], *container["args"]]
            process = subprocess.Popen(command, cwd=workdir, env=environment, stdout=log, stderr=log, process_group=0)
        self.processes[name] = process

    def describe_job(self, name: str) -> dict[str, Any]:
        state = self.processes[name].poll()
        counts = {"active": 1} if state is None else {"succeeded": 1} if state == 0 else {"failed": 1}
        return self.jobs[name] | {"status": counts}


@contextmanager
def serve_kubernetes_api(folder: Path) -> Iterator[tuple[Cluster, Path]]:
    """Yield the cluster, and a kubeconfig that names it."""
    cluster = Cluster(folder)

    class Handler(BaseHTTPRequestHandler):
        def send_answer(self, body: dict[str, Any], code: int = 200) -> None:
            content = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            kind = re.fullmatch(r"/(?:api|apis/batch)/v1/namespaces/\w+/(secrets|jobs)", self.path.partition("?")[0])
            if kind is None:
                return self.send_answer({"message": f"unknown path: {self.path}"}, 404)
            cluster.create(kind[1], body)
            self.send_answer(body, 201)

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path.endswith("/pods"):
                return self.send_answer({"kind": "PodList", "apiVersion": "v1", "items": []})
            self.send_answer(cluster.describe_job(path.split("/jobs/")[1].split("/")[0]))

        def do_DELETE(self) -> None:
            if length := int(self.headers.get("Content-Length") or 0):
                self.rfile.read(length)
            self.send_answer({"kind": "Status", "status": "Success"})

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster_entry = {"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster_entry],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        "current-context": "here",
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    try:
        yield cluster, folder / "kubeconfig"
    finally:
        server.shutdown()
        for process in cluster.processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
