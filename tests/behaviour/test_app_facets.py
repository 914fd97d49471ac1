"""What a caller may say of one call, and the names that App had before it had facets."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from tests.terminal import Terminal
from toolgate import Actor, App, DefinitionError, Hook, InvokeContext, tool
from toolgate.app.deprecated import CALLED, RENAMED
from toolgate.testing import memory_app


@tool(tier="read_only", title="Sum of two numbers")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Seen(Hook):
    """Notes who ran, and what it was given."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    async def will_execute(self, ctx: InvokeContext) -> None:
        self.log.append(f"{self.name} {ctx.call.request_id}")


@pytest.mark.requirement("PIPE-4", "AUD-1")
async def test_a_callers_own_request_id_is_on_record_and_leads_to_its_calls() -> None:
    async with memory_app() as app:
        app.register(add)
        first = await app.invoke("add", {"a": 1, "b": 2}, request_id='req-1 "%_|"', actor=Actor("acme"))
        again = await app.invoke("add", {"a": 1, "b": 2}, request_id='req-1 "%_|"')
        other = await app.invoke("add", {"a": 1, "b": 2}, request_id="req-12")
        await app.invoke("add", {"a": 1, "b": 'x"request_id":"req-12"'})
        assert await app.audit.of_request('req-1 "%_|"') == (first.id, again.id)
        assert await app.audit.of_request('req-1 "%_|"', tenant="acme") == (first.id,)
        assert await app.audit.of_request("req-12") == (other.id,)
        assert await app.audit.of_request("req-1%") == ()
        rows = await app.audit.of_call(other.id)
        assert {json.loads(row[7]).get("request_id") for row in rows} == {"req-12"}
        assert len({first.id, again.id, other.id}) == 3, "our own ids are ours, whatever a caller says"
        for wrong in ("", "x" * 129, "a\nb", "\x1b[2J", "\ud800", 7):
            with pytest.raises(ValueError, match="request_id must be"):
                app.invoke("add", {"a": 1, "b": 2}, request_id=wrong)  # type: ignore[arg-type]


@pytest.mark.requirement("PIPE-4")
def test_the_terminal_passes_a_request_id_on_and_finds_its_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    terminal("call", "calculator", "expression=1+1", "--request-id", "ticket-7")
    shown = terminal("audit", "show", "ticket-7", "--json").json
    assert "ticket-7" in json.dumps(shown["records"][-1])
    assert terminal("call", "echo", "text=x", "--request-id", "a\nb").code == 2


@pytest.mark.requirement("PIPE-4")
def test_the_terminal_finds_a_request_id_of_any_characters_that_a_call_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    for request in ("Auftrag 7 für Jörg", "注文-42", "ticket 'q' 100%_"):
        terminal("call", "calculator", "expression=1+1", "--request-id", request)
        (record,) = terminal("audit", "show", request, "--json").json["records"][-1:]
        assert record["body"]["request_id"] == request
        assert request in terminal("audit", "show", request).out
    for wrong in ("\x1b[2J", "no\nsuch", "\udcff", "Jörg", "x" * 300):
        missing = terminal("audit", "show", wrong)
        assert (missing.code, "\x1b" in missing.err) == (1, False)
        assert missing.err.startswith("Error: There is no call with the id ")


@pytest.mark.requirement("PIPE-3")
async def test_hooks_of_one_call_run_after_those_of_its_tool_and_for_that_call_alone() -> None:
    log: list[str] = []

    @tool(tier="read_only", hooks=[Seen("tool", log)])
    async def repeat(text: str) -> str:
        """Say it again."""
        return text

    async with memory_app() as app:
        app.register(repeat)
        app.add_hook(Seen("app", log))
        await app.invoke("repeat", {"text": "x"}, request_id="r", hooks=[Seen("call", log)])
        assert log == ["app r", "tool r", "call r"]
        log.clear()
        await app.invoke("repeat", {"text": "x"})
        assert log == ["app None", "tool None"]
        with pytest.raises(TypeError, match="is no hook"):
            app.invoke("repeat", {"text": "x"}, hooks=[object()])


@pytest.mark.requirement("PIPE-3", "PIPE-8")
async def test_what_hooks_of_one_call_make_of_an_output_reaches_nobody_else() -> None:
    runs: list[str] = []

    @tool(tier="read_only", cache=60)
    async def repeat(text: str) -> str:
        """Say it again."""
        runs.append(text)
        return text

    class Shout(Hook):
        async def will_transform_output(self, ctx: InvokeContext) -> None:
            ctx.output = str(ctx.output).upper()

    async with memory_app() as app:
        app.register(repeat)
        assert (await app.invoke("repeat", {"text": "x"}, hooks=[Shout()])).output == "X"
        assert (await app.invoke("repeat", {"text": "x"})).output == "x"
        assert (await app.invoke("repeat", {"text": "x"})).metrics.cached
        assert (await app.invoke("repeat", {"text": "x"}, hooks=[Shout])).output == "X"
        assert len(runs) == 3


@pytest.mark.requirement("PIPE-3")
async def test_hooks_given_as_classes_are_made_by_the_hosts_container() -> None:
    log: list[str] = []

    class Audited(Seen):
        """Needs what only the container can give."""

    @tool(tier="read_only", hooks=[Audited])
    async def repeat(text: str) -> str:
        """Say it again."""
        return text

    app = memory_app()
    with pytest.raises(DefinitionError, match="hooks"):
        app.register(repeat)
    app.resolve_hooks_with(lambda kind: kind("made", log))
    app.register(repeat)
    app.add_hook(Audited)
    async with app:
        await app.invoke("repeat", {"text": "x"}, hooks=[Audited])
    assert log == ["made None"] * 3


@pytest.mark.requirement("TOOL-1")
async def test_a_tool_has_a_name_for_people() -> None:
    async with memory_app() as app:
        app.register(add)
        (found,) = [one for one in await app.tools.list() if one.name == "add"]
        assert found.annotations["title"] == "Sum of two numbers"
        exported = {one["name"]: one for one in await app.tools.export("mcp")}
        assert exported["add"]["title"] == "Sum of two numbers"
    for wrong in ("", "x" * 129, "a\nb"):
        with pytest.raises(DefinitionError, match="title"):
            tool(title=wrong)(lambda: None)


# -- names that were there before


@pytest.mark.requirement("DOOR-1")
async def test_every_name_that_app_had_still_leads_somewhere_and_warns() -> None:
    app: Any = memory_app()
    for old, new in RENAMED.items():
        assert old not in vars(App)
        facet, verb = new.split(".")
        with pytest.warns(DeprecationWarning, match=f"app.{old} is now app.{new}"):
            found = getattr(app, old)
        wanted = getattr(getattr(app, facet), verb)
        assert found == wanted
    async with app:
        for facet, verb in CALLED.items():
            assert inspect.iscoroutinefunction(getattr(type(getattr(app, facet)), verb))
            if verb == "list":
                with pytest.warns(DeprecationWarning, match=f"app.{facet}"):
                    assert isinstance(await getattr(app, facet)(), list | tuple)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = app.nothing
