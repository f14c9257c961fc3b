"""DVC's settings of a clone: plots without a network, and experiments in another folder."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.repo import Repo
from dvc_render.html import render_html
from dvc_render.vega import VegaRenderer
from preloaded_python import find_program

from pipeline.workflow.dvc_settings import write_local_settings

ROOT = Path(__file__).parents[3]


@pytest.fixture
def clone(tmp_path, monkeypatch) -> Path:
    """Return a repository with the settings that git tracks, local settings and one stage."""
    folder = tmp_path / "clone"
    (folder / ".dvc").mkdir(parents=True)
    for name in ("config", ".gitignore"):
        shutil.copy(ROOT / ".dvc" / name, folder / ".dvc")
    (folder / "params.yaml").write_text("rho: 1\n")
    (folder / "dvc.yaml").write_text("stages: {one: {cmd: cat params.yaml > out, params: [rho], outs: [out]}}\n")
    (folder / ".gitignore").write_text("/out\n")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=folder, check=True)
    monkeypatch.delenv("DVC_SITE_CACHE_DIR", raising=False)
    write_local_settings(folder)
    return folder


def test_the_page_of_plots_holds_all_scripts(clone, monkeypatch):
    monkeypatch.chdir(clone)
    with Repo() as repo:
        template = Path(repo.config["plots"]["html_template"])
    plot = VegaRenderer([{"x": 1, "y": 2}], "curve", template="linear", x="x", y="y")
    page = Path(render_html([plot], clone / "dvc_plots/index.html", html_template=template)).read_text()
    assert not re.search(r"<script[^>]*src=", page)
    assert page.count("<script") >= 4  # three libraries, and the plot
    assert "vegaEmbed" in page
    assert page.index("global.vegaLite") < page.index("vegaEmbed('#curve'")


def test_a_folder_may_have_any_letters_and_other_settings_stay(clone, monkeypatch):
    # DVC itself writes settings in ASCII only
    folder = clone.rename(clone.parent / "Bücher, 「a」 #1")
    local = folder / ".dvc/config.local"
    local.write_text(f"[core]\n    autostage = true\n{local.read_text(encoding='utf-8').partition(chr(10))[2]}")
    write_local_settings(folder)
    monkeypatch.chdir(folder)
    with Repo() as repo:
        assert Path(repo.site_cache_dir).is_relative_to(folder / ".dvc/tmp")
        assert Path(repo.config["plots"]["html_template"]) == folder / ".dvc/tmp/plots.html"
        assert repo.config["core"]["autostage"]


def test_git_ignores_the_settings_and_the_caches_are_found_from_any_folder(clone, monkeypatch):
    status = subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True)
    assert status.stdout == ""
    (clone / "docs").mkdir()
    monkeypatch.chdir(clone / "docs")
    with Repo() as repo:
        assert Path(repo.site_cache_dir).is_relative_to(clone / ".dvc/tmp")
    assert not list((clone / "docs").iterdir())


def test_an_experiment_runs_in_a_folder_of_its_own(clone):
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for name in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{name}_NAME": "a", f"GIT_{name}_EMAIL": "a@b"}
    command = [find_program("dvc"), "exp", "run", "--temp", "-S", "rho=2", "--name", "second"]
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "second" in done.stdout
    assert (clone / "params.yaml").read_text() == "rho: 1\n"
