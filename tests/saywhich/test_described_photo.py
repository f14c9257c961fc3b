"""Descriptions in XMP: the written text, all other bytes, and refused files."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as Xml
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms, PngImagePlugin

from pipeline.errors import UserError
from saywhich.cli import main
from saywhich.described_photo import JPEG_XMP, describe_photo, edit_xmp, is_copy
from saywhich.xmp_packet import DUBLIN_CORE, RDF, edit_packet, read_description

TEXT = "ein “roter” <Ball> & zwei Hunde 犬"
LIGHTROOM = (
    '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n<x:xmpmeta xmlns:x="adobe:ns:meta/">'
    f'<r:RDF xmlns:r="{RDF}"><r:Description r:about="uuid:1" xmlns:xmp="http://ns.adobe.com/xap/1.0/" '
    f'xmp:Rating="5" xmlns:d="{DUBLIN_CORE}"><d:subject><r:Bag><r:li>beach</r:li></r:Bag></d:subject>'
    '<d:description><r:Alt><r:li xml:lang="x-default">My &lt;own&gt; words</r:li><r:li xml:lang="de">Meine</r:li>'
    "</r:Alt></d:description></r:Description></r:RDF></x:xmpmeta>\n" + 20 * " " + '<?xpacket end="w"?>'
).encode()


# littleCMS writes the creation time of a profile into its bytes 24 to 35
PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
PROFILE = PROFILE[:24] + bytes(12) + PROFILE[36:]


def make_photo(kind: str) -> bytes:
    """Return a photo; `kind` is a format, or WEBP with a variant.

    The kinds "JPEG", "PNG" and "WEBP metadata" have a colour profile and Exif.
    """
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (21, 30, 3), np.uint8))
    exif, out = Image.Exif(), BytesIO()
    exif[0x010E], exif[0x0112] = "camera's own", 6
    metadata = {"icc_profile": PROFILE, "exif": exif}
    form, _, variant = kind.partition(" ")
    if form == "JPEG":
        image.save(out, form, progressive=True, comment=b"a comment", **metadata)
    elif form == "PNG":
        info = PngImagePlugin.PngInfo()
        info.add_text("Author", "somebody")
        image.save(out, form, pnginfo=info, **metadata)
    else:
        metadata = metadata if variant == "metadata" else {}
        animation = (
            {"save_all": True, "append_images": [image.rotate(90)], "duration": 100} if variant == "film" else {}
        )
        image = image.convert("RGBA") if variant == "alpha" else image
        if variant == "alpha":
            image.putalpha(Image.fromarray(np.arange(21 * 30, dtype=np.uint8).reshape(21, 30)))
        image.save(out, form, lossless=variant != "lossy", **metadata, **animation)
    return out.getvalue()


KINDS = ("JPEG", "PNG", "WEBP", "WEBP lossy", "WEBP alpha", "WEBP metadata", "WEBP film")


def add_lightroom_packet(content: bytes) -> bytes:
    return edit_xmp(content, lambda _: LIGHTROOM)


def split_parts(content: bytes) -> list[bytes]:
    """Return a file's segments or chunks, found without the functions under test."""
    found, offset = [], 2
    if content.startswith(b"\xff\xd8"):
        while content[offset + 1] != 0xDA:
            end = offset + 2 + struct.unpack_from(">H", content, offset + 2)[0]
            found.append(content[offset:end])
            offset = end
        return [content[:2], *found, content[offset:]]
    png = content.startswith(b"\x89PNG")
    offset = 8 if png else 12
    while offset < len(content):
        size = struct.unpack_from(">I" if png else "<I", content, offset + (0 if png else 4))[0]
        end = offset + size + (12 if png else 8 + size % 2)
        found.append(content[offset:end])
        offset = end
    return found


def is_xmp(part: bytes) -> bool:
    return part[4:].startswith((JPEG_XMP, b"iTXtXML:com.adobe.xmp\0")) or part.startswith(b"XMP ")


def read_packet(content: bytes) -> bytes:
    with Image.open(BytesIO(content)) as image:
        return bytes(image.info.get("xmp") or image.info["XML:com.adobe.xmp"].encode())


@pytest.mark.parametrize("has_packet", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_description_is_written_and_all_other_bytes_stay(tmp_path, kind, has_packet):
    content = add_lightroom_packet(make_photo(kind)) if has_packet else make_photo(kind)
    photo, copy = tmp_path / "photo", tmp_path / "copy"
    photo.write_bytes(content)
    photo.chmod(0o640)
    assert describe_photo(photo, TEXT, copy) == ("My <own> words" if has_packet else None)
    described = copy.read_bytes()
    assert photo.read_bytes() == content
    assert (copy.stat().st_mode, copy.stat().st_mtime) == (photo.stat().st_mode, photo.stat().st_mtime)
    assert read_description(read_packet(described)) == TEXT
    other_parts = [part for part in split_parts(described) if not is_xmp(part)]
    assert sum(map(is_xmp, split_parts(described))) == 1
    if kind in KINDS[2:5] and not has_packet:  # a simple file gets an extended file's header
        assert other_parts.pop(0)[:9] == b"VP8X\x0a\0\0\0" + (b"\x14" if kind == "WEBP alpha" else b"\x04")
    expected = [part for part in split_parts(content) if not is_xmp(part)]
    if kind in KINDS[5:] and not has_packet:
        expected[0] = expected[0][:8] + bytes([expected[0][8] | 4]) + expected[0][9:]
    assert other_parts == expected
    with Image.open(BytesIO(content)) as first, Image.open(BytesIO(described)) as second:
        assert (first.mode, first.size) == (second.mode, second.size)
        for frame in range(getattr(first, "n_frames", 1)):
            first.seek(frame)
            second.seek(frame)
            assert first.tobytes() == second.tobytes()
        assert first.info.get("icc_profile") == second.info.get("icc_profile")
        assert dict(first.getexif()) == dict(second.getexif())
    assert is_copy(copy, photo)
    assert describe_photo(copy, "again", copy) == TEXT
    assert read_description(read_packet(copy.read_bytes())) == "again"
    assert is_copy(copy, photo)


def read_texts(packet: bytes) -> list[tuple[str | None, list[tuple[str | None, str | None]]]]:
    """Return the resource of each rdf:Description that has a description, and its texts by language."""
    found = []
    for each in Xml.fromstring(packet.decode().partition("?>")[2]).iter(f"{{{RDF}}}Description"):
        for description in each.findall(f"{{{DUBLIN_CORE}}}description"):
            items = description.findall(f"{{{RDF}}}Alt/{{{RDF}}}li")
            texts = [(text.get("{http://www.w3.org/XML/1998/namespace}lang"), text.text) for text in items]
            found.append((each.get(f"{{{RDF}}}about"), texts))
    return found


def test_all_other_bytes_of_a_packet_stay():
    edited = edit_packet(LIGHTROOM, TEXT)
    first, last = LIGHTROOM.index(b"<d:description>"), LIGHTROOM.index(b"</r:Description>")
    assert edited.startswith(LIGHTROOM[:first])
    assert edited.endswith(LIGHTROOM[last:])
    assert read_texts(edited) == [("uuid:1", [("x-default", TEXT)])]
    assert edit_packet(edited, TEXT) == edited
    plain = LIGHTROOM[:first] + LIGHTROOM[last:]
    added = edit_packet(plain, TEXT)
    end = plain.index(b"</r:RDF>")
    assert (added[:end], added[-len(plain[end:]) :]) == (plain[:end], plain[end:])
    assert read_texts(added) == [("uuid:1", [("x-default", TEXT)])]


@pytest.mark.parametrize(
    "properties",
    ["<d:description/>", "<d:description/><d:description></d:description>", "<d:description>/></d:description>"],
)
def test_one_description_replaces_empty_and_repeated_ones(properties):
    packet = (
        f'<r:RDF xmlns:r="{RDF}" xmlns:d="{DUBLIN_CORE}"><r:Description><a/>{properties}<b/></r:Description></r:RDF>'
    )
    edited = edit_packet(packet.encode(), TEXT).decode()
    assert read_texts(f"?>{edited}".encode()) == [(None, [("x-default", TEXT)])]
    assert edited.startswith(packet[: packet.index("<d:description")])
    assert edited.endswith("</dc:description><b/></r:Description></r:RDF>")


def test_the_namespaces_are_those_of_the_standard():
    """ISO 16684-1: dc is Dublin Core's element set, and a text without a language has x-default."""
    root = Xml.fromstring(edit_packet(None, "a ball").split(b"?>", 1)[1].rsplit(b"<?", 1)[0])
    rdf = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
    dc = "{http://purl.org/dc/elements/1.1/}"
    (item,) = root.findall(f"{rdf}RDF/{rdf}Description/{dc}description/{rdf}Alt/{rdf}li")
    assert item.text == "a ball"
    assert item.attrib == {"{http://www.w3.org/XML/1998/namespace}lang": "x-default"}


def test_a_device_is_no_photo(tmp_path):
    (tmp_path / "a.png").symlink_to("/dev/zero")  # reading it would not end
    with pytest.raises(UserError, match=r"a.png: no caption can be written into it: .*a.png: expected a plain file"):
        describe_photo(tmp_path / "a.png", TEXT, tmp_path / "b.png")


def test_large_packets_are_edited_up_to_the_limit():
    """Deeply nested elements and many descriptions are edited; no time is measured."""
    names = f'<x:x xmlns:x="x" xmlns:rdf="{RDF}" xmlns:dc="{DUBLIN_CORE}"><rdf:RDF>'
    deep, many = (
        30_000 * "<x:x>" + 30_000 * "<rdf:li/>" + 30_000 * "</x:x>",
        100_000 * "<dc:description>a</dc:description>",
    )
    nested = "<dc:description>a<dc:description>b</dc:description></dc:description>"
    for properties in (deep, many, nested):
        edited = edit_packet(f"{names}{properties}</rdf:RDF></x:x>".encode(), TEXT)
        assert read_description(edited) == TEXT
        assert edited.count(b"</dc:description>") == 1
    with pytest.raises(UserError, match="its XMP packet has more than 16777216 bytes"):
        edit_packet(f"{names}{2**24 * ' '}</rdf:RDF></x:x>".encode(), TEXT)


def test_a_caption_is_one_line_of_text_that_xml_can_hold():
    assert read_description(edit_packet(None, "a\x00b\n\ud800 ]]> \ufffe&amp;")) == "a b ]]> &amp;"


@pytest.mark.parametrize(
    ("packet", "message"),
    [
        (b"<x>", "is no XML"),
        (b"<!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>", "declares a document type"),
        (b"<x/>", "no rdf:RDF with an end tag"),
        (f'<r:RDF xmlns:r="{RDF}"/>'.encode(), "no rdf:RDF with an end tag"),
    ],
)
def test_a_damaged_packet_is_reported_in_one_line_and_nothing_is_written(tmp_path, packet, message):
    photo = tmp_path / "photo.png"
    photo.write_bytes(edit_xmp(make_photo("PNG"), lambda _: packet))
    content = photo.read_bytes()
    with pytest.raises(UserError, match=message) as caught:
        describe_photo(photo, TEXT, photo)
    assert str(caught.value).startswith(f"{photo}: no caption can be written into it: its XMP packet")
    assert photo.read_bytes() == content


def test_a_compressed_packet_is_read_and_not_beyond_its_limit():
    def insert_compressed_packet(packet):
        body = b"iTXtXML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(packet)
        chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
        return make_photo("PNG")[:33] + chunk + make_photo("PNG")[33:]

    assert (
        read_description(read_packet(edit_xmp(insert_compressed_packet(LIGHTROOM), lambda own: own)))
        == "My <own> words"
    )
    with pytest.raises(UserError, match="more than 16777216 bytes"):
        edit_xmp(insert_compressed_packet(bytes(2**24 + 1)), lambda own: own)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_damaged_files_and_other_formats_are_reported_in_one_line(kind):
    for length in (12, 16, 25, 60):
        with pytest.raises(UserError, match=r"^its file is damaged; replace it$"):
            edit_xmp(make_photo(kind)[:length], lambda _: LIGHTROOM)
    with pytest.raises(UserError, match="give a JPEG, PNG or WebP"):
        edit_xmp(b"GIF89a", lambda _: LIGHTROOM)
    with pytest.raises(UserError, match="has more than"):
        edit_xmp(make_photo("JPEG"), lambda _: bytes(2**16))


def test_a_list_of_images_before_the_packet_is_refused():
    """The list has offsets of further images from its own position, so the bytes after it must keep their length."""
    mpf = b"\xff\xe2\x00\x08MPF\0ab"
    content = add_lightroom_packet(make_photo("JPEG"))
    start = content.index(b"\xff\xe1" + struct.pack(">H", len(JPEG_XMP + LIGHTROOM) + 2) + JPEG_XMP)
    with pytest.raises(UserError, match="after its list of images"):
        edit_xmp(content[:start] + mpf + content[start:], lambda own: own)
    plain = make_photo("JPEG")
    first = plain.index(b"\xff\xe2")
    found = edit_xmp(plain[:first] + mpf + plain[first:] + b"second image", lambda _: LIGHTROOM)
    assert found.index(JPEG_XMP) < found.index(mpf)
    assert found.endswith(b"second image")


def test_fill_bytes_before_a_marker_are_kept():
    """Any marker of a JPEG may be preceded by bytes 0xFF (ITU-T T.81, B.1.1.2)."""
    plain = make_photo("JPEG")
    for own in (plain, add_lightroom_packet(plain)):
        starts = [sum(map(len, split_parts(own)[:n])) for n in range(1, len(split_parts(own)) - 1)]
        for start in starts:
            filled = own[:start] + b"\xff\xff" + own[start:]
            edited = edit_xmp(filled, lambda packet: edit_packet(packet, TEXT))
            assert edited.count(JPEG_XMP) == 1
            assert len(edited) - len(filled) == len(edit_xmp(own, lambda packet: edit_packet(packet, TEXT))) - len(own)
            with Image.open(BytesIO(own)) as first, Image.open(BytesIO(edited)) as second:
                assert first.tobytes() == second.tobytes()
                assert read_description(second.info["xmp"]) == TEXT


def test_the_command_writes_copies(photos, model_option, capsys):
    (photos / "more").mkdir()
    (photos / "more/d.png").write_bytes(make_photo("PNG"))
    Image.new("RGB", (40, 50), "red").save(photos / "e.gif")
    out = photos.parent / "described"
    outputs = ["--xmp", str(out), "--csv", "../captions.csv"]
    assert main(["caption", "a.jpg", "more", "e.gif", *model_option, *outputs]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "e.gif: no caption can be written into it: give a JPEG, PNG or WebP"
    )
    captions = dict(line.split(",") for line in Path("../captions.csv").read_text().splitlines()[1:])
    for name in ("a.jpg", "more/d.png"):
        assert read_description(read_packet((out / name).read_bytes())) == captions[name]
        assert is_copy(out / name, photos / name)
    assert {path.name for path in out.rglob("*")} == {"a.jpg", "more", "d.png"}
    assert main(["caption", "a.jpg", "more", *model_option, "--xmp", str(out)]) == 0
    (out / "a.jpg").write_bytes(make_photo("JPEG"))
    assert main(["caption", "a.jpg", *model_option, "--xmp", str(out)]) == 1
    error = capsys.readouterr().err
    assert "a.jpg: expected a copy of a.jpg, found another file; give another folder to --xmp" in error
    assert (out / "a.jpg").read_bytes() == make_photo("JPEG")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([".", "--xmp", "described"], "--xmp described: lies within {}, whose photos are captioned; give a folder"),
        (["a.jpg", "--xmp", "."], "--xmp .: a.jpg would be replaced by its copy; give another folder, or --in-place"),
    ],
)
def test_copies_replace_no_photo(photos, model_option, capsys, arguments, line):
    content = (photos / "a.jpg").read_bytes()
    assert main(["caption", *arguments, *model_option]) == 2
    found = capsys.readouterr()
    assert found.err.startswith(line.format(photos))
    assert (found.out, found.err.count("\n")) == ("", 1)
    assert (photos / "a.jpg").read_bytes() == content


def test_a_copy_replaces_no_other_photo_of_the_command_and_a_link_leads_into_no_captioned_folder(
    photos, model_option, capsys
):
    (photos / "more").mkdir()
    (photos / "more/a.jpg").write_bytes(edit_xmp((photos / "a.jpg").read_bytes(), lambda _: LIGHTROOM))
    content = (photos / "more/a.jpg").read_bytes()
    assert main(["caption", "a.jpg", "more/a.jpg", *model_option, "--xmp", "more"]) == 2
    line = "--xmp more: more/a.jpg would be replaced by the copy of a.jpg; give another folder, or --in-place\n"
    assert capsys.readouterr().err == line
    assert (photos / "more/a.jpg").read_bytes() == content
    (photos.parent / "link").symlink_to(photos / "more")
    assert main(["caption", ".", *model_option, "--xmp", "../link"]) == 2
    assert capsys.readouterr().err.startswith(f"--xmp ../link: lies within {photos}, whose photos are captioned; ")


def test_photos_are_described_in_place_on_demand(photos, model_option, capsys):
    before = (photos / "a.jpg").read_bytes()
    (photos / "b.jpg").write_bytes(add_lightroom_packet(make_photo("JPEG")))
    Path("link.jpg").symlink_to("a.jpg")
    assert main(["caption", "link.jpg", "b.jpg", *model_option, "--in-place"]) == 0
    printed = capsys.readouterr()
    captions = dict(line.split("\t") for line in printed.out.splitlines())
    assert "note: b.jpg: the description was 'My <own> words'" in printed.err
    assert Path("link.jpg").is_symlink()
    after = (photos / "a.jpg").read_bytes()
    assert after != before
    assert edit_xmp(after, lambda _: b"") == edit_xmp(before, lambda _: b"")
    assert read_description(read_packet(after)) == captions["link.jpg"]
