"""Where a tool of the user's crashed: the operator finds out, masked; whoever called does not."""

import gc
import logging
import traceback
import weakref
from pathlib import Path

import pytest

from tests.terminal import Terminal
from toolgate import App, CallError, InvokeContext, tool
from toolgate.store import audit_log
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("AUD-1", "PIPE-6")

KEY = "ghp_" + "a1B2" * 9


class Broken(RuntimeError):
    """A bug of the tool's author."""


@tool(tier="read_only")
async def breaks(text: str = "") -> str:
    """Has a bug."""
    return _deep_down(text)


def _deep_down(text: str) -> str:
    raise Broken(f"it broke on {text} with {KEY}")


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


async def test_log_and_record_have_the_traceback_masked_and_the_outcome_has_not(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with App.open(home=tmp_path, database_url=database, entry_points=False) as app:
        app.register(breaks)
        outcome = await app.invoke("breaks", {"text": "this"})
        await app.flush()
        rows = await app.parts.store.read(audit_log.of_call(outcome.id))
    told = outcome.to_json().decode() + repr(outcome)
    assert "_deep_down" not in told
    assert "Traceback" not in told
    assert KEY not in told
    [entry] = [one for one in caplog.records if one.name == "toolgate"]
    assert outcome.id in entry.getMessage()
    logged = logging.Formatter("%(message)s").format(entry)
    for text in (logged, str(rows[-1][7])):
        assert "_deep_down" in text
        assert "test_tracebacks.py" in text
        assert KEY not in text
        assert "[REDACTED]" in text


async def test_raise_for_status_raises_from_what_the_tool_raised() -> None:
    async with memory_app() as app:
        app.register(breaks)
        outcome = await app.invoke("breaks")
        with pytest.raises(CallError) as raised:
            outcome.raise_for_status()
        assert isinstance(raised.value.__cause__, Broken)
        assert "_deep_down" in "".join(traceback.format_exception(raised.value))


async def test_what_a_crash_leaves_is_garbage_when_nobody_holds_its_outcome() -> None:
    """The exception's frames hold the context, which holds the outcome, which holds the exception."""
    seen: list[weakref.ref[BaseException]] = []

    @tool(tier="read_only")
    async def holds(ctx: InvokeContext) -> str:
        """Holds its context while it breaks."""
        error = Broken(ctx.id)
        seen.append(weakref.ref(error))
        raise error

    async with memory_app() as app:
        app.register(holds)
        outcome = await app.invoke("holds")
        await app.flush()
        assert outcome.error is not None
        del outcome
        gc.collect()
        assert seen[0]() is None


async def test_the_words_of_a_secret_that_an_inner_call_got_do_not_reach_the_outer_ones_record(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_BANK_KEY", "open sesame 123456")

    @tool(tier="read_only", requires_auth="BANK_KEY")
    async def inner(ctx: InvokeContext) -> str:
        """Says its secret as it breaks."""
        raise Broken(f"the key is {ctx.credential}")

    @tool(tier="read_only")
    async def outer(ctx: InvokeContext) -> None:
        """Calls the other."""
        (await ctx.call_tool("inner", {})).raise_for_status()

    async with memory_app() as app:
        app.tools.register_many([inner, outer])
        outcome = await app.invoke("outer")
        assert outcome.error is not None
        assert "the key is" in outcome.error.message
        await app.flush()
        rows = await app.parts.store.read(audit_log.latest(10))
    assert "sesame" not in caplog.text
    assert "sesame" not in str(rows)


async def test_a_traceback_is_bounded() -> None:
    @tool(tier="read_only")
    async def shouts() -> str:
        """Has much to say."""
        raise Broken("x " * 300_000)

    async with memory_app() as app:
        app.register(shouts)
        outcome = await app.invoke("shouts")
        await app.flush()
        [_, end] = await app.parts.store.read(audit_log.of_call(outcome.id))
        assert len(end[7]) < 60_000


def test_the_operator_is_shown_it_when_they_ask(terminal: Terminal) -> None:
    terminal.add_tools(
        """
        from toolgate import tool

        @tool(tier="read_only")
        async def sad() -> str:
            \"\"\"Has a bug.\"\"\"
            return _deep_down()

        def _deep_down():
            raise RuntimeError("a bug")
        """
    )
    called = terminal("call", "sad", "--json")
    assert "_deep_down" not in called.out + called.err
    assert "audit show" in called.err
    short = terminal("audit", "show", called.json["id"])
    assert "_deep_down" not in short.out
    assert "--verbose" in short.err
    whole = terminal("audit", "show", called.json["id"], "--verbose")
    assert "in _deep_down" in whole.out
    assert whole.out.count("\n    raise RuntimeError") == 1
