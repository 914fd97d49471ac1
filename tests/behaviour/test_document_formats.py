"""The readers of documents, called without the jail that they run in: each block has its text and its place. BUILTIN-4."""

from collections.abc import Callable
from datetime import date, datetime, time
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import document_files
from toolgate.documents.formats import spreadsheet
from toolgate.documents.formats.blocks import Block, UnreadableDocument
from toolgate.documents.jailed_reader import read

pytestmark = pytest.mark.requirement("BUILTIN-4")

WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=0x17F, categories=["L", "N"]), min_size=1, max_size=12)


def blocks(kind: str, data: bytes) -> list[Block]:
    found: Any = read(kind, data)["blocks"]
    return list(found)


def test_pdf_has_pages() -> None:
    found = blocks("pdf", document_files.pdf(["First page", "", "Third page"]))
    assert [(block.text, block.page) for block in found] == [("First page", 1), ("Third page", 3)]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: document_files.pdf(["secret"], password="open"), "needs a password"),
        (lambda: b"%PDF-1.7 and no more", "damaged, or not a PDF file"),
    ],
)
def test_pdf_that_cannot_be_opened(made: Callable[[], bytes], words: str) -> None:
    with pytest.raises(UnreadableDocument, match=words):
        read("pdf", made())


def test_word_has_sections_and_rows_of_tables() -> None:
    found = blocks("office", document_files.docx())
    assert [(block.text, block.section) for block in found] == [
        ("Every employee has thirty days of paid vacation a year.", "Handbook > Holidays"),
        ("Laptops are replaced after three years.", "Handbook > Equipment"),
        ("Office | Wireless password", "Handbook > Equipment > Networks"),
        ("Berlin | ask the porter", "Handbook > Equipment > Networks"),
    ]


def test_slides_have_numbers_titles_and_notes() -> None:
    found = blocks("office", document_files.pptx())
    assert [(block.text, block.page, block.section) for block in found] == [
        ("Roadmap", 1, "Roadmap"),
        ("The mobile app ships in May.", 1, "Roadmap"),
        ("Risks", 2, "Risks"),
        ("The supplier of batteries may fail.", 2, "Risks"),
        ("Mention the second source in Portugal.", 2, "Risks"),
    ]


def test_tables_and_groups_on_slides_are_read() -> None:
    import pptx

    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    table = slide.shapes.add_table(1, 2, 0, 0, 100, 100).table
    table.cell(0, 0).text, table.cell(0, 1).text = "Berlin", "ask the porter"
    group = slide.shapes.add_group_shape().shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, 10, 10).text_frame.text = "Deep inside"
    file = BytesIO()
    presentation.save(file)
    assert [block.text for block in blocks("office", file.getvalue())] == ["Berlin | ask the porter", "Deep inside"]


def test_html_is_what_a_person_sees() -> None:
    found = blocks("html", document_files.HTML)
    assert [(block.text, block.section) for block in found] == [
        ("Prices contain taxes.", "Terms"),
        ("Goods can be sent back within fourteen days, at our expense.", "Terms > Returns"),
        ("Country | Delivery time", "Terms > Returns"),
        ("France | two days", "Terms > Returns"),
    ]


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("<head><title>t</title><body>Seen", ["Seen"]),
        ("<svg><svg>no</svg>no</svg>yes<br/>two", ["yes\ntwo"]),
        ("<p>one<div>two</div>three", ["one", "two", "three"]),
        ("<custom/>a <em>b</em>c", ["a bc"]),
        ("<p>caf\u00e9".encode("cp1252"), ["caf\u00e9"]),
        ("<p>caf\u00e9".encode("utf-16"), ["caf\u00e9"]),
    ],
)
def test_html_of_all_sorts(page: str | bytes, texts: list[str]) -> None:
    found = blocks("html", page if isinstance(page, bytes) else page.encode())
    assert [block.text for block in found] == texts


def workbook(**sheets: list[Any]) -> bytes:
    import openpyxl

    book = openpyxl.Workbook(write_only=True)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    file = BytesIO()
    book.save(file)
    return file.getvalue()


@given(
    st.lists(WORDS, min_size=2, max_size=5, unique=True).flatmap(
        lambda names: st.tuples(
            st.just(names),
            st.lists(st.tuples(*[st.none() | WORDS | st.integers(0, 10**9)] * len(names)), max_size=6),
        )
    )
)
def test_every_cell_is_read_in_its_row_by_the_name_of_its_column(table: tuple[list[str], list[Any]]) -> None:
    names, rows = table
    found = blocks("office", workbook(Stock=[names, *rows]))
    assert (found[0].text, found[0].row) == (" | ".join(names), 1)
    expected = [
        ("; ".join(f"{name}: {cell}" for name, cell in zip(names, row, strict=True) if cell is not None), number)
        for number, row in enumerate(rows, 2)
        if any(cell is not None for cell in row)
    ]
    assert [(block.text, block.row) for block in found[1:]] == expected
    assert {block.sheet for block in found} == {"Stock"}


def test_values_of_sheets_are_written_as_a_person_reads_them() -> None:
    row = [date(2026, 5, 1), datetime(2026, 5, 1, 8, 30), time(9, 0), 1.5, 2.0, 1e20, True, "two\nlines"]  # noqa: DTZ001 - sheets know no time zones
    found = blocks("office", workbook(Plan=[[1, *[None] * 7], row]))
    assert found[1].text == "2026-05-01; 2026-05-01T08:30:00; 09:00:00; 1.5; 2; 1e+20; True; two lines"


def test_sheets_and_cells_beyond_the_limits_are_left_out_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spreadsheet, "MAX_SHEETS", 1)
    monkeypatch.setattr(spreadsheet, "MAX_ROWS", 2)
    monkeypatch.setattr(spreadsheet, "MAX_CELL_CHARS", 3)
    for sheets in ({"A": [["x"]], "B": [["y"]]}, {"A": [["x"], ["y"], ["z"]]}, {"A": [["long text"]]}):
        assert read("office", workbook(**sheets))["truncated"]
    assert not read("office", workbook(A=[["x"], ["y"]]))["truncated"]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda office: office[: len(office) // 2], "damaged or encrypted"),
        (lambda office: document_files.with_part(office, "word/document.xml", b"<!DOCTYPE x>"), "declares a document type"),
        (lambda office: document_files.with_part(office, "word/document.xml", "<x/>".encode("utf-16")), "not XML in UTF-8"),
    ],
)
def test_office_files_that_are_refused_before_a_library_opens_them(damage: Callable[[bytes], bytes], words: str) -> None:
    with pytest.raises(UnreadableDocument, match=words):
        read("office", damage(document_files.docx()))
