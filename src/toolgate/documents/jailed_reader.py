"""The program that reads a document in the jail: `python jailed_reader.py KIND FOLDER…`, the file on stdin, JSON on stdout.

It runs without Toolgate's environment: FOLDER names where packages are imported from. Only `documents.formats` of Toolgate's
own is imported; the packages above it are stood in for, since importing them would load all of Toolgate.
"""

import json
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
UNUSED = ("numpy", "pandas", "PIL.ImageShow")
"""Packages that readers import where they find them, and do not need: they take long, and threads."""


def main(kind: str, folders: list[str]) -> dict[str, object]:
    """Reads what is on stdin."""
    sys.path += folders
    for name in UNUSED:
        sys.modules[name] = None  # type: ignore[assignment]
    for name, folder in (("toolgate", ROOT), ("toolgate.documents", ROOT / "documents")):
        package = sys.modules[name] = ModuleType(name)
        package.__path__ = [str(folder)]
    from toolgate.documents.formats.blocks import UnreadableDocument

    try:
        return read(kind, sys.stdin.buffer.read())
    except UnreadableDocument as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": "it takes too much memory to read"}
    except RecursionError:
        return {"error": "it is nested too deeply"}
    except Exception as error:  # noqa: BLE001 - whatever a library says of a file that it can't read
        return {"error": f"it is damaged ({type(error).__name__})"}


def read(kind: str, data: bytes) -> dict[str, object]:
    """Reads a document of a kind; of an Office file, which one it is is found out."""
    from toolgate.documents.formats import archive, html, pdf, slides, spreadsheet, word
    from toolgate.documents.formats.blocks import DocumentText

    if kind == "office":
        kind = archive.office_kind(data)
    readers = {
        "pdf": pdf.read_pdf, "html": html.read_html, "docx": word.read_docx, "xlsx": spreadsheet.read_xlsx,
        "pptx": slides.read_pptx,
    }  # fmt: skip
    text = DocumentText()
    with text.limited():
        readers[kind](data, text)
    return {"kind": kind, "truncated": text.truncated, "blocks": text.blocks}


if __name__ == "__main__":
    answer = main(sys.argv[1], sys.argv[2:])
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))
