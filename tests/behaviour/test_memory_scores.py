"""The scores of notes: which threshold tells those that belong to a question from others, with the model that is shipped."""

import re

import pytest

from tests.docs.markdown import ROOT
from toolgate.embeddings import Embedder

pytestmark = pytest.mark.requirement("BUILTIN-4")
QUESTIONS = {
    "Deployments on Fridays are forbidden.": ["When may we ship?", "When may we deploy?", "Can I release on a Friday?"],
    "The user prefers answers in German.": ["Which language does the user want?"],
    "Acme wants invoices in euros.": ["currency of invoices", "How should we bill Acme?"],
    "The quarter ends in March.": ["end of the quarter", "When does the fiscal period close?"],
    "Anna's birthday is on 4 May.": ["When was Anna born?"],
    "The office moved to 12 Harbour Street.": ["Where is the company located?"],
    "The staging database is restored from production every night.": ["How fresh is the data on staging?"],
    "Bob is allergic to peanuts.": ["What food should Bob avoid?"],
    "Backups are kept for 30 days.": ["How long do we retain snapshots?"],
    "The VPN needs a hardware token.": ["How do I connect remotely?"],
    "Meetings with Globex are on Tuesdays at ten.": ["When do we meet Globex?"],
    "The API key rotates every 90 days.": ["credential rotation policy"],
    "The CEO is Maria Lopez.": ["Who leads the company?"],
    "The user dislikes long summaries.": ["How long should answers be?"],
    "Tests run on Python 3.11 and 3.13.": ["Which Python versions do we support?"],
    "Support tickets are answered within four hours.": ["response time of customer service"],
    "The logo is dark blue with a white star.": ["What colour is our brand?"],
    "Refunds over 500 dollars need the manager's approval.": ["Who must approve a big refund?"],
}
"""By note, questions in other words that it answers."""
PAGE = ROOT / "docs/reference/tools/memory_load.md"
ROW = re.compile(r"\| (0\.\d+) \| (\d+) \| (\d+|none)")
TOLERANCE = 2
"""Scores differ in the third digit from one kind of processor to another."""


async def scores() -> tuple[list[float], list[float]]:
    """Of questions with their note, and with each note about something else."""
    asked = [(note, question) for note, questions in QUESTIONS.items() for question in questions]
    notes = await Embedder().embed(list(QUESTIONS))
    cosines = await Embedder().embed([question for _, question in asked]) @ notes.T
    related: list[float] = []
    unrelated: list[float] = []
    for row, (own, _) in zip(cosines.tolist(), asked, strict=True):
        for note, cosine in zip(QUESTIONS, row, strict=True):
            (related if note == own else unrelated).append((1 + cosine) / 2)
    return related, unrelated


async def test_the_default_threshold_tells_related_notes_from_others_as_the_page_says() -> None:
    related, unrelated = await scores()
    text = PAGE.read_text()
    assert f"Of {len(related)} questions" in text
    assert f"with {len(QUESTIONS)} notes" in text
    assert f"none of {len(unrelated)}" in text
    rows = ROW.findall(text)
    assert len(rows) == 4
    for threshold, found, others in rows:
        assert abs(sum(score >= float(threshold) for score in related) - int(found)) <= TOLERANCE
        wrong = sum(score >= float(threshold) for score in unrelated)
        assert wrong == 0 if others == "none" else abs(wrong - int(others)) <= 2 * TOLERANCE
