"""Files that are made to harm whoever reads them: each is refused, or read within the limits, and never more than that."""

import asyncio
import struct
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from time import thread_time
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import document_files as files
from tests.examples import at_most
from toolgate.documents.formats.blocks import MAX_TEXT_CHARS, Block, DocumentText, UnreadableDocument
from toolgate.documents.formats.html import read_html
from toolgate.documents.formats.markdown import read_markdown
from toolgate.documents.passages import MAX_PASSAGE_CHARS, passages
from toolgate.documents.reader import DocumentContent, DocumentReader
from toolgate.errors import CallError, InvalidInput, ToolgateError
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.jail import MB, ResourceLimits

QUICK = {
    "test_an_archive_that_unpacks_to_too_much_is_refused",
    "test_no_file_of_the_host_comes_in_by_an_entity",
    "test_the_reader_reaches_neither_network_nor_files",
    "test_what_the_reader_says_is_not_believed",
    "test_no_line_of_markdown_takes_long",
    "test_no_bytes_break_the_readers_of_text",
    "test_a_text_in_pieces_is_the_whole_text",
}

pytestmark = pytest.mark.requirement("BUILTIN-4")
SECRET = "tenant-secret-4711"


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    sandbox = Sandbox()
    yield sandbox
    await sandbox.close()


@pytest.fixture
def reader(sandbox: Sandbox) -> DocumentReader:
    """Reads within less than the usual: what is stopped here is stopped there, later."""
    return DocumentReader(
        sandbox, ResourceLimits(seconds=10, memory=300 * MB, disk=MB, files=100, processes=8, output=32 * MB)
    )


async def refused(reader: DocumentReader, name: str, data: bytes) -> str:
    with pytest.raises(InvalidInput) as caught:
        await asyncio.wait_for(reader.read(name, data), 60)
    assert "toolgate" not in caught.value.message
    return caught.value.message


def texts(content: DocumentContent) -> str:
    return "\n".join(block.text for block in content.blocks)


# -- archives


def bomb(megabytes: int) -> bytes:
    """A workbook with a part that unpacks to far more than it is."""
    return files.with_part(files.xlsx(), "xl/worksheets/sheet1.xml", b" " * megabytes * 1_000_000)


async def test_an_archive_that_unpacks_to_too_much_is_refused(reader: DocumentReader) -> None:
    assert "unpacks to more than" in await refused(reader, "a.xlsx", bomb(101))


async def test_an_archive_that_lies_about_its_sizes_is_refused(reader: DocumentReader) -> None:
    lying = bytearray(bomb(101))
    place = lying.find(b"PK\x01\x02", lying.find(b"PK\x01\x02") + 1)
    while place >= 0:  # each entry of the directory says that it has ten bytes
        struct.pack_into("<I", lying, place + 24, 10)
        place = lying.find(b"PK\x01\x02", place + 1)
    assert "damaged" in await refused(reader, "a.xlsx", bytes(lying))


async def test_an_archive_of_very_many_parts_is_refused(reader: DocumentReader) -> None:
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"<x/>")
        for number in range(10_001):
            archive.writestr(f"{number}", b"")
    assert "10,000 parts" in await refused(reader, "a.docx", file.getvalue())


async def test_an_archive_that_is_no_document_is_refused(reader: DocumentReader) -> None:
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        archive.writestr("../../etc/passwd", b"x")
    assert "not a document of Word" in await refused(reader, "a.zip", file.getvalue())


# -- XML

LAUGHS = b"".join(b'<!ENTITY l%d "%s">' % (number, b"&l%d;" % (number - 1) * 10) for number in range(1, 10))
BILLION = b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "ha">' + LAUGHS + b"]>"
OFFICE = {"docx": (files.docx, "word/document.xml"), "xlsx": (files.xlsx, "xl/workbook.xml"),
          "pptx": (files.pptx, "ppt/presentation.xml")}  # fmt: skip


@pytest.mark.parametrize("kind", OFFICE)
async def test_entities_are_not_expanded(reader: DocumentReader, kind: str) -> None:
    make, part = OFFICE[kind]
    message = await refused(reader, f"a.{kind}", files.with_part(make(), part, BILLION + b"<x>&l9;</x>"))
    assert "document type" in message


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
async def test_no_file_of_the_host_comes_in_by_an_entity(reader: DocumentReader, tmp_path: Path, encoding: str) -> None:
    (tmp_path / "secret").write_text(SECRET)
    body = "<w:body><w:p><w:r><w:t>&x;</w:t></w:r></w:p></w:body>"
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    declared = f'<!DOCTYPE d [<!ENTITY x SYSTEM "file://{tmp_path}/secret">]>'
    xml = f'<?xml version="1.0" encoding="{encoding}"?>{declared}<w:document xmlns:w="{space}">{body}</w:document>'
    message = await refused(reader, "a.docx", files.with_part(files.docx(), "word/document.xml", xml.encode(encoding)))
    assert SECRET not in message


async def test_xml_that_is_nested_very_deeply_is_refused(reader: DocumentReader) -> None:
    deep = b"<a>" * 200_000 + b"</a>" * 200_000
    await refused(reader, "a.docx", files.with_part(files.docx(), "word/document.xml", deep))


# -- large and endless


async def test_a_row_far_down_and_a_column_far_right_cost_nothing(reader: DocumentReader) -> None:
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    rows = (
        '<row r="1"><c r="XFD1"><v>1</v></c><c r="A1"><v>2</v></c></row><row r="1048576"><c r="A1048576"><v>3</v></c></row>'
    )
    sheet = f'<worksheet xmlns="{space}"><sheetData>{rows}</sheetData></worksheet>'
    content = await reader.read("a.xlsx", files.with_part(files.xlsx(), "xl/worksheets/sheet1.xml", sheet.encode()))
    assert "Grace Murray" in texts(content)


async def test_more_text_than_is_taken_is_cut_and_told(reader: DocumentReader) -> None:
    page = b"<p>" + b"word " * 100 + b"</p>\n"
    content = await reader.read("a.html", b"<html>" + page * 3_000)
    assert content.truncated
    assert sum(len(block.text) for block in content.blocks) == MAX_TEXT_CHARS
    plain = await reader.read("a.txt", b"x" * (MAX_TEXT_CHARS + 1))
    assert (plain.truncated, len(plain.blocks[0].text)) == (True, MAX_TEXT_CHARS)


async def test_html_that_is_nested_very_deeply_is_read(reader: DocumentReader) -> None:
    content = await reader.read("a.html", b"<html>" + b"<div>" * 100_000 + b"needle" + b"</div>" * 100_000)
    assert texts(content) == "needle"


async def test_a_page_that_refers_to_itself_ends(reader: DocumentReader) -> None:
    loop = (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[2 0 R]/Count 1000000000>>endobj\n"
        b"trailer<</Root 1 0 R>>"
    )
    with pytest.raises(ToolgateError):
        await asyncio.wait_for(reader.read("a.pdf", loop), 60)


async def test_a_reader_that_takes_too_long_is_ended(sandbox: Sandbox) -> None:
    quick = DocumentReader(sandbox, ResourceLimits(seconds=0.05, memory=300 * MB))
    assert "too much time" in await refused(quick, "a.html", files.HTML)


async def test_a_reader_that_takes_too_much_memory_is_ended(sandbox: Sandbox) -> None:
    small = DocumentReader(sandbox, ResourceLimits(seconds=20, memory=40 * MB))
    with pytest.raises((InvalidInput, CallError)) as caught:
        await small.read("a.html", b"<html>" + b"<p>word</p>" * 1_000_000)
    assert "memory" in str(caught.value)


async def test_the_reader_reaches_neither_network_nor_files(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As if a file had taken over the library that reads it. The control shows that the program did run."""
    (tmp_path / "secret").write_text(SECRET)
    monkeypatch.setenv("TOOLGATE_SECRET_KEY", SECRET)
    program = tmp_path / "reader.py"
    program.write_text(f"""
import json, os, socket
def attempt(act):
    try:
        return repr(act())
    except Exception as error:
        return type(error).__name__
tries = {{
    "control": attempt(lambda: 6 * 7),
    "file": attempt(lambda: open({str(tmp_path / "secret")!r}).read()),
    "shadow": attempt(lambda: open("/etc/shadow").read()),
    "network": attempt(lambda: socket.create_connection(("127.0.0.1", 22), 1)),
    "program": attempt(lambda: os.execv("/bin/true", ["true"])),
    "environment": attempt(lambda: sorted(os.environ)),
}}
print(json.dumps({{"kind": "html", "blocks": [[json.dumps(tries), -1, None, None, 10**30]]}}))
""")
    monkeypatch.setattr("toolgate.documents.reader.JAILED_READER", program)
    content = await DocumentReader(sandbox).read("a.html", b"<html>")
    [block] = content.blocks
    assert (block.page, block.row) == (None, None)
    assert '"control": "42"' in block.text
    assert SECRET not in block.text
    assert "root:" not in block.text
    assert "socket.socket" not in block.text
    assert "TOOLGATE" not in block.text


SAID = ("", "{", "[]", '{"kind": "exe", "blocks": []}', '{"kind": "pdf", "blocks": [["x"]]}', '{"kind": "pdf", "blocks": 1}')


@pytest.mark.parametrize("said", SAID)
async def test_what_the_reader_says_is_not_believed(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str
) -> None:
    program = tmp_path / "reader.py"
    program.write_text(f"print({said!r})")
    monkeypatch.setattr("toolgate.documents.reader.JAILED_READER", program)
    try:
        content = await DocumentReader(sandbox).read("a.html", b"<html>")
    except CallError as error:
        assert error.code == "SANDBOX_ERROR"
    else:
        assert content.blocks == [Block("x")]


# -- parsing


@pytest.mark.parametrize(
    "line",
    [b"# " + b" " * 2_000_000 + b"x", b"#" * 2_000_000, b"=" * 2_000_000, b"a\n" + b"- " * 1_000_000, b"`" * 2_000_000],
)
def test_no_line_of_markdown_takes_long(line: bytes) -> None:
    text, begun = DocumentText(), thread_time()
    with text.limited():
        read_markdown(line, text)
    assert thread_time() - begun < 5


@given(st.binary(max_size=3_000))
@at_most(60)
def test_no_bytes_break_the_readers_of_text(data: bytes) -> None:
    text = DocumentText()
    with text.limited():
        read_html(data, text)
    try:
        read_markdown(data, text)
    except UnreadableDocument as error:
        assert "text" in str(error)
    for block in text.blocks:
        block.text.encode()
        assert block.text.strip()


@given(st.lists(st.tuples(st.text(min_size=1, max_size=3_000), st.sampled_from([None, 1, 2])), max_size=12))
@at_most(60)
def test_every_word_is_in_a_passage_of_its_own_page(parts: list[tuple[str, int | None]]) -> None:
    text = DocumentText()
    for part, page in parts:
        text.add(part, page=page)
    cut = list(passages(text.blocks))
    assert all(0 < len(one.text) <= MAX_PASSAGE_CHARS for one in cut)
    for block in text.blocks:
        here = "\n".join(one.text for one in cut if one.page == block.page)
        for word in block.text.split():
            if len(word) < 50:
                assert word in here


@given(st.text(max_size=5_000), st.integers(20, 200))
@at_most(60)
def test_a_text_in_pieces_is_the_whole_text(given_text: str, most: int) -> None:
    from toolgate.documents.passages import pieces

    cut = list(pieces(given_text, most, 0))
    assert "".join("".join(cut).split()) == "".join(given_text.split())
    assert all(len(piece) <= most for piece in cut)


async def test_what_is_left_out_of_a_sheet_is_told(reader: DocumentReader) -> None:
    space = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    for far in ('<row r="1"><c r="IW1"><v>1</v></c></row>', '<row r="100001"><c r="A100001"><v>1</v></c></row>'):
        sheet = f'<worksheet xmlns="{space}"><sheetData>{far}</sheetData></worksheet>'
        content = await reader.read("a.xlsx", files.with_part(files.xlsx(), "xl/worksheets/sheet1.xml", sheet.encode()))
        assert content.truncated
        assert "Grace Murray" in texts(content)
    assert not (await reader.read("a.xlsx", files.xlsx())).truncated
