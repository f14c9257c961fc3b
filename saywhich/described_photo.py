"""Captions inside photo files: the description of the XMP packet of a JPEG, PNG or WebP.

All other bytes of a file stay as they are, except WebP's headers, which state sizes and contents. Pillow would encode
the pixels again, and Exiv2 rewrites Exif and comments.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from shutil import copystat

from PIL import Image

from pipeline.errors import UserError
from pipeline.runtime.files import atomic_path
from pipeline.runtime.untrusted import require_plain_file
from saywhich.xmp_packet import MAX_PACKET_BYTES, edit_packet, read_description

JPEG_XMP, JPEG_EXIF, MPF = b"http://ns.adobe.com/xap/1.0/\0", b"Exif\0\0", b"MPF\0"
PNG, PNG_XMP = b"\x89PNG\r\n\x1a\n", b"XML:com.adobe.xmp\0"
XMP_FLAG, ALPHA_FLAG = 0x04, 0x10  # flags of WebP's chunk VP8X
MAX_SEGMENT_BYTES = 2**16 - 1  # a JPEG segment states its size in 16 bits

DAMAGED = "its file is damaged; replace it"

Edit = Callable[[bytes | None], bytes]  # the photo's XMP packet, or None → its new packet


def describe_photo(photo: Path, text: str, out: Path) -> str | None:
    """Write `photo` with the description `text` to `out`, which may be the same file; return the former description.

    Times and permissions are those of `photo`. Raises UserError where the file is damaged or no JPEG, PNG or WebP.
    Raises UserError where its XMP packet cannot be read, edited or replaced.
    """
    former: str | None = None

    def edit(packet: bytes | None) -> bytes:
        nonlocal former
        former = None if packet is None else read_description(packet)
        return edit_packet(packet, text)

    try:
        content = edit_xmp(require_plain_file(photo).read_bytes(), edit)
    except UserError as error:
        raise UserError(f"{photo}: no caption can be written into it: {error}") from None
    with atomic_path(out.resolve()) as temporary:
        temporary.write_bytes(content)
        copystat(photo, temporary)
    return former


def is_copy(copy: Path, photo: Path) -> bool:
    """Return whether two photos differ in their XMP packets at most.

    Returns False where a file is damaged or no JPEG, PNG or WebP, and where its XMP packet cannot be replaced.
    """
    try:
        first, second = (edit_xmp(path.read_bytes(), lambda _: b"") for path in (copy, photo))
    except UserError:
        return False
    return first == second


def edit_xmp(content: bytes, edit: Edit) -> bytes:
    """Return a JPEG, PNG or WebP file with its XMP packet edited; raises UserError for damaged or other content."""
    try:
        if content.startswith(b"\xff\xd8\xff"):
            return _edit_jpeg(content, edit)
        if content.startswith(PNG):
            return _edit_png(content, edit)
        if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
            return _edit_webp(content, edit)
    except (struct.error, IndexError, zlib.error, OSError):
        raise UserError(DAMAGED) from None
    raise UserError("give a JPEG, PNG or WebP")


def _edit_jpeg(content: bytes, edit: Edit) -> bytes:
    """Replace the segment of XMP, or insert one after the segments of JFIF and Exif."""
    offset = insertion = 2
    packet, begin, end, after_mpf = None, 0, 0, False
    while content[offset] == 0xFF and content[offset + 1] not in (0xD9, 0xDA):
        if content[offset + 1] == 0xFF:  # a fill byte, which may precede any marker
            insertion += insertion == offset
            offset += 1
            continue
        (size,) = struct.unpack_from(">H", content, offset + 2)
        marker, body = content[offset + 1], content[offset + 4 : offset + 2 + size]
        if size < 2 or len(body) != size - 2:
            raise UserError(DAMAGED)
        if insertion == offset and (marker == 0xE0 or (marker == 0xE1 and body.startswith(JPEG_EXIF))):
            insertion = offset + 2 + size
        after_mpf |= marker == 0xE2 and body.startswith(MPF)
        if marker == 0xE1 and body.startswith(JPEG_XMP):
            if after_mpf:  # the edit would change the second image's offset from MPF, which MPF states
                raise UserError("its XMP packet stands after its list of images (MPF); remove one of them")
            packet, begin, end = body[len(JPEG_XMP) :], offset, offset + 2 + size
            break
        offset += 2 + size
    edited = JPEG_XMP + edit(packet)
    if len(edited) + 2 > MAX_SEGMENT_BYTES:
        raise UserError(
            f"its XMP packet has more than {MAX_SEGMENT_BYTES - 2 - len(JPEG_XMP)} bytes; "
            "remove the packet, or shorten the caption"
        )
    if packet is None:
        begin = end = insertion
    return content[:begin] + b"\xff\xe1" + struct.pack(">H", len(edited) + 2) + edited + content[end:]


def _edit_png(content: bytes, edit: Edit) -> bytes:
    """Replace the chunk iTXt of XMP, or insert one after IHDR."""
    offset, packet = len(PNG), None
    begin = end = offset + 12 + struct.unpack_from(">I", content, offset)[0]
    while offset < len(content):
        (size,) = struct.unpack_from(">I", content, offset)
        kind, body = content[offset + 4 : offset + 8], content[offset + 8 : offset + 8 + size]
        if len(body) != size:
            raise UserError(DAMAGED)
        if kind == b"iTXt" and body.startswith(PNG_XMP):
            packet, begin, end = _decode_itxt(body), offset, offset + 12 + size
            break
        if kind == b"IEND":
            break
        offset += 12 + size
    chunk = b"iTXt" + PNG_XMP + b"\0\0\0\0" + edit(packet)  # not compressed, no language, no translated keyword
    new_chunk = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return content[:begin] + new_chunk + content[end:]


def _decode_itxt(body: bytes) -> bytes:
    """Return the text of a PNG chunk iTXt."""
    compressed, rest = body[len(PNG_XMP)], body[len(PNG_XMP) + 2 :]
    text = rest.split(b"\0", 2)[2]
    if not compressed:
        return text
    inflate = zlib.decompressobj()
    plain = inflate.decompress(text, MAX_PACKET_BYTES)
    if inflate.unconsumed_tail:
        raise UserError(f"its XMP packet has more than {MAX_PACKET_BYTES} bytes; remove the packet")
    return plain


def _edit_webp(content: bytes, edit: Edit) -> bytes:
    """Replace the chunk of XMP, or append one; a simple file becomes an extended file with the header VP8X."""
    file_end = 8 + struct.unpack_from("<I", content, 4)[0]
    if file_end > len(content):
        raise UserError(DAMAGED)
    chunks, offset = [], 12
    while offset < file_end:
        kind, size = content[offset : offset + 4], struct.unpack_from("<I", content, offset + 4)[0]
        end = offset + 8 + size + size % 2
        if end > file_end:
            raise UserError(DAMAGED)
        chunks.append((kind, content[offset + 8 : offset + 8 + size], content[offset:end]))
        offset = end
    packet = next((body for kind, body, _ in chunks if kind == b"XMP "), None)
    new_chunk = _pack_chunk(b"XMP ", edit(packet))
    parts = [new_chunk if kind == b"XMP " else raw for kind, _, raw in chunks]
    parts += [new_chunk] if packet is None else []
    if chunks and chunks[0][0] == b"VP8X":
        flags, rest = chunks[0][1][0], chunks[0][1][1:]
        parts[0] = _pack_chunk(b"VP8X", bytes([flags | XMP_FLAG]) + rest)
    else:
        with Image.open(BytesIO(content)) as image:
            alpha, (width, height) = image.mode == "RGBA", image.size
        flags = XMP_FLAG | (ALPHA_FLAG if alpha else 0)
        sides = struct.pack("<I", width - 1)[:3] + struct.pack("<I", height - 1)[:3]
        parts.insert(0, _pack_chunk(b"VP8X", bytes([flags, 0, 0, 0]) + sides))
    body = b"WEBP" + b"".join(parts)
    return b"RIFF" + struct.pack("<I", len(body)) + body + content[file_end:]


def _pack_chunk(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)
