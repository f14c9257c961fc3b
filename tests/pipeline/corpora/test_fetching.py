import hashlib
import io
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from preloaded_python import program

from pipeline.corpora.archives import MARKER
from pipeline.corpora.cards import ArchiveSource, BrokenSource, DataCard, ManualSource
from pipeline.corpora.fetching import card_summary, fetch_corpus
from pipeline.errors import UserError

ROOT = Path(__file__).parents[3]


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


BALLS = zipped({"balls/1.jpg": b"1", "balls/2.jpg": b"22", "read.me": b"more"})


class World:
    """A corpus of two archives, one on the web and one by hand, and a file by hand; and the printed lines."""

    def __init__(self, web, folder: Path) -> None:
        self.out, self.downloads = folder / "corpus", folder / "downloads"
        self.said: list[str] = []
        web.files["balls.zip"] = BALLS
        self.card = DataCard(
            name="balls",
            title="Balls",
            images=2,
            captions=4,
            splits={"train": 1, "val": 1},
            home="https://balls.example",
            licence="for play only",
            citation="Nobody, 2020",
            archives=(
                ArchiveSource(
                    file="balls.zip",
                    url=f"{web.address}/balls.zip",
                    bytes=len(BALLS),
                    sha256=hashlib.sha256(BALLS).hexdigest(),
                    members="balls/*.jpg",
                    to="images/balls",
                    files=2,
                    unpacked=100,
                ),
                ArchiveSource(file="more.zip", where="sign a form", members="*.txt", to="more", files=1, unpacked=10),
            ),
            by_hand=(ManualSource(file="dataset_balls.json", where="ask the author"),),
            broken=(BrokenSource(what="balls.example/old", instead="balls.example/new"),),
        )

    def bring(self) -> None:
        """Put the files into place that a user downloads by hand."""
        self.downloads.mkdir(exist_ok=True)
        self.out.mkdir(exist_ok=True)
        (self.downloads / "more.zip").write_bytes(zipped({"1.txt": b"one"}))
        (self.out / "dataset_balls.json").write_text("{}")

    def fetch(self) -> str:
        self.said.clear()
        fetch_corpus(self.card, self.out, self.downloads, self.said.append)
        return "\n".join(self.said)

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.out)) for path in self.out.rglob("*") if path.is_file())


@pytest.fixture
def world(web, tmp_path) -> World:
    return World(web, tmp_path)


@pytest.fixture
def changed(world) -> Callable[..., None]:
    """A function that changes the first archive of the card."""

    def change(**values) -> None:
        first, *rest = world.card.archives
        archives = (first.model_copy(update=values), *rest)
        world.card = world.card.model_copy(update={"archives": archives})

    return change


def test_a_corpus_is_fetched_checked_and_unpacked_and_the_profile_named(world):
    world.bring()
    printed = world.fetch()
    assert world.files() == [
        "dataset_balls.json",
        f"images/balls/{MARKER}",
        "images/balls/1.jpg",
        "images/balls/2.jpg",
        f"more/{MARKER}",
        "more/1.txt",
    ]
    assert "licence: for play only" in printed
    assert "known to be broken: balls.example/old → balls.example/new" in printed
    assert f"fetching {world.card.archives[0].url}: {len(BALLS)} bytes" in printed
    assert "needed," in printed
    assert f"more.zip: SHA-256 {hashlib.sha256((world.downloads / 'more.zip').read_bytes()).hexdigest()}; no" in printed
    assert printed.endswith(f"complete: {world.out}; now: make repro PROFILE=balls")


def test_missing_files_are_named_with_their_source_and_their_path(world):
    with pytest.raises(UserError, match=r"balls: still missing: .*/more, .*/dataset_balls.json; see above") as error:
        world.fetch()
    assert "\n" not in str(error.value)
    printed = "\n".join(world.said)
    assert f"missing: {world.out / 'more'}\n  put more.zip at {world.downloads / 'more.zip'}" in printed
    assert "sign a form" in printed
    assert f"missing: {world.out / 'dataset_balls.json'}\n  ask the author" in printed
    assert (world.out / "images" / "balls" / "2.jpg").exists()  # other files were fetched
    world.bring()
    assert "complete" in world.fetch()


def test_a_second_fetch_sends_no_request_and_writes_nothing(web, world):
    world.bring()
    world.fetch()
    before = {path: path.stat().st_mtime_ns for path in world.out.rglob("*")}
    printed = world.fetch()
    assert len(web.asked) == 1
    assert {path: path.stat().st_mtime_ns for path in world.out.rglob("*")} == before
    assert f"found: {world.out / 'images' / 'balls'}, 2 files" in printed
    assert "fetching" not in printed


def test_archives_may_be_removed_afterwards(web, world):
    world.bring()
    assert "are not needed any more" in world.fetch()
    shutil.rmtree(world.downloads)
    assert "complete" in world.fetch()
    assert len(web.asked) == 1


def test_an_existing_archive_is_used_if_its_digest_is_right(web, world):
    world.bring()
    (world.downloads / "balls.zip").write_bytes(BALLS)
    world.fetch()
    assert web.asked == []
    shutil.rmtree(world.out / "images")
    (world.downloads / "balls.zip").write_bytes(b"another")
    with pytest.raises(UserError, match="is expected; move it away"):
        world.fetch()
    assert not (world.out / "images").exists()


def test_an_archive_with_a_wrong_digest_is_not_unpacked(web, world):
    web.files["balls.zip"] = zipped({"balls/1.jpg": b"3", "balls/2.jpg": b"44", "read.me": b"more"})
    assert len(web.files["balls.zip"]) == len(BALLS)
    with pytest.raises(UserError, match="the received file is removed"):
        world.fetch()
    assert not world.out.exists()


def test_a_photo_lost_after_unpacking_is_reported(world):
    world.bring()
    world.fetch()
    (world.out / "images" / "balls" / "2.jpg").write_bytes(b"")
    with pytest.raises(UserError, match="2 files of 1 bytes are there, and 2 of 3 were unpacked; remove the folder"):
        world.fetch()


def test_a_folder_of_the_users_own_is_used_unchanged(web, world, tmp_path):
    world.bring()
    (tmp_path / "mine").mkdir()
    for name in ("1.jpg", "2.jpg", "3.jpg"):
        (tmp_path / "mine" / name).write_bytes(b"mine")
    (world.out / "images").mkdir()
    (world.out / "images" / "balls").symlink_to(tmp_path / "mine")
    assert "3 files, not unpacked by this command" in world.fetch()
    assert web.asked == []
    (tmp_path / "mine" / "1.jpg").unlink()
    (tmp_path / "mine" / "2.jpg").unlink()
    with pytest.raises(UserError, match="1 files are there, and 2 are needed; complete it, or move it away"):
        world.fetch()


def test_a_folder_with_the_files_of_the_splits_alone_suffices(world, changed):
    world.bring()
    (world.out / "images" / "balls").mkdir(parents=True)
    (world.out / "images" / "balls" / "1.jpg").write_bytes(b"1")
    with pytest.raises(UserError, match="2 are needed"):
        world.fetch()
    changed(needed=1)
    assert "complete" in world.fetch()


def test_a_disk_that_is_too_small_is_reported_before_anything_is_fetched(web, world, changed):
    changed(unpacked=10**18)
    with pytest.raises(UserError, match=r"1000000000.0 GB are needed and .* are free; make room") as error:
        world.fetch()
    assert "\n" not in str(error.value)
    assert web.asked == []


def test_downloaded_bytes_count_against_the_needed_room(world, changed, monkeypatch):
    usage = shutil.disk_usage(world.out.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=150))
    world.card = world.card.model_copy(update={"archives": world.card.archives[:1]})
    with pytest.raises(UserError, match=f"{len(BALLS) + 100} bytes are needed and 150 bytes are free"):
        world.fetch()
    (world.downloads / "balls.zip.part").write_bytes(BALLS[:-50])
    world.bring()
    assert f"of which {len(BALLS) - 50} bytes are here" in world.fetch()


def test_two_runs_at_once_do_not_share_a_part(world):
    fcntl = pytest.importorskip("fcntl")
    world.downloads.mkdir()
    with open(world.downloads / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another run is fetching into it"):
            world.fetch()
    assert not world.out.exists()


def test_of_a_choice_one_is_enough_and_its_profile_is_named(world):
    first, more = world.card.archives
    text = more.model_copy(update={"choice": "said", "profile": "own"})
    table = ManualSource(file="captions.json", where="another form", choice="said", profile="another")
    world.card = world.card.model_copy(update={"archives": (first, text), "by_hand": (table,)})
    assert "by hand: more.zip or captions.json" in card_summary(world.card)
    both = rf"missing: {world.out}/more, {world.out}/captions.json \({world.out}/more or .*json: one is enough"
    with pytest.raises(UserError, match=both):
        world.fetch()
    (world.out / "captions.json").write_text("{}")
    assert "make repro PROFILE=another" in world.fetch()
    (world.out / "captions.json").unlink()
    world.bring()
    assert "make repro PROFILE=own" in world.fetch()


def test_optional_files_are_named_and_not_required(world):
    archives = (world.card.archives[0], world.card.archives[1].model_copy(update={"optional": True}))
    world.card = world.card.model_copy(update={"archives": archives})
    world.bring()
    (world.downloads / "more.zip").unlink()
    printed = world.fetch()
    assert f"optional: {world.out / 'more'}" in printed
    assert "complete" in printed


def test_a_summary_names_downloads_and_files_that_the_user_brings(world):
    summary = card_summary(world.card)
    assert f"download: {len(BALLS)} bytes; by hand: more.zip, dataset_balls.json" in summary
    assert "for play only" in summary


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("python"), "-m", "stages.fetch", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_command_lists_the_corpora_and_names_missing_files(tmp_path):
    listed = command()
    assert listed.returncode == 0
    assert [line.split(":")[0] for line in listed.stdout.splitlines() if line[:1].strip()][:3] == [
        "coco",
        "flickr30k",
        "flickr8k",
    ]
    folders = ("--out", str(tmp_path / "out"), "--downloads", str(tmp_path / "downloads"))
    missing = command("--dataset", "flickr8k", *folders)
    assert missing.returncode == 2
    assert missing.stderr.count("\n") == 1
    assert "still missing" in missing.stderr
    assert "forms.illinois.edu" in missing.stdout
    assert os.listdir(tmp_path) == []
    assert command("--dataset", "coc", *folders).stderr.startswith("DATASET=coc: no such data card")
