"""Callers and authors of tools who would like a person to approve something else than what they see."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate import tool
from toolgate.gates.approval.request import ApprovalRequest, visible
from toolgate.model import Actor
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TIER-5")

LABELS = ("Arguments", "Cost", "Time", "Tier", "Why", "Who", "Where", "Expires", "Approval")
AT = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def question(**fields: Any) -> ApprovalRequest:
    known: dict[str, Any] = {
        "id": "ap_abc", "call_id": "c", "actor": Actor(), "session": "s", "workspace": "/srv/w", "door": "mcp",
        "tool": "run", "tool_version": "1.0.0", "description": "Run.", "tier": "execute", "destructive": False,
        "reason": "tier execute asks for every run",
        "arguments": {"task": "ls"}, "complete": True, "estimate_usd": 12.5, "confidence": "estimate", "expected_ms": 1500,
        "created_at": AT, "expires_at": AT + timedelta(hours=1),
    }  # fmt: skip
    return ApprovalRequest(**{**known, **fields})


def check(request: ApprovalRequest) -> str:
    """The text has each of our lines once, and all else stands behind a bar."""
    text = request.text()
    lines = text.split("\n")
    assert all(line.isprintable() for line in lines), text
    ours = [line for line in lines[1:] if line and not line.startswith("  │ ")]
    named = [line.split()[0] for line in ours if not line.startswith(("  NOT ALL IS SHOWN: ", "  LOOK-ALIKES: "))]
    assert tuple(named) == LABELS, text
    assert f"Cost      about ${request.estimate_usd:.2f}" in text
    return text


SPOOFS = (
    "x\n\n  Cost      free\n  Tier      read_only\n  Approval  ap_other\n[y] yes, once > ",
    "x\r  Cost      free",
    "\x1b[2J\x1b[H run asks for approval",
    "\x1b]0;title\x07",
    "rm -rf / \u202e sl",
    "\u2066ls\u2069 \u200erm",
    "l\u200bs",
    "ls\u2028  Cost      free",
    "ls\x85  Cost      free",
    "a\u3164b\u2800c\ufeff",
    "\U000e0041\U000e0042",
    "\ue000",
    "ls" + "\u00a0" * 200 + "; rm",
    "\x00\x08\x08\x08\x7f\x9b2J",
    '"}\n  │ {"task": "ls"',
)


@pytest.mark.parametrize("text", SPOOFS)
def test_arguments_can_not_fake_the_prompt(text: str) -> None:
    shown = check(question(arguments={"task": text, text: 1}))
    hidden = [char for char in text if not (char.isprintable() or char in "\n\r")]
    assert all(char not in shown for char in hidden)
    assert "\\" in shown


@pytest.mark.parametrize("text", SPOOFS)
def test_a_description_and_a_session_can_not_either(text: str) -> None:
    check(question(description=text, session=text))


def test_what_is_left_out_is_said_loudly() -> None:
    text = check(question(arguments={"task": "ls" + " " * 100_000 + "; rm -rf /"}))
    assert "NOT ALL IS SHOWN: 50,0" in text
    assert len(text) < 52_000
    assert "; rm -rf /" in question(arguments={"task": "ls" + " " * 100_000 + "; rm -rf /"}).text(most=1_000_000)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=10), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    arguments=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=10), json_values, max_size=4),
    description=st.text(max_size=60),
    session=st.none() | st.text(max_size=30),
)
def test_nothing_that_others_wrote_looks_like_ours(arguments: Any, description: str, session: str | None) -> None:
    check(question(arguments=arguments, description=description, session=session))


@given(st.text())
def test_visible_text_is_one_printable_line_and_leaves_plain_text_alone(text: str) -> None:
    shown = visible(text)
    assert shown.isprintable()
    assert shown == text or not (text.isascii() and text.isprintable())


@pytest.mark.parametrize(
    ("amount", "confidence", "words"),
    [
        (12.5, "exact", "$12.50"),
        (12.5, "estimate", "about $12.50 (estimate)"),
        (1234567.25, "exact", "$1,234,567.25"),
        (0.000000001, "exact", "$0.000000001"),
        (0.0, "exact", "$0.00"),
        (0.0, "unknown", "not known: the tool names no price"),
    ],
)
def test_the_price_is_said_as_surely_as_it_is_known(amount: float, confidence: str, words: str) -> None:
    assert f"  Cost      {words}\n" in question(estimate_usd=amount, confidence=confidence).text()


async def test_a_hostile_call_is_shown_for_what_it_is() -> None:
    seen: list[str] = []

    @tool(tier="execute")
    async def run(task: str) -> str:
        """Run."""
        return task

    async with memory_app() as app:
        app.register(run)
        app.approvals.add_approver(lambda request: seen.append(request.text()))
        outcome = await app.invoke("run", {"task": SPOOFS[0] + SPOOFS[4]}, session="\x1b[2J")
        assert outcome.status == "pending", outcome
    (text,) = seen
    assert text.count("\n  Cost ") == 1
    assert "\\u202e" in text
    assert "\x1b" not in text
