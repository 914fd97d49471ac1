"""Least privilege from use: the suggested data allows what was used and nothing else, and replay shows exactly that."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviour.test_statistics import Made
from tests.examples import at_most
from tests.opa_server import Opa, running
from tests.soma_policy import policy_data
from toolgate import Actor, App, InvokeContext, tool
from toolgate.errors import InvalidInput
from toolgate.gates.policy.decisions import lets_request, may_view
from toolgate.gates.policy.documents import EMPTY_DOCUMENTS, AllowList, GivenDocument, PolicyError
from toolgate.gates.policy.embedded_rego import EmbeddedRego, default_policy
from toolgate.gates.policy.engine import ACTIONS, EVERYTHING, PolicyQuestion
from toolgate.gates.policy.replay import Replay
from toolgate.gates.policy.suggestion import (
    MIN_ARGUMENT_CALLS,
    ArgumentRule,
    PersonaUse,
    suggested_list,
    with_argument_rules,
)
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("POL-9")
NAMES = ("read_orders", "refund", "deploy", "export_report", "tidy", "probe")
PERSONAS = ("analyst", "clerk", "operator")
USED = {
    ("acme", "analyst"): {"read_orders": 9, "export_report": 3},
    ("acme", "clerk"): {"read_orders": 30, "refund": 6},
    ("acme", "operator"): {"deploy": 4},
    ("globex", "analyst"): {"deploy": 2},
}


def made(name: str) -> Any:
    async def run(path: str = "", env: str = "staging") -> str:
        return path + env

    run.__name__, run.__doc__ = name, f"Do {name}."
    return tool(tier="read_only")(run)


@tool(tier="write")
async def outer(ctx: InvokeContext) -> str:
    """Call another tool."""
    return str((await ctx.call_tool("probe", {})).status)


def use_of(personas: list[PersonaUse], tenant: str, persona: str | None) -> PersonaUse:
    return next(one for one in personas if (one.tenant, one.persona) == (tenant, persona))


def record(app: App, at: datetime, tenant: str, persona: str, name: str) -> None:
    """Puts a call of another day on record, as the ledger does: the log has the time of the machine."""
    body = {"persona": persona, "user": "ann", "session": None, "tier": "read_only", "decision": f"{name} is enabled"}
    micros, id = int(at.timestamp() * 1_000_000), uuid4().hex
    started = orjson.dumps({**body, "arguments": {"path": "", "env": "staging"}})
    app.parts.store.append(Made((micros, "start", id, tenant, name, "started", started)))
    ended = orjson.dumps({**body, "attempts": 1, "duration_ms": 1.5, "cached": False})
    app.parts.store.append(Made((micros + 1_500, "end", id, tenant, name, "success", ended)))


def changes(found: Replay) -> set[tuple[str, str, str, str | None]]:
    return {(group.change, group.tenant, group.tool, group.persona) for group in found.groups}


async def test_a_month_of_calls_suggests_what_was_used_and_replay_shows_exactly_that() -> None:
    today = datetime.now(UTC)
    async with memory_app() as app:
        app.tools.register_many([made(name) for name in NAMES])
        record(app, today - timedelta(days=70), "acme", "operator", "tidy")
        for day in range(30):
            for (tenant, persona), tools in USED.items():
                for name, calls in tools.items():
                    if day % (30 // calls) == 0:
                        record(app, today - timedelta(days=30 - day), tenant, persona, name)
        found = await app.policy.suggest(days=31)
        assert {(one.tenant, one.persona): {use.tool for use in one.used} for one in found.personas if one.used} == {
            who: set(tools) for who, tools in USED.items()
        }
        operator = use_of(found.personas, "acme", "operator")
        unused = {each.tool: each.last for each in operator.unused}
        assert unused["tidy"] == (today - timedelta(days=70)).date()
        assert unused["refund"] is None
        assert use_of(found.personas, "acme", None).used == []

        documents = {**app.policy.data.whole(), **found.data}
        shipped = EmbeddedRego.default()
        callers: tuple[str | None, ...] = (*PERSONAS, None, "unheard-of")
        for tenant, caller, name in product(("acme", "globex"), callers, NAMES):
            question = PolicyQuestion(tenant, caller, "tool.request", name, "ann")
            decision = shipped.decide(question, GivenDocument(documents), 0).decision
            assert decision.allow is (name in USED.get((tenant, caller or ""), {})), question

        month = today - timedelta(days=31)
        replayed = await app.policy.replay(data=found.data, since=month)
        assert (replayed.same, replayed.newly_denied, replayed.newly_allowed, replayed.unknown) == (found.calls, 0, 0, 0)
        everything = await app.policy.replay(data=found.data)
        assert changes(everything) == {("newly_denied", "acme", "tidy", "operator")}
        assert everything.newly_denied == 1
        assert app.policy.data.allow_lists == {}, "nothing is applied by itself"


async def test_lists_and_counts_are_in_the_database_and_seen_by_other_processes(tmp_path: Path, database: str) -> None:
    ann = Actor("acme", "analyst", "ann")
    async with (
        App.open(home=tmp_path, database_url=database, entry_points=False) as one,
        App.open(home=tmp_path, database_url=database, entry_points=False) as other,
    ):
        await one.invoke("echo", {"text": "x"}, actor=ann)
        await one.statistics.catch_up()
        found = await other.policy.suggest(tenant="acme")
        assert [(use.tool, use.calls) for use in use_of(found.personas, "acme", "analyst").used] == [("echo", 1)]
        await one.policy.set_allow_list("acme", found.data["tenant_tool_allow"]["acme"])
        for _ in range(100):
            if other.policy.data.allow_lists:
                break
            await asyncio.sleep(0.05)
        assert (await other.invoke("echo", {"text": "y"}, actor=ann)).ok
        assert not (await other.invoke("timestamp", actor=ann)).ok


async def test_what_was_denied_rejected_or_only_asked_for_is_not_used_and_inner_calls_are() -> None:
    @tool(tier="execute")
    async def wipe() -> str:
        """Wipe."""
        return "wiped"

    @tool(tier="execute")
    async def restart() -> str:
        """Restart."""
        return "restarted"

    async def approver(request: Any) -> bool:
        return bool(request.tool != "wipe")

    async with memory_app() as app:
        app.tools.register_many([*(made(name) for name in NAMES), outer, wipe, restart])
        app.approvals.add_approver(approver)
        ann = Actor("acme", "analyst", "ann")
        await app.tools.set_enabled("deploy", False, persona="analyst")
        assert not (await app.invoke("deploy", actor=ann)).ok
        assert not (await app.invoke("read_orders", {"path": 7}, actor=ann)).ok
        assert (await app.invoke("wipe", actor=ann)).error.code == "USER_CANCELLED"  # type: ignore[union-attr]
        assert (await app.invoke("restart", actor=ann)).ok
        assert (await app.invoke("outer", actor=ann)).ok
        found = use_of((await app.policy.suggest(tenant="acme")).personas, "acme", "analyst")
        assert {use.tool for use in found.used} == {"outer", "probe", "restart"}
        assert {each.tool: each.calls for each in found.stopped} == {"read_orders": 1, "wipe": 1}
        replayed = await app.policy.replay(data=(await app.policy.suggest(tenant="acme")).data)
        assert {(group.change, group.tool) for group in replayed.groups} == {
            ("newly_denied", "read_orders"),
            ("newly_denied", "wipe"),
        }


async def test_an_applied_suggestion_holds_for_calls_lists_and_new_tools_and_can_be_taken_back() -> None:
    ann, bob = Actor("acme", "analyst", "ann"), Actor("acme", None, "bob")
    async with memory_app() as app:
        app.tools.register_many([made(name) for name in NAMES])
        await app.policy.allow_adding_tools("analyst")
        await app.invoke("probe", actor=ann)
        found = await app.policy.suggest(tenant="acme")
        await app.policy.set_allow_list("acme", found.data["tenant_tool_allow"]["acme"], reason="least privilege")
        assert [one.name for one in await app.tools.list(ann)] == ["probe"]
        assert await app.tools.list(bob) == ()
        assert (await app.invoke("probe", actor=ann)).ok
        assert (await app.invoke("refund", actor=ann)).error.code == "TOOL_NOT_FOUND"  # type: ignore[union-attr]
        assert (await app.invoke("refund", actor=Actor("globex", "analyst", "eve"))).ok
        adding = await app.policy.decide(ann, "tool.enable", "brand_new")
        assert (adding.allow, adding.reason) == (False, "brand_new is not on the allow list of tenant acme")
        again = await app.policy.suggest(tenant="acme")
        assert again.data == found.data
        assert use_of(again.personas, "acme", "analyst").unused == []
        await app.policy.set_allow_list("acme", None)
        assert (await app.invoke("refund", actor=bob)).ok
        with pytest.raises(PolicyError, match="personas"):
            await app.policy.set_allow_list("acme", {"persona": {}})


@pytest.mark.parametrize("name", ["x" * 257, "ana\u200blyst", "a\nb"])
async def test_rules_about_names_that_no_caller_can_have_are_refused_and_read_over(name: str) -> None:
    async with memory_app() as app:
        app.tools.register_many([made("probe")])
        for rule in (
            app.policy.allow_adding_tools(name),
            app.policy.restrict_code(name),
            app.policy.set_allow_list(name, {"personas": {}}),
            app.policy.set_allow_list("acme", {"personas": {name: ["probe"]}}),
            app.tools.disable("probe", persona=name),
            app.tools.disable("probe", tenant=name),
            app.tools.set_flags([(name, "probe", False)]),
        ):
            with pytest.raises(InvalidInput, match="1 to 256 printable"):
                await rule
        await app.policy.allow_adding_tools(name, False)  # what an older version kept can be taken away, and does no harm
        assert (await app.policy.suggest(tenant="acme")).calls == 0


async def test_a_suggestion_for_one_persona_leaves_the_others_as_they_are() -> None:
    ann, bob, eve = Actor("acme", "analyst", "ann"), Actor("acme", None, "bob"), Actor("acme", "clerk", "eve")
    async with memory_app() as app:
        app.tools.register_many([made(name) for name in NAMES])
        await app.invoke("probe", actor=ann)
        await app.invoke("probe", actor=eve)
        found = await app.policy.suggest(tenant="acme", persona="analyst")
        assert [one.persona for one in found.personas] == ["analyst"]
        await app.policy.set_allow_list("acme", found.data["tenant_tool_allow"]["acme"])
        assert [(await app.invoke("refund", actor=who)).ok for who in (ann, bob, eve)] == [False, True, True]
        nobody = await app.policy.suggest(tenant="acme", persona="")
        await app.policy.set_allow_list("acme", nobody.data["tenant_tool_allow"]["acme"])
        assert [(await app.invoke("tidy", actor=who)).ok for who in (ann, bob, eve)] == [False, False, True]
        assert (await app.invoke("probe", actor=ann)).ok


@pytest.mark.parametrize("persona", [None, "analyst"])
async def test_a_suggestion_gives_back_nothing_that_an_allow_list_took_away(persona: str | None) -> None:
    ann = Actor("acme", "analyst", "ann")
    async with memory_app() as app:
        app.tools.register_many([made(name) for name in NAMES])
        for name in ("probe", "refund"):
            await app.invoke(name, actor=ann)
        await app.policy.set_allow_list("acme", {"personas": {"analyst": ["probe", "tidy"]}})
        found = await app.policy.suggest(tenant="acme", persona=persona)
        assert found.data["tenant_tool_allow"]["acme"]["personas"] == {"analyst": ["probe"]}
        use = use_of(found.personas, "acme", "analyst")
        assert ([one.tool for one in use.used], [one.tool for one in use.removed]) == (["probe"], ["refund"])
        assert (await app.policy.replay(data=found.data)).newly_allowed == 0


async def test_tools_that_the_organisation_enforces_stay_whatever_the_list_says() -> None:
    async with memory_app(enforcement={"enforced_tools": ["echo"]}) as app:
        await app.policy.set_allow_list("acme", {"personas": {"analyst": []}})
        for persona in ("analyst", "unheard-of", None):
            ann = Actor("acme", persona, "ann")
            assert [one.name for one in await app.tools.list(ann)] == ["echo"]
            assert (await app.invoke("echo", {"text": "x"}, actor=ann)).ok
            question = PolicyQuestion("acme", persona, "tool.request", "echo", "ann")
            assert EmbeddedRego(default_policy()).decide(question, app.policy.data, 0).decision.allow


# -- arguments


async def test_arguments_with_few_values_get_rules_that_a_policy_of_ours_enforces(tmp_path: Path) -> None:
    ann = Actor("acme", "analyst", "ann")
    async with memory_app() as app:
        app.tools.register_many([made(name) for name in NAMES])
        for number in range(MIN_ARGUMENT_CALLS):
            env = "staging" if number % 2 else "test"
            await app.invoke("deploy", {"path": f"/reports/{number}/a.txt", "env": env}, actor=ann)
            await app.invoke("probe", {"path": f"word {number}", "env": "staging" if number else "once"}, actor=ann)
            if number:
                await app.invoke("tidy", {"env": "staging"}, actor=ann)
        found = await app.policy.suggest(tenant="acme")
        rules = {(rule.tool, rule.argument): (rule.values, rule.under) for rule in found.personas[0].rules}
        assert rules == {("deploy", "env"): (("staging", "test"), None), ("deploy", "path"): ((), "/reports/")}
        assert found.rego is not None
        replayed = await app.policy.replay(found.rego, data=found.data)
        assert (replayed.same, replayed.newly_denied) == (found.calls, 0)
        lists = found.data["tenant_tool_allow"]["acme"]

    file = tmp_path / "suggested.rego"
    file.write_text(found.rego)
    async with memory_app(policy={"file": file}) as app:
        app.tools.register_many([made(name) for name in NAMES])
        await app.policy.set_allow_list("acme", lists)
        for arguments, allowed in (
            ({"path": "/reports/new.txt", "env": "test"}, True),
            ({"path": "/reports/new.txt"}, True),
            ({"path": "/reports/new.txt", "env": "production"}, False),
            ({"path": "/reports/../etc/shadow", "env": "test"}, False),
            ({"path": "/reports/%2e%2e/x", "env": "test"}, False),
            ({"path": "/etc/shadow", "env": "test"}, False),
        ):
            outcome = await app.invoke("deploy", arguments, actor=ann)
            assert outcome.ok is allowed, arguments
        assert (await app.invoke("probe", {"env": "anything"}, actor=ann)).ok


async def test_no_rule_is_made_of_what_is_masked_or_secret() -> None:
    @tool(tier="read_only")
    async def sign(password: str, key: str, mode: str) -> str:
        """Sign in."""
        return mode + str(len(password + key))

    ann = Actor("acme", "analyst", "ann")
    secret = "ghp_" + "a8Kd02mNq7" * 4
    async with memory_app() as app:
        app.register(sign)
        for _ in range(MIN_ARGUMENT_CALLS):
            await app.invoke("sign", {"password": "hunter2-hunter2", "key": secret, "mode": "fast"}, actor=ann)
        found = await app.policy.suggest(tenant="acme")
        assert [(rule.argument, rule.values) for rule in found.personas[0].rules] == [("mode", ("fast",))]
        assert "hunter2" not in str(found)
        assert secret not in str(found)


# -- properties, on every engine

TENANTS = ("acme", "*", "a.b")
ODD = (
    "look",
    "*",
    "look*",
    'a"b',
    "a.b",
    "a/b",
    "..",
    "{}",
    "ä ö",
    "\u2028",
    "%s",
    "code_execute",
    "no_persona",
    "null",
    "\\",
)
WHO: tuple[str | None, ...] = ("analyst", None, "*", "", 'p"q', "null", "personas", "ünknown")
PAIRS = st.dictionaries(
    st.tuples(st.sampled_from(TENANTS), st.sampled_from([one for one in WHO if one != ""])),
    st.sets(st.sampled_from(ODD), max_size=5),
    max_size=6,
)


@pytest.fixture(scope="module")
def opa() -> Iterator[Opa]:
    with running() as server:
        yield server


def candidate(used: Mapping[tuple[str, str | None], set[str]]) -> dict[str, Any]:
    """The documents of an installation with all odd tools, and the lists that this use suggests for each tenant."""
    lists = {
        tenant: suggested_list({who: tools for (whose, who), tools in used.items() if whose == tenant}).document()
        for tenant in TENANTS
    }
    catalog = {name: {"enabled": True, "requires_permission": None, "tier": "read_only", "runs_code": False} for name in ODD}
    permissions = {who: {"can_add_tools": True} for who in WHO if who}
    return {**EMPTY_DOCUMENTS, "tool_catalog": catalog, "persona_permissions": permissions, "tenant_tool_allow": lists}


def questions() -> Iterator[PolicyQuestion]:
    for tenant in TENANTS:
        for who in (*WHO, "unheard-of"):
            for action in sorted(ACTIONS):
                for name in ODD:
                    question = PolicyQuestion(tenant, who, action, name, "ann")
                    if question.fault() is None:
                        yield question


def expected(used: Mapping[tuple[str, str | None], set[str]], question: PolicyQuestion) -> bool:
    may_add = question.action != "tool.enable" or question.persona in {who for who in WHO if who}
    return question.tool in used.get((question.tenant, question.persona), set()) and may_add


@at_most(25)
@given(PAIRS)
def test_the_suggested_data_allows_exactly_the_used_pairs(used: dict[tuple[str, str | None], set[str]]) -> None:
    documents = candidate(used)
    given_data = GivenDocument(documents)
    lists = {name: AllowList.of_document(one) for name, one in documents["tenant_tool_allow"].items()}
    data = policy_data(documents, allow_lists=lists)
    assert data.whole().get("tenant_tool_allow") == documents["tenant_tool_allow"]
    machine, interpreter = EmbeddedRego.default(), EmbeddedRego(default_policy())
    for question in questions():
        allow = expected(used, question)
        assert machine.decide(question, data, 0).decision.allow is allow, question
        assert interpreter.decide(question, given_data, 0).decision.allow is allow, question
        if question.action == "tool.view":
            assert bool(may_view(data, question.tenant, question.persona, [question.tool])) is allow
        if question.action == "tool.request":
            assert (lets_request(data, question) is not None) is allow


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@at_most(5)
@given(used=PAIRS)
def test_an_opa_server_says_the_same(opa: Opa, used: dict[tuple[str, str | None], set[str]]) -> None:
    opa.load(default_policy(), candidate(used))
    for question in questions():
        said = opa.evaluate("decision", question.input(EVERYTHING))
        assert said["allow"] is expected(used, question), question


TOOLS = st.frozensets(st.sampled_from(ODD[:4]), max_size=3)
LISTS = st.dictionaries(
    st.sampled_from(TENANTS),
    st.builds(
        AllowList,
        st.dictionaries(st.sampled_from(["analyst", "*", "null"]), TOOLS, max_size=2),
        st.none() | TOOLS,
        TOOLS,
        st.booleans(),
    ),
    max_size=2,
)


@at_most(10)
@given(lists=LISTS)
def test_any_allow_lists_mean_the_same_to_every_engine(opa: Opa, lists: dict[str, AllowList]) -> None:
    documents = {**candidate({}), "tenant_tool_allow": {name: one.document() for name, one in lists.items()}}
    data, machine = policy_data(documents, allow_lists=lists), EmbeddedRego.default()
    opa.load(default_policy(), documents)
    for tenant, who, name in product(TENANTS, ("analyst", None, "*", "unheard-of"), ODD[:4]):
        question = PolicyQuestion(tenant, who, "tool.request", name, "ann")
        listed = lists[tenant].tools_of(who) if tenant in lists else None
        allow = listed is None or name in listed
        assert (lets_request(data, question) is not None) is allow, question
        assert machine.decide(question, data, 0).decision.allow is allow, question
        assert machine.evaluate(question.input(EVERYTHING), documents).decision.allow is allow, question
        assert opa.evaluate("decision", question.input(EVERYTHING))["allow"] is allow, question


@pytest.mark.parametrize("wrong", [False, [], "none", 7, None])
def test_a_malformed_document_of_allow_lists_denies_on_every_engine(opa: Opa, wrong: Any) -> None:
    documents = {**candidate({}), "tenant_tool_allow": wrong}
    question = PolicyQuestion("acme", "analyst", "tool.request", "look", "ann")
    assert not EmbeddedRego.default().evaluate(question.input(EVERYTHING), documents).decision.allow
    opa.load(default_policy(), documents)
    assert opa.evaluate("decision", question.input(EVERYTHING))["allow"] is False


VALUES: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["staging", "/reports/a", "/reports/../a", "/reportsx", "", "/reports/"]), st.booleans(),
    st.integers(0, 2), st.none(), st.just(["staging"]), st.just({"staging": 1}),
)  # fmt: skip


@at_most(15)
@given(value=VALUES)
def test_rules_on_arguments_say_the_same_on_both_engines(opa: Opa, value: Any) -> None:
    rules = [ArgumentRule("look", "env", ("staging", 1, None), None, 60), ArgumentRule("look", 'pa"th', (), "/reports/", 60)]
    text = with_argument_rules(default_policy(), [PersonaUse("acme", None, [], [], 0, [], [], rules)])
    assert text is not None
    documents = candidate({("acme", None): {"look"}})
    embedded = EmbeddedRego(text)
    opa.load(text, documents)
    for argument in ("env", 'pa"th', "other"):
        question = PolicyQuestion("acme", None, "tool.request", "look", "ann", arguments={argument: value})
        fits = (
            value in ("staging", None) or (value == 1 and value is not True) if argument == "env"
            else value in ("/reports/a", "/reports/") if argument != "other" else True
        )  # fmt: skip
        assert embedded.decide(question, GivenDocument(documents), 0).decision.allow is fits, (argument, value)
        assert opa.evaluate("decision", question.input(EVERYTHING))["allow"] is fits, (argument, value)


# -- size


@pytest.mark.matrix("fifty thousand calls; the month of calls holds the promise")
async def test_a_long_log_is_read_within_bounds(tmp_path: Path) -> None:
    """The counts answer, and no more calls are read for arguments than is said."""
    moment = datetime.now(UTC)
    async with App.open(home=tmp_path) as app:
        for number in range(50_000):
            record(app, moment - timedelta(seconds=number), "acme", f"p{number % 7}", f"tool_{number % 50}")
        await app.statistics.catch_up()
        begun = time.perf_counter()
        found = await app.policy.suggest(tenant="acme")
        assert (found.calls, found.read_calls) == (50_000, 20_000)
        assert time.perf_counter() - begun < 10
