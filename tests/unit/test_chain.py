"""The hash chain and its head file, as properties."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.store.chain import START, Head, HeadFile, LinkedRow, NotedHeads, Verifier, link
from toolgate.store.database import LogRow

ROWS = st.lists(
    st.tuples(
        st.integers(0, 2**62),
        st.sampled_from(["start", "end"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        st.sampled_from(["success", "failure"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(str.encode),
    ),
    min_size=2,
    max_size=12,
)


def chained(rows: list[LogRow]) -> list[LinkedRow]:
    head, linked = START, []
    for row in rows:
        linked.append(link(head, row))
        head = Head(linked[-1][0], linked[-1][-1])
    return linked


def faults(linked: list[LinkedRow], noted: list[Head] | None) -> list[str]:
    verifier = Verifier(NotedHeads(noted) if noted else None)
    for row in linked:
        verifier.take(row)
    return verifier.verdict().faults


@given(ROWS)
def test_an_untouched_chain_verifies(rows: list[LogRow]) -> None:
    linked = chained(rows)
    assert faults(linked, [Head(linked[-1][0], linked[-1][-1])]) == []


@given(ROWS, st.data())
def test_any_change_of_any_field_is_found(rows: list[LogRow], data: st.DataObject) -> None:
    linked = chained(rows)
    index = data.draw(st.integers(0, len(linked) - 1))
    column = data.draw(st.integers(0, 8))
    row: list[Any] = list(linked[index])
    row[column] = row[column] + 1 if isinstance(row[column], int) else f"{row[column]}x"
    linked[index] = tuple(row)
    assert faults(linked, None)


@given(ROWS, st.data())
def test_a_removed_swapped_or_cut_row_is_found(rows: list[LogRow], data: st.DataObject) -> None:
    linked = chained(rows)
    noted = [Head(linked[-1][0], linked[-1][-1])]
    index = data.draw(st.integers(0, len(linked) - 1))
    assert faults(linked[:index] + linked[index + 1 :], noted)
    assert faults(linked[:index], noted)
    other = data.draw(st.integers(0, len(linked) - 1))
    if other != index:
        linked[index], linked[other] = linked[other], linked[index]
        assert faults(linked, noted)


def test_fields_can_not_be_shifted_into_each_other() -> None:
    one = link(START, (1, "end", "a", "b", "c", "success", b"{}"))
    other = link(START, (1, "end", "a,b", "", "c", "success", b"{}"))
    assert one[-1] != other[-1]


def test_the_head_file_follows_the_head_and_never_goes_back(tmp_path: Path) -> None:
    file = HeadFile(tmp_path / "head")
    assert (file.read(), HeadFile(tmp_path / "head").last()) == (None, None)
    heads = [Head(number, f"{number:064d}") for number in range(1, 8)]
    known = {head.seq: head.hash for head in heads}
    for head in heads:
        file.note(head, known.get)
    assert file.last() == heads[-1]
    file.note(heads[3], known.get)  # another process, a little late
    assert file.last() == heads[-1]
    noted = file.read()
    assert noted is not None
    assert len(noted.heads) == 2  # the first of the minute, and the moving one


def test_what_was_noted_and_is_not_in_the_log_stays_noted(tmp_path: Path) -> None:
    file = HeadFile(tmp_path / "head")
    file.note(Head(1, "1" * 64), lambda _seq: None)
    file.note(Head(9, "9" * 64), lambda _seq: "1" * 64)
    file.note(Head(10, "a" * 64), lambda _seq: "another hash")
    assert file.read() == NotedHeads([Head(1, "1" * 64), Head(9, "9" * 64), Head(10, "a" * 64)])


@pytest.mark.parametrize("rubbish", [b"rubbish", b"x" * 106, b"x" * 105 + b"\n", b"\n", bytes(range(256))])
def test_a_damaged_head_file_stops_nothing_and_stays_visible(tmp_path: Path, rubbish: bytes) -> None:
    file = HeadFile(tmp_path / "head")
    file.note(Head(1, "1" * 64), lambda _seq: None)
    with file.path.open("ab") as handle:
        handle.write(rubbish)
    file.last()
    file.note(Head(2, "2" * 64), lambda _seq: None)
    file.note(Head(3, "3" * 64), lambda _seq: "2" * 64)
    noted = file.read()
    assert noted is not None
    assert noted.heads[0] == Head(1, "1" * 64)
    assert noted.heads[-1] == Head(3, "3" * 64)
    assert bool(noted.damaged) == bool(rubbish.strip())


def test_a_line_that_is_written_only_in_part_is_taken_back_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = HeadFile(tmp_path / "head")
    file.note(Head(1, "1" * 64), lambda _seq: None)
    write = os.write
    with monkeypatch.context() as full_disk:
        full_disk.setattr(os, "write", lambda handle, data: write(handle, data[:30]))
        file.try_to_note(Head(2, "2" * 64), lambda _seq: None)
    assert file.trouble is not None
    file.try_to_note(Head(3, "3" * 64), lambda _seq: None)
    assert file.trouble is None
    assert file.read() == NotedHeads([Head(1, "1" * 64), Head(3, "3" * 64)])
