"""What keeps a conversation within the model's context, and notices a model that repeats itself."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.agent.journal import JournalEntry, TurnAnswer
from toolgate.agent.limits import SHORT_CHARS, checked, fitted, repeated, tokens_of
from toolgate.agent.run import RunLimits
from toolgate.llm.completion import Message, ToolRequest
from toolgate.settings.agent import AgentSettings

AT = datetime(2026, 11, 18, tzinfo=UTC)
KINDS = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool", "notice": "user"}
entries = st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 5_000)), max_size=12)


def made(said: list[tuple[str, int]]) -> list[JournalEntry]:
    return [
        JournalEntry(seq, seq, kind, Message(KINDS[kind], "x" * length), AT)  # type: ignore[arg-type]
        for seq, (kind, length) in enumerate(said, 1)
    ]


@given(entries, st.integers(0, 2_000), st.integers(0, 20_000))
def test_only_results_are_shortened_the_oldest_first_and_no_more_than_is_needed(
    said: list[tuple[str, int]], more: int, most: int
) -> None:
    given_entries = made(said)
    messages, shortened = fitted(given_entries, more, most)
    changed = [at for at, entry in enumerate(given_entries) if messages[at] != entry.message]
    assert len(messages) == len(given_entries) and len(changed) == shortened
    assert all(given_entries[at].kind == "tool" for at in changed)
    could = [at for at, one in enumerate(given_entries) if one.kind == "tool" and len(one.message.text) > 2 * SHORT_CHARS]
    assert changed == could[: len(changed)]
    tokens = sum(map(tokens_of, messages)) + more
    assert tokens <= most or changed == could
    if changed:  # with one less it would be too long
        last = changed[-1]
        assert tokens - tokens_of(messages[last]) + tokens_of(given_entries[last].message) > most


def turns(*results: tuple[str, str]) -> list[JournalEntry]:
    """Answers with one call each, and their results."""
    found: list[JournalEntry] = []
    for at, (call, result) in enumerate(results):
        request = ToolRequest("c", "t", {"of": call})
        answer = TurnAnswer(None, (request,))
        found.append(JournalEntry(2 * at + 1, at, "assistant", Message("assistant", ""), AT, answer))
        found.append(JournalEntry(2 * at + 2, at, "tool", Message("tool", result), AT))
    return found


@pytest.mark.parametrize(
    ("results", "is_repeated"),
    [
        ([("a", "1")] * 2, False),
        ([("a", "1")] * 3, True),
        ([("a", "1"), ("b", "2")] * 3, True),
        ([("a", "1"), ("a", "2"), ("a", "3")], False),  # it polls, and something changes
        ([("a", "2"), ("a", "1"), ("a", "1"), ("a", "1")], True),
        ([("a", "1")] * 3 + [(str(at), "x") for at in range(12)], False),  # long ago
        ([("b", "1")] * 9, False),
    ],
)
def test_a_call_is_repeated_if_it_had_the_same_result_often_and_lately(
    results: list[tuple[str, str]], is_repeated: bool
) -> None:
    assert repeated(turns(*results), ToolRequest("d", "t", {"of": "a"}), RunLimits(same_call=3)) is is_repeated


@given(st.builds(RunLimits, turns=st.integers(-5, 100), seconds=st.floats(-1, 4_000), same_call=st.integers(-2, 9)))
def test_limits_are_taken_as_they_are_or_refused_with_the_setting(wanted: RunLimits) -> None:
    settings = AgentSettings()
    try:
        assert checked(wanted, settings) == wanted
    except ValueError as error:
        assert any(name in str(error) for name in RunLimits.__struct_fields__)
        assert wanted.turns not in range(1, 41) or not 0.001 <= wanted.seconds <= 1800 or wanted.same_call not in range(1, 4)
