import gzip
import io
import json
import os
import shutil
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.corpora import archives
from pipeline.corpora.archives import MARKER, count_files, read_marker, unpack
from pipeline.errors import UserError

PHOTOS = {"photos/1.jpg": b"one", "photos/2.jpg": b"two", "photos/read.me": b"text", "other/3.jpg": b"three"}
SUFFIXES = ("zip", "tar", "tar.gz")

Entry = tuple[str, bytes]


def pack(path: Path, entries: list[Entry]) -> Path:
    """Write an archive of `entries`; names are unchanged and may be repeated."""
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in entries:
                info = zipfile.ZipInfo("x")
                info.filename = name  # the constructor would change it
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, content)
    else:
        with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
            for name, content in entries:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return path


def pack_special(path: Path, name: str, kind: bytes, mode: int, link: str = "") -> Path:
    """Write an archive with a member that is no plain file; a zip archive also holds PHOTOS."""
    pack(path, list(PHOTOS.items()))
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path, "a") as archive:
            info = zipfile.ZipInfo(name)
            info.create_system = 3
            info.external_attr = (mode | 0o644) << 16
            archive.writestr(info, link)
    else:
        with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            archive.addfile(info)
    return path


def unpack_photos(
    archive: Path, target: Path, files: int = 2, max_bytes: int = 1_000, members: str = "photos/*.jpg"
) -> None:
    unpack(archive, members, target, files=files, max_bytes=max_bytes, source={"sha256": "abc"})


@pytest.fixture(params=SUFFIXES)
def suffix(request) -> str:
    return request.param


@pytest.fixture
def check_refusal(tmp_path: Path) -> Callable[..., None]:
    """Return a function that checks that an archive is refused with a given message and leaves no file."""

    def check_archive(archive: Path, message: str, **options) -> None:
        inside = tmp_path / "inside"
        existing = set(tmp_path.rglob("*")) - {inside}
        with pytest.raises(UserError, match=message) as error:
            unpack_photos(archive, inside / "out", **options)
        assert "\n" not in error.value.args[0]
        assert str(archive) in str(error.value)
        assert set(tmp_path.rglob("*")) - {inside} == existing

    return check_archive


def test_only_the_named_files_are_unpacked(tmp_path, suffix):
    archive = pack(tmp_path / f"a.{suffix}", list(PHOTOS.items()))
    unpack_photos(archive, tmp_path / "out" / "images")
    files = {path.name: path.read_bytes() for path in (tmp_path / "out" / "images").iterdir() if path.name != MARKER}
    assert files == {"1.jpg": b"one", "2.jpg": b"two"}
    assert os.listdir(tmp_path / "out") == ["images"]


def test_the_marker_states_the_archive_and_the_number_of_files_and_bytes(tmp_path, suffix):
    archive = pack(tmp_path / f"a.{suffix}", list(PHOTOS.items()))
    unpack_photos(archive, tmp_path / "out")
    assert read_marker(tmp_path / "out") == {
        "archive": archive.name,
        "members": "photos/*.jpg",
        "sha256": "abc",
        "files": 2,
        "bytes": 6,
    }
    assert count_files(tmp_path / "out") == (2, 6)
    assert read_marker(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"files": 1, "bytes": null}'])
def test_a_damaged_marker_is_reported(tmp_path, content):
    (tmp_path / MARKER).write_text(content)
    with pytest.raises(UserError, match=r"\.unpacked\.json: damaged; remove the folder"):
        read_marker(tmp_path)


def test_files_at_the_top_level_and_below_a_dot_are_unpacked(tmp_path, suffix):
    unpack_photos(
        pack(tmp_path / f"a.{suffix}", [("1.txt", b"1"), ("2.md", b"2")]), tmp_path / "top", files=1, members="*.txt"
    )
    unpack_photos(pack(tmp_path / f"b.{suffix}", [("./photos/1.jpg", b"1")]), tmp_path / "dot", files=1)
    assert (tmp_path / "top" / "1.txt").exists()
    assert (tmp_path / "dot" / "1.jpg").exists()


def test_folders_of_an_archive_are_no_files(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.mkdir("photos")
        archive.writestr("photos/1.jpg", b"1")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in (".", "photos", "photos"):
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE
            archive.addfile(info)
        info = tarfile.TarInfo("photos/1.jpg")
        archive.addfile(info)
    for name in ("zip", "tar"):
        unpack_photos(tmp_path / f"a.{name}", tmp_path / f"out {name}", files=1)
        assert [path.name for path in (tmp_path / f"out {name}").rglob("*.jpg")] == ["1.jpg"]


def test_long_names_and_files_of_megabytes_are_unpacked_completely(tmp_path, suffix):
    name, content = "p" * 120 + "/" + "n" * 150 + ".jpg", os.urandom(3_000_000)
    archive = pack(tmp_path / f"a.{suffix}", [("before", bytes(2_500_000)), (name, content), ("after", bytes(1_024))])
    unpack_photos(archive, tmp_path / "out", files=1, max_bytes=3_000_000, members="p" * 120 + "/*")
    assert (tmp_path / "out" / Path(name).name).read_bytes() == content


@pytest.mark.parametrize(
    "name",
    ["../evil.jpg", "photos/../../evil.jpg", "photos/..", "/etc/evil.jpg", "//evil.jpg", "photos//1.jpg", "C:/evil.jpg",
     "C:evil.jpg", "photos\\..\\evil.jpg", "\\\\host\\evil.jpg", "photos/a\nb.jpg", "photos/a\x1b[1m.jpg", "."],
)  # fmt: skip
def test_an_archive_with_an_unsafe_path_is_refused_even_if_the_path_is_not_unpacked(
    tmp_path, suffix, check_refusal, name
):
    check_refusal(pack(tmp_path / f"a.{suffix}", [*PHOTOS.items(), (name, b"evil")]), "leads outside")


def test_an_archive_with_a_name_containing_nul_is_refused(tmp_path, check_refusal):
    check_refusal(pack(tmp_path / "a.zip", [*PHOTOS.items(), ("photos/3.jpg\0.exe", b"evil")]), "no name", files=3)


@pytest.mark.parametrize("duplicate", ["photos/1.jpg", "./photos/1.jpg", "photos/1.JPG"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_with_a_repeated_name_is_refused(tmp_path, suffix, check_refusal, duplicate):
    check_refusal(pack(tmp_path / f"a.{suffix}", [*PHOTOS.items(), (duplicate, b"another")]), "twice", files=3)


def test_one_name_in_two_unicode_forms_counts_as_repeated(tmp_path, suffix, check_refusal):
    check_refusal(pack(tmp_path / f"a.{suffix}", [("photos/\u00e9.jpg", b"1"), ("photos/e\u0301.jpg", b"2")]), "twice")


@pytest.mark.parametrize(
    ("kind", "mode", "message"),
    [
        (tarfile.SYMTYPE, stat.S_IFLNK, "is a link"),
        (tarfile.LNKTYPE, stat.S_IFLNK, "is a link"),
        (tarfile.CHRTYPE, stat.S_IFCHR, "no plain file"),
        (tarfile.BLKTYPE, stat.S_IFBLK, "no plain file"),
        (tarfile.FIFOTYPE, stat.S_IFIFO, "no plain file"),
        (b"Z", stat.S_IFSOCK, "no plain file"),
    ],
)
def test_an_archive_with_links_or_special_files_is_refused(tmp_path, suffix, check_refusal, kind, mode, message):
    check_refusal(pack_special(tmp_path / f"a.{suffix}", "elsewhere/link", kind, mode, "/etc/passwd"), message)


def test_an_archive_above_the_limit_of_bytes_is_refused(tmp_path, suffix, check_refusal):
    bomb = pack(tmp_path / f"a.{suffix}", [("photos/1.jpg", bytes(6_000_000)), ("photos/2.jpg", bytes(4_000_000))])
    check_refusal(bomb, "unpacks to more than 9,999,999 bytes", max_bytes=9_999_999)
    unpack_photos(bomb, tmp_path / "fits", max_bytes=10_000_000)


def test_an_archive_whose_headers_state_a_smaller_size_is_refused(tmp_path, check_refusal):
    """The header states 10 bytes, and 10 million follow. The reader ends after 10 bytes, whose checksum differs."""
    path = pack(tmp_path / "a.zip", [("photos/1.jpg", bytes(10_000_000))])
    content = path.read_bytes()
    assert content.count(struct.pack("<L", 10_000_000)) == 2
    path.write_bytes(content.replace(struct.pack("<L", 10_000_000), struct.pack("<L", 10)))
    check_refusal(path, "Bad CRC-32", files=1)


def test_the_limit_counts_the_bytes_written_and_not_the_header(tmp_path, check_refusal, monkeypatch):
    describe_member, remove, sizes = archives._describe_zip_member, shutil.rmtree, []

    def understate_size(archive, info):
        member = describe_member(archive, info)
        return archives.ArchiveMember(member.name, 10, member.kind, member.open)

    def remove_part(part, **options):
        sizes.append(count_files(part)[1])
        remove(part, **options)

    monkeypatch.setattr(archives, "_describe_zip_member", understate_size)
    monkeypatch.setattr(archives.shutil, "rmtree", remove_part)
    bomb = pack(tmp_path / "a.zip", [("photos/1.jpg", bytes(10_000_000))])
    check_refusal(bomb, "unpacks to more than 1,000 bytes", files=1)
    check_refusal(
        pack(tmp_path / "b.zip", [("photos/1.jpg", bytes(100))]), "has 100 bytes, and its header states 10", files=1
    )
    assert sizes == [0, 100]


def test_an_archive_with_too_many_members_is_refused(tmp_path, suffix, check_refusal, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    check_refusal(pack(tmp_path / f"a.{suffix}", list(PHOTOS.items())), "more than 3 members")


@pytest.mark.parametrize("files", [1, 3])
def test_an_archive_with_another_number_of_files_is_refused(tmp_path, suffix, check_refusal, files):
    check_refusal(
        pack(tmp_path / f"a.{suffix}", list(PHOTOS.items())), f"2 files match .*, and {files} are expected", files=files
    )


def test_an_archive_with_the_name_of_the_marker_is_refused(tmp_path, suffix, check_refusal):
    check_refusal(
        pack(tmp_path / f"a.{suffix}", [(f"photos/{MARKER}", b"{}")]), "reserved name", members="photos/*", files=1
    )


def test_an_encrypted_archive_is_refused(tmp_path, check_refusal):
    path = pack(tmp_path / "a.zip", [("other/1.jpg", b"secret")])
    content = bytearray(path.read_bytes())
    content[6] |= 1  # the flags of the local header
    content[content.index(b"PK\x01\x02") + 8] |= 1  # the flags of the central directory
    path.write_bytes(content)
    check_refusal(path, "is encrypted")


def test_the_checksum_detects_wrong_bytes(tmp_path, check_refusal):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("photos/1.jpg", b"a photo")
    path.write_bytes(path.read_bytes().replace(b"a photo", b"a phobo"))
    check_refusal(path, "Bad CRC-32", files=1)
    pack(tmp_path / "a.tar", [("photos/1.jpg", b"a photo")])
    packed = bytearray(gzip.compress((tmp_path / "a.tar").read_bytes()))
    packed[-8] ^= 1
    (tmp_path / "b.tar.gz").write_bytes(packed)
    check_refusal(tmp_path / "b.tar.gz", "CRC check failed", files=1)


def test_a_file_that_is_no_gzip_archive_is_refused_as_unreadable(tmp_path, check_refusal):
    (tmp_path / "a.tar.gz").write_bytes(b"<html>404</html>")
    check_refusal(tmp_path / "a.tar.gz", "cannot be read as an archive .*Not a gzipped file")


def test_an_archive_whose_header_claims_much_memory_is_refused(tmp_path, check_refusal):
    """A pax header states its own length, and tarfile would read all of it."""
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, 1 << 40
    (tmp_path / "a.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(10_240))
    check_refusal(tmp_path / "a.tar", "header of 1,099,511,627,776 bytes")


def test_an_archive_whose_header_leads_backwards_is_refused(tmp_path, check_refusal):
    """With a negative size, tarfile would read the same header forever."""
    info = tarfile.TarInfo("other.jpg")
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = (-512 & (1 << 96) - 1).to_bytes(12, "big")
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:]))
    first = tarfile.TarInfo("first.jpg").tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "a.tar").write_bytes(first + bytes(header) + bytes(10_240))
    check_refusal(tmp_path / "a.tar", "leads backwards")


@pytest.mark.parametrize("name", ["a.rar", "a", "a.jpg"])
def test_only_zip_and_tar_are_unpacked(tmp_path, check_refusal, name):
    (tmp_path / name).write_bytes(b"PK")
    check_refusal(tmp_path / name, "a name that ends in .zip, .tar, .tar.gz or .tgz")


def test_a_missing_archive_is_reported(tmp_path, suffix, check_refusal):
    check_refusal(tmp_path / f"a.{suffix}", "the archive is missing; download it again$")


def get_error(act: Callable[[], None]) -> str | None:
    """Return the message of the UserError that `act` raises, or None."""
    try:
        act()
    except UserError as error:
        return str(error)
    return None


@settings(max_examples=60)
@given(data=st.data())
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_damaged_archive_gives_one_line_or_all_files(tmp_path_factory, suffix, data):
    folder = tmp_path_factory.mktemp("broken")
    path = pack(folder / f"a.{suffix}", [("photos/1.jpg", b"one"), ("photos/2.jpg", b"two" * 300)])
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, min(len(content), 2_048) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    if line := get_error(lambda: unpack_photos(path, folder / "out")):
        assert "\n" not in line
        assert os.listdir(folder) == [path.name]
    else:
        assert count_files(folder / "out")[0] == 2
        assert set(os.listdir(folder)) == {path.name, "out"}


names = st.lists(
    st.sampled_from(["photos", "..", ".", "", "/", "C:", "1.jpg", "2.jpg", "e\u0301", "\\", "\0", " ", "con"]),
    min_size=1,
    max_size=4,
)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@settings(max_examples=100)
@given(paths=st.lists(names, min_size=1, max_size=4))
@pytest.mark.parametrize("suffix", ["zip", "tar"])
def test_no_name_leads_to_a_file_outside(tmp_path_factory, suffix, paths):
    folder = tmp_path_factory.mktemp("names")
    (folder / "in").mkdir()
    path = pack(folder / "in" / f"a.{suffix}", [("/".join(parts), b"x") for parts in paths])
    if line := get_error(lambda: unpack(path, "photos/*", folder / "in" / "out", files=1, max_bytes=10)):
        assert "\n" not in line
        assert os.listdir(folder / "in") == [path.name]
    else:
        assert len(os.listdir(folder / "in" / "out")) == 2  # the file and the marker
    assert os.listdir(folder) == ["in"]


def test_an_interrupted_run_leaves_nothing_and_the_next_run_removes_an_old_part(tmp_path, monkeypatch):
    archive = pack(tmp_path / "a.zip", list(PHOTOS.items()))

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            unpack_photos(archive, tmp_path / "out")
    assert os.listdir(tmp_path) == ["a.zip"]
    (tmp_path / ".out.part").mkdir()
    (tmp_path / ".out.part" / "1.jpg").write_bytes(b"half")
    unpack_photos(archive, tmp_path / "out")
    assert (tmp_path / "out" / "1.jpg").read_bytes() == b"one"
    assert sorted(os.listdir(tmp_path)) == ["a.zip", "out"]


def test_an_existing_folder_is_not_overwritten(tmp_path):
    (tmp_path / "inside" / "out").mkdir(parents=True)
    (tmp_path / "inside" / "out" / "mine.jpg").write_bytes(b"mine")
    archive = pack(tmp_path / "a.zip", list(PHOTOS.items()))
    with pytest.raises(UserError, match=r"cannot be unpacked into .* not empty"):
        unpack_photos(archive, tmp_path / "inside" / "out")
    assert os.listdir(tmp_path / "inside" / "out") == ["mine.jpg"]


def test_a_link_to_an_empty_folder_elsewhere_is_unpacked_there(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "images").symlink_to(tmp_path / "disk")
    unpack_photos(pack(tmp_path / "a.zip", list(PHOTOS.items())), tmp_path / "images")
    assert json.loads((tmp_path / "disk" / MARKER).read_text())["files"] == 2
    assert (tmp_path / "images").is_symlink()
