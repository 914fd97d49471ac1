"""Files of every kind that document_ingest reads, made by the libraries that write them."""

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile


def _saved(save: Callable[[Any], object]) -> bytes:
    file = BytesIO()
    save(file)
    return file.getvalue()


def pdf(pages: Sequence[str], *, password: str | None = None) -> bytes:
    """A PDF file, a text to a page."""
    from reportlab.lib.pdfencrypt import StandardEncryption
    from reportlab.pdfgen.canvas import Canvas

    file = BytesIO()
    canvas = Canvas(file, encrypt=None if password is None else StandardEncryption(password, canPrint=0))
    for text in pages:
        lines = canvas.beginText(72, 720)
        lines.textLines(text)
        canvas.drawText(lines)
        canvas.showPage()
    canvas.save()
    return file.getvalue()


def docx() -> bytes:
    """A document of Word with headings and a table."""
    import docx as word

    document = word.Document()
    document.add_heading("Handbook", 0)
    document.add_heading("Holidays", 1)
    document.add_paragraph("Every employee has thirty days of paid vacation a year.")
    document.add_heading("Equipment", 1)
    document.add_paragraph("Laptops are replaced after three years.")
    document.add_heading("Networks", 2)
    table = document.add_table(2, 2)
    for cell, text in zip(table._cells, ("Office", "Wireless password", "Berlin", "ask the porter"), strict=True):
        cell.text = text
    return _saved(document.save)


def xlsx() -> bytes:
    """A workbook with two sheets."""
    import openpyxl

    book = openpyxl.Workbook()
    sales = book.active
    assert sales is not None
    sales.title = "Sales"
    for row in (["Region", "Revenue"], ["Scandinavia", 1_200_000], ["Iberia", 830_000.5]):
        sales.append(row)
    staff = book.create_sheet("Staff")
    for line in (["Name", "Role"], ["Ada Byron", "Chief engineer"], ["Grace Murray", "Head of compilers"]):
        staff.append(line)
    return _saved(book.save)


def pptx() -> bytes:
    """A presentation of two slides; the second has notes."""
    import pptx as powerpoint

    presentation = powerpoint.Presentation()
    texts = (("Roadmap", "The mobile app ships in May."), ("Risks", "The supplier of batteries may fail."))
    for title, text in texts:
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = text
    slide.notes_slide.notes_text_frame.text = "Mention the second source in Portugal."
    return _saved(presentation.save)


HTML = b"""<!doctype html><html><head><title>Shop</title><script>var vacation = "script"</script></head><body>
<nav>Home Imprint</nav><h1>Terms</h1><p>Prices contain <b>taxes</b>.</p><h2>Returns</h2>
<p>Goods can be sent back within fourteen days, at our expense.</p>
<table><tr><th>Country</th><th>Delivery time</th></tr><tr><td>France</td><td>two days</td></tr></table>
<footer>copyright</footer></body></html>"""

MARKDOWN = b"""# Manual

The pump moves water.

Maintenance
-----------

Clean the filter of the pump each month.

```
# not a heading
```

## Repair ##

Replace the seal when it leaks oil.
"""


def with_part(office: bytes, name: str, content: bytes) -> bytes:
    """An Office file with one of its parts replaced, or one more."""
    file = BytesIO()
    with ZipFile(BytesIO(office)) as before, ZipFile(file, "w", ZIP_DEFLATED) as after:
        for entry in before.infolist():
            if entry.filename != name:
                after.writestr(entry.filename, before.read(entry))
        after.writestr(name, content)
    return file.getvalue()
