"""The picture of the architecture is drawn from the source, and the words of the docs are explained."""

import re
from collections import Counter

from tests.docs import architecture
from tests.docs.markdown import ROOT, pages

GLOSSARY = ROOT / "docs" / "glossary.md"
STALE = "run `make reference`"
TERM = re.compile(r"^- \*\*(.+?)\*\*: (.+)$", re.MULTILINE)
BOLD = re.compile(r"(?<![*\d.] )\*\*([a-zA-Z ]+?)\*\*")


def terms() -> dict[str, str]:
    found = TERM.findall(GLOSSARY.read_text(encoding="utf-8"))
    assert max(Counter(term for term, _ in found).values()) == 1
    return dict(found)


def test_every_room_has_a_place_of_its_own_in_the_picture() -> None:
    assert architecture.unplaced() == set()
    assert architecture.same_row() == []


def test_the_picture_is_what_the_source_imports() -> None:
    assert architecture.PICTURE.read_text(encoding="utf-8") == architecture.picture(), STALE


def test_the_table_of_rooms_and_the_walk_are_what_the_source_does() -> None:
    assert architecture.PAGE.read_text(encoding="utf-8") == architecture.page(), STALE


def test_no_arrow_points_upwards() -> None:
    rows = architecture.ROOMS
    assert [edge for edge in architecture.arrows() if rows[edge[0]].row >= rows[edge[1]].row] == []


def test_every_word_of_the_glossary_is_used_elsewhere_in_the_docs() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages() if page != GLOSSARY).lower()
    assert [term for term in terms() if not re.search(rf"\b{re.escape(term.lower())}s?\b", text)] == []


def test_every_bold_word_of_the_architecture_is_in_the_glossary() -> None:
    text = re.sub(r"^\d+\. \*\*.*?\*\*", "", architecture.PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    bold = {word.lower() for word in BOLD.findall(text)}
    known = {term.lower() for term in terms()}
    assert bold, "nothing is bold"
    assert {word for word in bold if word not in known and word.removesuffix("s") not in known} == set()


def test_an_explanation_is_one_or_two_sentences() -> None:
    plain = {term: re.sub(r" ?\[[^]]*\]\([^)]*\)", "", words) for term, words in terms().items()}
    assert [term for term, words in plain.items() if len(re.findall(r"[.!?](?= |$)", words)) > 3] == []
