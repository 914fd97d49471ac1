"""Looks into an Office file, which is a zip archive, before a library opens it: what it is, and whether it can be opened."""

from io import BytesIO
from typing import Literal
from zipfile import BadZipFile, ZipFile, ZipInfo

from toolgate.documents.formats.blocks import UnreadableDocument

OfficeKind = Literal["docx", "xlsx", "pptx"]
MAX_ENTRIES = 10_000
MAX_UNPACKED_BYTES = 200_000_000
"""Of all parts together, as the archive says. No library reads more of a part than the archive says that it has."""
MAX_XML_BYTES = 100_000_000
XML_PARTS = (".xml", ".rels", ".vml")
MAIN_PARTS: dict[str, OfficeKind] = {
    "word/document.xml": "docx", "xl/workbook.xml": "xlsx", "ppt/presentation.xml": "pptx",
}  # fmt: skip


def office_kind(data: bytes) -> OfficeKind:
    """The kind of an Office file, whatever its name says. Raises UnreadableDocument for one that is none, or that would take
    too much to unpack."""
    try:
        with ZipFile(BytesIO(data)) as archive:
            entries = archive.infolist()
            _check_sizes(entries)
            names = {entry.filename for entry in entries}
            kind = next((kind for part, kind in MAIN_PARTS.items() if part in names), None)
            if kind is None:
                raise UnreadableDocument("it is a zip archive, but not a document of Word, Excel or PowerPoint")
            for entry in entries:
                if entry.filename.lower().endswith(XML_PARTS):
                    _check_xml(archive, entry)
    except (BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise UnreadableDocument("it is a damaged or encrypted Office file") from error
    return kind


def _check_sizes(entries: list[ZipInfo]) -> None:
    if len(entries) > MAX_ENTRIES:
        raise UnreadableDocument(f"its archive has more than {MAX_ENTRIES:,} parts")
    if sum(entry.file_size for entry in entries) > MAX_UNPACKED_BYTES:
        raise UnreadableDocument(f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
    if sum(entry.file_size for entry in entries if entry.filename.lower().endswith(XML_PARTS)) > MAX_XML_BYTES:
        raise UnreadableDocument(f"its text unpacks to more than {MAX_XML_BYTES:,} bytes")
    if any(entry.flag_bits & 1 for entry in entries):
        raise UnreadableDocument("it is encrypted")


def _check_xml(archive: ZipFile, entry: ZipInfo) -> None:
    """Refuses XML with a document type: that is where entities are declared, and Office writes none. In UTF-16, which Office
    does not write either, it could not be seen."""
    with archive.open(entry) as part:
        tail = b""
        while piece := part.read(1_000_000):
            if b"\0" in piece:
                raise UnreadableDocument("a part of it is not XML in UTF-8")
            if b"<!DOCTYPE" in tail + piece or b"<!ENTITY" in tail + piece:
                raise UnreadableDocument("a part of it declares a document type, which Office files do not")
            tail = piece[-16:]
