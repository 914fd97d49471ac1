"""What all adapters for agent frameworks share; `make frameworks` tests each with its framework (tests/adapters)."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.adapters.bank import ANN, BOB, BOSS, answer, opened, reached, waiting
from toolgate import Actor, Answer, App, Outcome, tool
from toolgate.adapters.calls import HostCalls, approval_of, text_of
from toolgate.adapters.requirement import MissingFramework
from toolgate.client import AsyncClient, Client
from toolgate.errors import ToolgateError
from toolgate.testing import memory_app

PAYMENT = {"to": "bob", "amount": 10}
pytestmark = pytest.mark.requirement("PIPE-1")
DOORS = pytest.mark.parametrize("how", ["app", "client"])


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("langchain", "langchain"),
        ("pydantic_ai", "pydantic-ai-slim"),
        ("openai_agents", "openai-agents"),
        ("claude_agent", "claude-agent-sdk"),
        ("fastapi", "fastapi"),
    ],
)
def test_an_adapter_without_its_framework_says_how_to_install_it(module: str, package: str) -> None:
    with pytest.raises(ImportError, match=rf"is not installed .* -m pip install {package} installs it\.") as refused:
        import_module(f"toolgate.adapters.{module}")
    assert isinstance(refused.value, MissingFramework) and isinstance(refused.value, ToolgateError)


@DOORS
async def test_tools_are_those_that_the_actor_may_see(how: str, tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, _), reached(app, how, BOB) as (door, who):
        (balance,) = await HostCalls(door, who.get("actor"), None).tools()
        assert (balance.name, balance.description, balance.is_read_only) == (
            "balance",
            "Say how much is in an account.",
            True,
        )
        assert balance.schema["required"] == ["account"]


@DOORS
async def test_a_call_that_waits_is_found_again_and_runs_once(how: str, tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), reached(app, how) as (door, who):
        calls = HostCalls(door, who.get("actor"), "s-1")
        id = calls.id_of("pay", PAYMENT, "host", "run-1", "call-1")
        assert await calls.waiting("pay", id) is None

        asked = approval_of(await calls.call("pay", PAYMENT, id))
        assert await waiting(app) == [asked]
        later = HostCalls(door, who.get("actor"), "s-1")  # as another process would, later
        found = await later.waiting("pay", id)
        assert found is not None and found.approval == asked
        assert not await later.is_answered(found.approval)
        assert approval_of(await later.call("pay", PAYMENT, id, found)) == asked

        await answer(app, found.approval)
        assert await later.is_answered(found.approval)
        for _ in range(2):
            found = await later.waiting("pay", id)
            assert (await later.call("pay", PAYMENT, id, found)).output == "paid 10.00 to bob"
        assert bank.paid == [("bob", 10)]


@DOORS
async def test_a_call_that_was_rejected_is_not_asked_about_again(how: str, tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), reached(app, how) as (door, who):
        calls = HostCalls(door, who.get("actor"), None)
        id = calls.id_of("pay", PAYMENT, "host", "call-1")
        asked = approval_of(await calls.call("pay", PAYMENT, id))
        assert asked is not None
        await answer(app, asked, Answer("reject", "not on a Friday"))
        outcome = await calls.call("pay", PAYMENT, id, await calls.waiting("pay", id))
        assert text_of(outcome) == "USER_CANCELLED: pay was rejected by boss: not on a Friday"
        assert await waiting(app) == [] and bank.paid == []


@DOORS
async def test_what_was_edited_runs_in_place_of_what_was_asked(how: str, tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), reached(app, how) as (door, who):
        calls = HostCalls(door, who.get("actor"), None)
        id = calls.id_of("pay", PAYMENT, "host", "call-1")
        asked = approval_of(await calls.call("pay", PAYMENT, id))
        assert asked is not None
        await answer(app, asked, Answer("edit", arguments={"to": "bob", "amount": 5}))
        assert (await calls.call("pay", PAYMENT, id, await calls.waiting("pay", id))).output == "paid 5.00 to bob"
        assert bank.paid == [("bob", 5)]


@DOORS
async def test_a_call_that_its_approver_ran_gives_what_came_of_it(how: str, tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), reached(app, how) as (door, who):
        calls = HostCalls(door, who.get("actor"), None)
        id = calls.id_of("pay", PAYMENT, "host", "call-1")
        asked = approval_of(await calls.call("pay", PAYMENT, id))
        assert asked is not None
        await answer(app, asked)
        assert (await app.approvals.resume(asked, actor=BOSS)).ok
        assert (await calls.call("pay", PAYMENT, id, await calls.waiting("pay", id))).output == "paid 10.00 to bob"
        assert bank.paid == [("bob", 10)]


@DOORS
async def test_whether_a_person_would_be_asked_is_known_beforehand(how: str, tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, bank), reached(app, how) as (door, who):
        calls = HostCalls(door, who.get("actor"), None)
        assert await calls.asks("pay", PAYMENT)
        for name, arguments in (("balance", {"account": "a"}), ("nothing", {}), ("pay", {"to": 1}), ("pay", "[]")):
            assert not await calls.asks(name, arguments)
        assert await waiting(app) == [] and bank.paid == []


async def test_the_key_of_a_client_says_who_calls(tmp_path: Path) -> None:
    async with opened(tmp_path) as (app, _), reached(app, "client") as (door, _who):
        assert isinstance(door, AsyncClient)
        with pytest.raises(ValueError, match="The key of a client says who calls"):
            HostCalls(door, BOSS, None)


def test_a_client_without_async_is_refused_with_words() -> None:
    with (
        Client.open("http://127.0.0.1:9") as client,
        pytest.raises(TypeError, match="an App or an AsyncClient, not a Client"),
    ):
        HostCalls(client, None, None)  # type: ignore[arg-type]


names = st.sampled_from(["a", "b", "ä", "\ud800", ""])
values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(), lambda inner: st.lists(inner, max_size=2))
arguments = st.dictionaries(names, values, max_size=3)


@given(arguments, st.randoms())
def test_the_order_of_arguments_makes_no_other_call(given_first: dict[str, Any], random: Any) -> None:
    calls = HostCalls(App.open(database_url="memory://"), ANN, None)
    pairs = list(given_first.items())
    random.shuffle(pairs)
    assert calls.id_of("pay", given_first, "host", "1") == calls.id_of("pay", dict(pairs), "host", "1")


def test_whatever_differs_makes_another_call() -> None:
    app = App.open(database_url="memory://")
    actors = (ANN, BOB, Actor("acme", None, "ann"), Actor("other", "clerk", "ann"))
    ids = [
        HostCalls(app, actor, session).id_of(name, given_arguments, "host", run, call)
        for actor in actors
        for session in (None, "s-1")
        for name in ("pay", "deposit")
        for given_arguments in ({"a": 1}, {"a": "1"}, {"a": None}, {})
        for run, call in (("r", "c"), ("r", "d"), ("rc", ""), (None, "c"))
    ]
    assert len(set(ids)) == len(ids)
    assert all(len(id) <= 128 and id.isprintable() for id in ids)


PICTURE = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"}


@tool(tier="read_only")
async def show() -> dict[str, Any]:
    """Give what MCP servers give: a text, a picture, and a file."""
    file = {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "in the file"}}
    return {"content": [{"type": "text", "text": "look:"}, PICTURE, file]}


@tool(tier="read_only")
async def long() -> str:
    """Give more than a model can read."""
    return "word " * 100_000


@tool(tier="write", background=True)
async def later() -> str:
    """Take its time."""
    return "done"


async def test_a_model_is_told_text_whatever_the_outcome() -> None:
    async with memory_app() as app:
        app.tools.register_many([show, long, later])

        async def told(name: str, given_arguments: Any = None) -> tuple[Outcome, str]:
            outcome = await app.invoke(name, given_arguments)
            return outcome, text_of(outcome)

        assert (await told("echo", {"text": "hello"}))[1] == '{"text":"hello"}'
        assert (await told("calculator", {"expression": "1+1"}))[1].startswith('{"expression":"1+1","result":2')
        assert (await told("show"))[1] == "look:\n[image/png: not shown here]\nin the file"
        cut, text = await told("long")
        assert (
            cut.artifact is not None and text.startswith("word word") and f"toolgate://artifacts/{cut.artifact.id}" in text
        )
        queued, text = await told("later")
        assert queued.pending is not None and approval_of(queued) is None
        assert text.startswith(f"The call is queued as job {queued.pending.id}")
        wrong, text = await told("echo", {"txet": "hello"})
        assert wrong.error is not None and text == f"VALIDATION_ERROR: {wrong.error.message}\n{wrong.error.suggestion}"
        _, text = await told("ecco", {})
        assert text.startswith("Unknown tool: ecco\n")
