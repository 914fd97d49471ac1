"""A hidden tool and a missing one are alike: in what a caller is told, and in all the work that is done before, so that the
time it takes does not tell them apart either."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.serving import serving
from toolgate import Actor, App, Outcome, tool

pytestmark = pytest.mark.requirement("POL-7")

ADA = Actor("acme", "analyst", "ada")
ALLOWS_ALL = """
package soma.policy
decision := {"allow": true, "reason": "everybody may"}
allow := true
"""
READS_ARGUMENTS = """
package soma.policy
default allow := false
decision := {"allow": allow, "reason": "as the arguments say"}
allow if input.context.arguments.text == "please"
"""


@tool(tier="read_only")
async def reading(text: str = "") -> str:
    """Reads."""
    return text


@tool(tier="execute")
async def running(text: str = "") -> str:
    """Runs."""
    return text


HIDDEN: dict[str, Callable[[App, str], Any]] = {
    "disabled for all": lambda app, name: app.tools.set_enabled(name, False),
    "disabled for the tenant": lambda app, name: app.tools.set_enabled(name, False, tenant="acme"),
    "denied to the persona": lambda app, name: app.tools.set_enabled(name, False, persona="analyst"),
    "denied to all": lambda app, name: app.policy.deny(name),
}


WATCHED = (
    ("guard", "decide"), ("catalog", "find"), ("store", "append"), ("store", "append_durably"), ("store", "read"),
    ("store", "transact"),
)  # fmt: skip


class Witness:
    """Notes what is looked up, decided and written while something is done, by the task that does it or by any."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch, watched: Any = WATCHED, *, by: Any = None) -> None:
        self.seen: list[str] = []
        self._by = by
        for part, method in watched:
            owner = getattr(app.parts, part)
            monkeypatch.setattr(owner, method, self._noting(f"{part}.{method}", getattr(owner, method)))

    def _noting(self, what: str, done: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, **more: Any) -> Any:
            if self._by is None or asyncio.current_task() is self._by:
                self.seen.append(f"{what} {given[1]}" if what == "guard.decide" else what)
            return done(*given, **more)

        return noted

    def taken(self) -> list[str]:
        seen, self.seen = self.seen, []
        return seen


def plain(outcome: Outcome, name: str) -> Any:
    """An outcome without what is its own."""
    told = outcome.to_dict()
    told["metrics"].pop("duration_ms")
    return repr({**told, "id": None}).replace(name, "NAME")


def opened(tmp_path: Path, policy: str | None) -> App:
    more: dict[str, Any] = {}
    if policy is not None:
        (tmp_path / "policy.rego").write_text(policy)
        more["policy"] = {"file": tmp_path / "policy.rego"}
    return App.open(os.devnull, home=tmp_path / "home", entry_points=False, auto_load_custom_tools=False, **more)


CASES = [
    *((None, how) for how in HIDDEN),
    *((policy, how) for policy in (ALLOWS_ALL, READS_ARGUMENTS) for how in HIDDEN if how.startswith("disabled")),
]


@pytest.mark.parametrize(("policy", "how"), CASES)
@pytest.mark.parametrize("code", [reading, running])
@pytest.mark.sample(4)
async def test_the_same_is_done_for_a_hidden_tool_and_for_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: Any, how: str, policy: str | None
) -> None:
    async with opened(tmp_path, policy) as app:
        name = app.register(code).name
        await HIDDEN[how](app, name)
        missing = "missing" if len(name) == 7 else "no_such"
        assert len(missing) == len(name)
        await app.invoke("calculator", {"expression": "1"}, actor=ADA)  # what has just changed is read by the first call
        witness = Witness(app, monkeypatch, by=asyncio.current_task())
        for arguments, more in (
            ({"text": "a"}, {}),
            ({"text": "a"}, {}),
            ('{"text": "b"}', {}),
            (None, {"approval": "apr_unknown"}),
            ({"wrong": 1}, {"idempotency_key": "k", "session": "s"}),
        ):
            works, tells = [], []
            for asked in (name, missing):
                outcome = await app.invoke(asked, arguments, actor=ADA, **more)  # type: ignore[arg-type]
                await app.parts.store.flush()
                works.append(witness.taken())
                tells.append(plain(outcome, asked))
            assert works[0] == works[1], arguments
            assert tells[0] == tells[1]
        assert "store.append_durably" in works[0]


@pytest.mark.requirement("MCP-4")
@pytest.mark.parametrize("how", list(HIDDEN))
@pytest.mark.parametrize("code", [reading, running])
@pytest.mark.sample(4)
async def test_over_http_a_hidden_tool_goes_the_same_way_as_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: Any, how: str
) -> None:
    from toolgate.mcp.server.tool_calls import ClientCalls

    slow: list[str] = []
    call = ClientCalls.call

    async def noted(self: ClientCalls, ctx: Any, who: Any, asked: str, *more: Any) -> Any:
        slow.append(asked)
        return await call(self, ctx, who, asked, *more)

    monkeypatch.setattr(ClientCalls, "call", noted)
    async with opened(tmp_path, None) as app, serving(app) as site:
        name = app.register(code).name
        await HIDDEN[how](app, name)
        await site.with_key(app, ADA)
        await app.invoke("calculator", {"expression": "1"}, actor=ADA)
        witness = Witness(app, monkeypatch, WATCHED[:4])
        works, answers = [], []
        for asked in (name, "no_such", name, "no_such"):
            answer = await site.mcp("tools/call", {"name": asked, "arguments": {"text": "a"}})
            await app.parts.store.flush()
            works.append(witness.taken())
            answers.append(repr(answer.json).replace(asked, "NAME"))
        assert works[0] == works[1] and works[2] == works[3]
        assert len(set(answers)) == 1 and "NAME" in answers[0]
        assert slow == [name, "no_such", name, "no_such"]
