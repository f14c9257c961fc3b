"""The description in an XMP packet: dc:description, which IPTC's photo metadata standard calls the caption.

An edit replaces bytes at the positions that the XML parser (expat) reports, so that the rest of the packet stays.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from xml.parsers.expat import ExpatError, ParserCreate
from xml.sax.saxutils import escape, quoteattr

from pipeline.errors import UserError, summarise_error

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
DUBLIN_CORE = "http://purl.org/dc/elements/1.1/"
MAX_PACKET_BYTES = 2**24  # maximum bytes of a packet
EMPTY_PACKET = (
    '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n<x:xmpmeta xmlns:x="adobe:ns:meta/">\n'
    f'<rdf:RDF xmlns:rdf="{RDF}">\n</rdf:RDF>\n</x:xmpmeta>\n<?xpacket end="w"?>'
).encode()


def edit_packet(packet: bytes | None, text: str) -> bytes:
    """Return the photo's XMP packet (UTF-8) with the description `text`; `packet` is None for a photo without one.

    The description is one line, without characters that XML cannot hold. Raises UserError for a packet that cannot be
    read or edited.
    """
    packet = EMPTY_PACKET if packet is None else packet
    content = _parse(packet)
    if content.end is None:
        raise UserError("its XMP packet has no rdf:RDF with an end tag; repair or remove the packet")
    element = (
        f'<dc:description xmlns:rdf="{RDF}" xmlns:dc="{DUBLIN_CORE}"><rdf:Alt><rdf:li xml:lang="x-default">'
        f"{escape(_strip_illegal(text))}</rdf:li></rdf:Alt></dc:description>"
    )
    spans = content.descriptions
    if not spans:
        element = (
            f'<rdf:Description rdf:about={quoteattr(content.about)} xmlns:rdf="{RDF}">{element}</rdf:Description>\n'
        )
        spans = [(content.end, content.end)]
    ends = [0, *(last for _, last in spans)]
    remainders = [packet[end:first] for end, (first, _) in zip(ends, spans, strict=False)]
    # the new element replaces the first description; other descriptions are removed
    edited = remainders[0] + element.encode() + b"".join(remainders[1:]) + packet[ends[-1] :]
    if _parse(edited).text != _strip_illegal(text):
        raise UserError("its XMP packet cannot be edited; repair or remove the packet")
    return edited


def read_description(packet: bytes) -> str | None:
    """Return the first description in an XMP packet, or None; raises UserError for a packet that cannot be read."""
    return _parse(packet).text


@dataclass
class _PacketContent:
    """Content of a packet that an edit needs, with positions in bytes."""

    descriptions: list[tuple[int, int]] = field(default_factory=list)  # start and end of outermost dc:description
    end: int | None = None  # start of the end tag of rdf:RDF
    about: str = ""  # rdf:about, which is the same for all rdf:Description elements of a packet
    text: str | None = None  # the first description


def _parse(packet: bytes) -> _PacketContent:
    if len(packet) > MAX_PACKET_BYTES:
        raise UserError(f"its XMP packet has more than {MAX_PACKET_BYTES} bytes; remove the packet")
    content, parser = _PacketContent(), ParserCreate("utf-8", " ")
    starts: list[int] = []  # positions of the start tags of open elements
    depth = 0  # number of open dc:description elements
    childless = False  # whether nothing followed the last start tag
    pieces: list[str] | None = None  # pieces of the first description's text

    def open_element(name: str, attributes: dict[str, str]) -> None:
        nonlocal pieces, childless, depth
        childless = True
        starts.append(parser.CurrentByteIndex)
        depth += name == f"{DUBLIN_CORE} description"
        if name == f"{RDF} Description":
            content.about = content.about or attributes.get(f"{RDF} about", "")
        if name == f"{RDF} li" and content.text is None and depth:
            pieces = []

    def close_element(name: str) -> None:
        nonlocal pieces, childless, depth
        first, position = starts.pop(), parser.CurrentByteIndex
        empty = childless and packet[position - 2 : position] == b"/>"  # expat reports the end of <a/> behind it
        childless = False
        depth -= name == f"{DUBLIN_CORE} description"
        if name == f"{DUBLIN_CORE} description" and not depth:
            content.descriptions.append((first, position if empty else packet.index(b">", position) + 1))
        elif name == f"{RDF} RDF" and not empty:
            content.end = position
        elif name == f"{RDF} li" and pieces is not None:
            content.text, pieces = "".join(pieces), None

    def add_text(text: str) -> None:
        nonlocal childless
        childless = False
        if pieces is not None:
            pieces.append(text)

    def refuse_doctype(*_: object) -> None:
        raise UserError("its XMP packet declares a document type, which XMP does not allow; remove the declaration")

    parser.StartElementHandler, parser.EndElementHandler = open_element, close_element
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = add_text, refuse_doctype
    try:
        parser.Parse(packet.rstrip(b"\0"), True)
    except (ExpatError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"its XMP packet is no XML ({summarise_error(error)}); repair or remove the packet") from None
    return content


def _strip_illegal(text: str) -> str:
    """Return the text in one line, without characters that XML cannot hold."""
    plain = "".join(" " if unicodedata.category(each) in ("Cc", "Cs") else each for each in text)
    return " ".join(plain.replace("\ufffe", " ").replace("\uffff", " ").split())
