"""Reads PDF: the text of each page, with its number."""

from itertools import islice

from toolgate.documents.formats.blocks import MAX_PAGES, MAX_TEXT_CHARS, DocumentText, UnreadableDocument


def read_pdf(data: bytes, into: DocumentText) -> None:
    """Reads a PDF file. One that is encrypted with no password is read; one that needs a password is not."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "assword" in str(error):
            raise UnreadableDocument("it is encrypted, and needs a password") from None
        raise UnreadableDocument("it is damaged, or not a PDF file") from None
    for number, page in enumerate(islice(document, MAX_PAGES), 1):
        text = page.get_textpage()
        into.add(text.get_text_range(0, min(text.count_chars(), MAX_TEXT_CHARS + 1)), page=number)
        text.close()
        page.close()
    if len(document) > MAX_PAGES:
        into.stop()
