import hashlib
import io
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from preloaded_python import find_program

from pipeline.corpora.archives import MARKER
from pipeline.corpora.cards import ArchiveSource, BrokenSource, DataCard, ManualSource
from pipeline.corpora.fetching import fetch_corpus, summarise_card
from pipeline.errors import UserError

ROOT = Path(__file__).parents[3]


def make_zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


BALLS = make_zip({"balls/1.jpg": b"1", "balls/2.jpg": b"22", "read.me": b"more"})


class SampleCorpus:
    """Card of two archives and a file, with its folders and the printed lines."""

    def __init__(self, web, folder: Path) -> None:
        self.out, self.downloads = folder / "corpus", folder / "downloads"
        self.printed: list[str] = []
        web.files["balls.zip"] = BALLS
        self.card = DataCard(
            name="balls",
            title="Balls",
            images=2,
            captions=4,
            splits={"train": 1, "val": 1},
            licence="for play only",
            citation="Nobody, 2020",
            archives=(
                ArchiveSource(
                    file="balls.zip",
                    url=f"{web.address}/balls.zip",
                    bytes=len(BALLS),
                    sha256=hashlib.sha256(BALLS).hexdigest(),
                    members="balls/*.jpg",
                    folder="images/balls",
                    files=2,
                    unpacked=100,
                ),
                ArchiveSource(
                    file="more.zip",
                    instructions="sign a form",
                    members="*.txt",
                    folder="more",
                    files=1,
                    unpacked=10,
                ),
            ),
            manual=(ManualSource(file="dataset_balls.json", instructions="ask the author"),),
            broken=(BrokenSource(description="balls.example/old", replacement="balls.example/new"),),
        )

    def place_manual_files(self) -> None:
        """Write the files that a user downloads by hand."""
        self.downloads.mkdir(exist_ok=True)
        self.out.mkdir(exist_ok=True)
        (self.downloads / "more.zip").write_bytes(make_zip({"1.txt": b"one"}))
        (self.out / "dataset_balls.json").write_text("{}")

    def fetch(self) -> str:
        self.printed.clear()
        fetch_corpus(self.card, self.out, self.downloads, self.printed.append)
        return "\n".join(self.printed)

    def list_files(self) -> list[str]:
        return sorted(str(path.relative_to(self.out)) for path in self.out.rglob("*") if path.is_file())


@pytest.fixture
def corpus(web, tmp_path) -> SampleCorpus:
    return SampleCorpus(web, tmp_path)


@pytest.fixture
def change_archive(corpus) -> Callable[..., None]:
    """Return a function that changes the first archive of the card."""

    def change(**values) -> None:
        first, *rest = corpus.card.archives
        archives = (first.model_copy(update=values), *rest)
        corpus.card = corpus.card.model_copy(update={"archives": archives})

    return change


def test_a_corpus_is_fetched_checked_and_unpacked_and_the_profile_is_named(corpus):
    corpus.place_manual_files()
    printed = corpus.fetch()
    assert corpus.list_files() == [
        "dataset_balls.json",
        f"images/balls/{MARKER}",
        "images/balls/1.jpg",
        "images/balls/2.jpg",
        f"more/{MARKER}",
        "more/1.txt",
    ]
    assert "licence: for play only" in printed
    assert "known to be broken: balls.example/old → balls.example/new" in printed
    assert f"fetching {corpus.card.archives[0].url}: {len(BALLS)} bytes" in printed
    assert "needed," in printed
    assert (
        f"more.zip: SHA-256 {hashlib.sha256((corpus.downloads / 'more.zip').read_bytes()).hexdigest()}; no" in printed
    )
    assert printed.endswith(f"complete: {corpus.out}; now: make repro PROFILE=balls")


def test_missing_files_are_named_with_their_source_and_their_path(corpus):
    with pytest.raises(UserError, match=r"balls: still missing: .*/more, .*/dataset_balls.json; get them") as error:
        corpus.fetch()
    assert "\n" not in error.value.args[0]
    printed = "\n".join(corpus.printed)
    assert f"missing: {corpus.out / 'more'}\n  put more.zip at {corpus.downloads / 'more.zip'}" in printed
    assert "sign a form" in printed
    assert f"missing: {corpus.out / 'dataset_balls.json'}\n  ask the author" in printed
    assert (corpus.out / "images" / "balls" / "2.jpg").exists()  # other files were fetched
    corpus.place_manual_files()
    assert "complete" in corpus.fetch()


def test_a_second_fetch_sends_no_request_and_writes_nothing(web, corpus):
    corpus.place_manual_files()
    corpus.fetch()
    times = {path: path.stat().st_mtime_ns for path in corpus.out.rglob("*")}
    printed = corpus.fetch()
    assert len(web.requests) == 1
    assert {path: path.stat().st_mtime_ns for path in corpus.out.rglob("*")} == times
    assert f"found: {corpus.out / 'images' / 'balls'}, 2 files" in printed
    assert "fetching" not in printed


def test_archives_may_be_removed_afterwards(web, corpus):
    corpus.place_manual_files()
    assert "are not needed any more" in corpus.fetch()
    shutil.rmtree(corpus.downloads)
    assert "complete" in corpus.fetch()
    assert len(web.requests) == 1


def test_an_existing_archive_is_used_if_its_digest_is_right(web, corpus):
    corpus.place_manual_files()
    (corpus.downloads / "balls.zip").write_bytes(BALLS)
    corpus.fetch()
    assert web.requests == []
    shutil.rmtree(corpus.out / "images")
    (corpus.downloads / "balls.zip").write_bytes(b"another")
    with pytest.raises(UserError, match="is expected; move it away"):
        corpus.fetch()
    assert not (corpus.out / "images").exists()


def test_an_archive_with_a_wrong_digest_is_not_unpacked(web, corpus):
    web.files["balls.zip"] = make_zip({"balls/1.jpg": b"3", "balls/2.jpg": b"44", "read.me": b"more"})
    assert len(web.files["balls.zip"]) == len(BALLS)
    with pytest.raises(UserError, match="the received file is removed"):
        corpus.fetch()
    assert not corpus.out.exists()


def test_a_photo_emptied_after_unpacking_is_reported(corpus):
    corpus.place_manual_files()
    corpus.fetch()
    (corpus.out / "images" / "balls" / "2.jpg").write_bytes(b"")
    with pytest.raises(UserError, match="2 files of 1 bytes are there, and 2 of 3 were unpacked; remove the folder"):
        corpus.fetch()


def test_a_folder_of_the_users_own_is_used_unchanged(web, corpus, tmp_path):
    corpus.place_manual_files()
    (tmp_path / "mine").mkdir()
    for name in ("1.jpg", "2.jpg", "3.jpg"):
        (tmp_path / "mine" / name).write_bytes(b"mine")
    (corpus.out / "images").mkdir()
    (corpus.out / "images" / "balls").symlink_to(tmp_path / "mine")
    assert "3 files, not unpacked by this command" in corpus.fetch()
    assert web.requests == []
    (tmp_path / "mine" / "1.jpg").unlink()
    (tmp_path / "mine" / "2.jpg").unlink()
    with pytest.raises(UserError, match="1 files are there, and 2 are needed; complete it, or move it away"):
        corpus.fetch()


def test_a_folder_with_the_files_of_the_splits_alone_suffices(corpus, change_archive):
    corpus.place_manual_files()
    (corpus.out / "images" / "balls").mkdir(parents=True)
    (corpus.out / "images" / "balls" / "1.jpg").write_bytes(b"1")
    with pytest.raises(UserError, match="2 are needed"):
        corpus.fetch()
    change_archive(min_used_files=1)
    assert "complete" in corpus.fetch()


def test_a_disk_that_is_too_small_is_reported_before_anything_is_fetched(web, corpus, change_archive):
    change_archive(unpacked=10**18)
    with pytest.raises(UserError, match=r"1000000000.0 GB are needed and .* are free; make room") as error:
        corpus.fetch()
    assert "\n" not in error.value.args[0]
    assert web.requests == []


def test_downloaded_bytes_count_against_the_needed_room(corpus, change_archive, monkeypatch):
    usage = shutil.disk_usage(corpus.out.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=150))
    corpus.card = corpus.card.model_copy(update={"archives": corpus.card.archives[:1]})
    with pytest.raises(UserError, match=f"{len(BALLS) + 100} bytes are needed and 150 bytes are free"):
        corpus.fetch()
    (corpus.downloads / "balls.zip.part").write_bytes(BALLS[:-50])
    corpus.place_manual_files()
    assert f"of which {len(BALLS) - 50} bytes are here" in corpus.fetch()


def test_a_run_is_refused_while_another_run_fetches(corpus):
    fcntl = pytest.importorskip("fcntl")
    corpus.downloads.mkdir()
    with open(corpus.downloads / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # a run needs the lock for itself, so that a shared lock refuses it, too
        with pytest.raises(UserError, match="another run is fetching into it"):
            corpus.fetch()
    assert not corpus.out.exists()


def test_one_source_of_a_choice_suffices_and_its_profile_is_named(corpus):
    first, more = corpus.card.archives
    text = more.model_copy(update={"choice": "texts", "profile": "own"})
    table = ManualSource(file="captions.json", instructions="another form", choice="texts", profile="another")
    corpus.card = corpus.card.model_copy(update={"archives": (first, text), "manual": (table,)})
    assert "by hand: more.zip or captions.json" in summarise_card(corpus.card)
    both = rf"missing: {corpus.out}/more, {corpus.out}/captions.json \({corpus.out}/more or .*json: one is enough"
    with pytest.raises(UserError, match=both):
        corpus.fetch()
    (corpus.out / "captions.json").write_text("{}")
    assert "make repro PROFILE=another" in corpus.fetch()
    (corpus.out / "captions.json").unlink()
    corpus.place_manual_files()
    assert "make repro PROFILE=own" in corpus.fetch()


def test_optional_files_are_named_and_not_required(corpus):
    archives = (corpus.card.archives[0], corpus.card.archives[1].model_copy(update={"optional": True}))
    corpus.card = corpus.card.model_copy(update={"archives": archives})
    corpus.place_manual_files()
    (corpus.downloads / "more.zip").unlink()
    printed = corpus.fetch()
    assert f"optional: {corpus.out / 'more'}" in printed
    assert "complete" in printed


def test_a_summary_names_downloads_and_files_that_the_user_brings(corpus):
    summary = summarise_card(corpus.card)
    assert f"download: {len(BALLS)} bytes; by hand: more.zip, dataset_balls.json" in summary
    assert "for play only" in summary


def run_fetch(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [find_program("python"), "-m", "stages.fetch", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_lists_the_corpora_and_names_missing_files(tmp_path):
    listing = run_fetch()
    assert listing.returncode == 0
    assert [line.split(":")[0] for line in listing.stdout.splitlines() if line[:1].strip()][:3] == [
        "coco",
        "flickr30k",
        "flickr8k",
    ]
    folders = ("--out", str(tmp_path / "out"), "--downloads", str(tmp_path / "downloads"))
    incomplete = run_fetch("--dataset", "flickr8k", *folders)
    assert incomplete.returncode == 2
    assert incomplete.stderr.count("\n") == 1
    assert "still missing" in incomplete.stderr
    assert "forms.illinois.edu" in incomplete.stdout
    assert os.listdir(tmp_path) == []
    assert run_fetch("--dataset", "coc", *folders).stderr.startswith("DATASET=coc: no such data card")
