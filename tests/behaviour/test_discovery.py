"""Discovery: a model that is listed few of its tools finds, reads and calls the others, and none that are not its own."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviour.nesting import BOSS, Bench, approve, waits
from tests.behaviour.test_dynamic_tools import FIELDS, LoudRunner
from tests.examples import at_most
from tests.many_tools import many
from tests.secret_use import named
from tests.till import DOLLAR
from toolgate import Actor, App, InvokeContext, Outcome, tool
from toolgate.app.checks.models import model_checks
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.model import CALL_TOOL, DISCOVERY_TOOLS, LOCAL
from toolgate.registry.export import count_tokens, definition_text
from toolgate.serve.http.invocations import summary_of
from toolgate.services.tool_directory import ToolDirectory
from toolgate.store.audit_log import latest
from toolgate.testing import ManualClock, memory_app

pytestmark = pytest.mark.requirement("AGENT-3")

ADA, EVE = Actor("acme", "analyst", "ada"), Actor("other", "developer", "eve")
DOWNSTREAM = "weigh_statue"


async def names(app: App, actor: Actor = LOCAL) -> list[str]:
    return [found.name for found in (await app.tools.served(actor)).tools]


async def search(app: App, *phrasings: str, actor: Actor = ADA, **more: Any) -> dict[str, Any]:
    outcome = await app.invoke("search_tools", {"phrasings": list(phrasings), **more}, actor=actor)
    assert outcome.ok, outcome
    return dict(outcome.output)


async def call(app: App, name: str, arguments: dict[str, Any], actor: Actor = ADA, **more: Any) -> Outcome:
    return await app.invoke(CALL_TOOL, {"name": name, "arguments": arguments}, actor=actor, **more)


# -- the list


@pytest.mark.requirement("REG-7")
async def test_few_tools_are_all_listed_and_those_of_discovery_are_not() -> None:
    async with memory_app() as app:
        served = await app.tools.served(ADA)
        assert not served.is_discovery
        assert {found.name for found in await app.tools.list(ADA)} - set(await names(app, ADA)) == DISCOVERY_TOOLS
        assert not DISCOVERY_TOOLS & {one["name"] for one in await app.tools.export("anthropic", ADA)}
        prompt = await app.tools.prompt(ADA)
        assert not DISCOVERY_TOOLS & {one.name for one in prompt.tools}
        assert "search_tools" not in await app.tools.typed("python", ADA)


@pytest.mark.requirement("REG-7")
async def test_many_tools_are_searched_instead_of_listed_and_take_a_fraction_of_the_tokens() -> None:
    async with memory_app(discovery={"pinned": ["calculator", "no_such_tool"]}) as app:
        before = await app.tools.prompt(ADA)
        app.tools.register_many(many())
        served = await app.tools.served(ADA)
        assert served.is_discovery
        assert await names(app, ADA) == ["calculator", "call_tool", "describe_tool", "search_tools"]
        assert [one["name"] for one in await app.tools.export("mcp", ADA)] == await names(app, ADA)
        prompt = await app.tools.prompt(ADA)
        costs = await app.tools.token_costs(ADA)
        assert sum(costs.values()) > 20_000 and prompt.tokens < 1_500 < before.tokens
        in_text = await app.tools.prompt(ADA, style="json")
        assert "search_tools" in in_text.text and DOWNSTREAM not in in_text.text
        hints = next(one for one in await app.tools.export("mcp", ADA) if one["name"] == CALL_TOOL)["annotations"]
        assert hints == {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True}


@pytest.mark.parametrize(("mode", "extra", "expected"), [("never", 300, False), ("always", 0, True), ("auto", 300, True)])
async def test_a_setting_decides_whatever_the_size(mode: str, extra: int, expected: bool) -> None:
    async with memory_app(discovery={"mode": mode}) as app:
        app.tools.register_many(many(extra))
        served = await app.tools.served(ADA)
        assert served.is_discovery is expected
        assert bool(DISCOVERY_TOOLS & set(await names(app, ADA))) is expected


async def test_the_size_is_that_of_what_an_actor_may_see() -> None:
    """A persona with few tools reads them all, beside one that has to search."""
    async with memory_app(discovery={"above_tokens": 1_000}) as app:
        few = {"calculator", "echo", "timestamp"}
        for found in await app.tools.list(ADA):
            if found.name not in few | DISCOVERY_TOOLS:
                await app.tools.disable(found.name, persona="clerk")
        assert await names(app, Actor("acme", "clerk", "ada")) == sorted(few)
        assert (await app.tools.served(ADA)).is_discovery


async def test_who_lacks_a_tool_of_discovery_is_listed_all() -> None:
    async with memory_app(discovery={"mode": "always"}) as app:
        await app.tools.disable(CALL_TOOL, persona="clerk")
        assert "calculator" in await names(app, Actor("acme", "clerk", "ada"))
        assert await names(app, ADA) == sorted(DISCOVERY_TOOLS)


async def test_the_tools_that_a_tenant_used_most_are_listed_from_the_next_day_on_and_for_that_tenant_alone() -> None:
    clock = ManualClock()
    async with memory_app(clock=clock, discovery={"listed": 2}) as app:
        app.tools.register_many(many())
        for name, count in (("weigh_statue", 3), ("sort_invoice", 2), ("count_parcel", 1)):
            for number in range(count):
                assert (await call(app, name, {"number": number})).ok  # through call_tool counts as well
        assert (await call(app, "merge_lesson", {"number": 1}, actor=EVE)).ok
        for _ in range(9):
            assert not (await app.invoke("print_camera", {}, actor=ADA)).ok  # what fails is no use
        first = await app.tools.served(ADA)
        assert {one.name for one in first.tools} == DISCOVERY_TOOLS  # a list does not change within a day
        assert await app.tools.served(Actor("acme", "analyst", "bob")) is first

        clock.advance(days=1)
        second = await app.tools.served(ADA)
        assert {one.name for one in second.tools} - DISCOVERY_TOOLS == {"weigh_statue", "sort_invoice"}
        assert {*await names(app, EVE)} - DISCOVERY_TOOLS == {"merge_lesson"}
        await app.invoke("count_parcel", {"number": 1}, actor=ADA)
        assert await app.tools.served(ADA) is second
        await app.tools.disable("weigh_statue", tenant="acme")
        assert {*await names(app, ADA)} - DISCOVERY_TOOLS == {"sort_invoice", "count_parcel"}
        clock.advance(days=31)
        assert {*await names(app, EVE)} == DISCOVERY_TOOLS


@given(st.data())
@at_most(60)
def test_whatever_an_actor_may_see_a_list_is_part_of_it_and_the_rest_is_within_reach(data: st.DataObject) -> None:
    """Of any set of tools, above and below any size: all of them, or those of discovery and the pinned ones."""

    async def check() -> None:
        pinned = data.draw(st.sets(st.sampled_from(["echo", "calculator", "sort_invoice", CALL_TOOL])))
        above = data.draw(st.integers(0, 9_000))
        async with memory_app(discovery={"pinned": sorted(pinned), "above_tokens": above}) as app:
            every = {one.name: one for one in await app.tools.list(ADA)}
            chosen = data.draw(st.sets(st.sampled_from(sorted(every))))
            permitted = tuple(every[name] for name in sorted(chosen | data.draw(st.sampled_from([set(), DISCOVERY_TOOLS]))))
            served = await app.parts.served.choose(permitted, "acme")
            may, listed = {one.name for one in permitted}, [one.name for one in served.tools]
            tokens = sum(count_tokens(definition_text(one)) for one in permitted if one.name not in DISCOVERY_TOOLS)
            assert served.is_discovery == (may >= DISCOVERY_TOOLS and tokens > above)
            assert listed == sorted(DISCOVERY_TOOLS | (pinned & may) if served.is_discovery else may - DISCOVERY_TOOLS)

    asyncio.run(check())


@pytest.mark.matrix("a list of 100,000 tools takes seconds to make; the cache is the same for 300")
async def test_a_list_that_is_cached_takes_no_time_however_many_tools_there_are() -> None:
    from toolgate.model import Tool
    from toolgate.registry.compile import compile_entry

    async with memory_app() as app:
        for number in range(100_000):
            app.parts.catalog.add(
                compile_entry(Tool(name=f"t{number}", description="One of many."), None, (), app.parts.rules)
            )
        assert (await app.tools.served(ADA)).is_discovery
        began = time.perf_counter()
        for _ in range(100):
            await app.tools.served(ADA)
        assert (time.perf_counter() - began) / 100 < 0.001


# -- search and description


async def test_a_task_in_several_phrasings_finds_the_tool_with_what_it_takes_to_choose() -> None:
    async with memory_app() as app:
        app.tools.register_many(many())
        found = await search(app, "how heavy is it", "weigh a statue", limit=3)
        best = found["tools"][0]
        assert best["name"] == "weigh_statue" and best["tier"] == "read_only"
        assert best["description"].startswith("Weigh the statue") and "\n" not in best["description"]
        assert 0 < best["score"] <= 1 and best["tokens"] == (await app.tools.token_costs(ADA))["weigh_statue"]
        assert len(found["tools"]) == 3 and "describe_tool" in found["next_step"]
        ours = await search(app, "search tools", "describe tool", "call tool", limit=50)
        assert not DISCOVERY_TOOLS & {one["name"] for one in ours["tools"]}


async def test_where_nothing_fits_that_is_said_with_what_to_do() -> None:
    async with memory_app() as app:
        found = await search(app, "zzqqxxyy")
        assert found["tools"] == [] and "No tool that you may use fits" in found["next_step"]
        assert "other words" in found["next_step"]


async def test_a_description_has_all_that_a_call_takes() -> None:
    @tool(tier="write", cost="0.25")
    async def delete_account(number: int) -> str:
        """Delete an account."""
        return f"gone: {number}"

    async with memory_app() as app:
        app.register(delete_account)
        outcome = await app.invoke("describe_tool", {"names": ["delete_account", "file_operations", "nope"]}, actor=ADA)
        account, files = outcome.output["tools"]
        assert outcome.output["unknown"] == ["nope"]
        assert account["parameters"]["required"] == ["number"] and account["description"] == "Delete an account."
        assert (account["tier"], account["cost_usd"], account["asks"]) == ("write", 0.25, "it is destructive")
        assert files["operations"]["delete"] == "write" and files["asks"] is not None


@pytest.mark.requirement("IO-1")
@pytest.mark.parametrize("phrasings", [[], [""], ["x"] * 9, ["x" * 501]])
async def test_phrasings_are_one_to_eight(phrasings: list[str]) -> None:
    async with memory_app() as app:
        outcome = await app.invoke("search_tools", {"phrasings": phrasings})
        assert outcome.error is not None and outcome.error.code == "VALIDATION_ERROR"


# -- what is hidden


@tool(tier="read_only")
async def sculpture_scale(text: str) -> str:
    """Weigh sculptures."""
    return text


HIDDEN: dict[str, Callable[[App], Any]] = {
    "disabled for all": lambda app: app.tools.disable("sculpture_scale"),
    "disabled for the tenant": lambda app: app.tools.disable("sculpture_scale", tenant="acme"),
    "denied to the persona": lambda app: app.tools.disable("sculpture_scale", persona="analyst"),
    "denied to all": lambda app: app.policy.deny("sculpture_scale"),
}


async def reach(app: App, name: str, actor: Actor = ADA) -> tuple[bool, bool, str | None]:
    """Whether a tool is found, whether it is described, and the code of the error that a call of it ends with."""
    found = await search(app, "sculpture scale", name, "ask a language model", actor=actor, limit=50)
    described = (await app.invoke("describe_tool", {"names": [name]}, actor=actor)).output
    assert len(described["tools"]) + len(described["unknown"]) == 1
    error = (await call(app, name, {"text": "x"}, actor=actor)).error
    return name in {one["name"] for one in found["tools"]}, bool(described["tools"]), None if error is None else error.code


@pytest.mark.requirement("POL-7")
@pytest.mark.parametrize("how", list(HIDDEN))
async def test_what_is_hidden_from_an_actor_is_neither_found_nor_described_nor_called(how: str) -> None:
    async with memory_app() as app:
        app.register(sculpture_scale)
        assert await reach(app, "sculpture_scale") == (True, True, None)
        await HIDDEN[how](app)
        assert await reach(app, "sculpture_scale") == (False, False, "TOOL_NOT_FOUND")
        hidden = await call(app, "sculpture_scale", {"text": "x"})
        missing = await call(app, "sculpture_scala", {"text": "x"})
        assert hidden.error is not None and missing.error is not None
        assert hidden.error.message.replace("scale", "scala") == missing.error.message
        assert (hidden.error.suggestion, hidden.status) == (missing.error.suggestion, missing.status)


@pytest.mark.requirement("POL-7")
async def test_tools_of_other_tenants_and_internal_ones_are_out_of_reach() -> None:
    async with memory_app() as app:
        app.add_runner("loud", LoudRunner(), tier="read_only")
        await app.policy.allow_adding_tools("developer")
        made = await app.tools.add_dynamic({**FIELDS, "description": "A sculpture scale."}, EVE)
        assert (await reach(app, made.name, EVE))[:2] == (True, True)
        assert await reach(app, made.name) == (False, False, "TOOL_NOT_FOUND")
        assert await reach(app, "ask_model") == (False, False, "TOOL_NOT_FOUND")


@pytest.mark.requirement("POL-7")
async def test_a_subordinate_finds_what_everybody_above_it_has_too() -> None:
    async with memory_app() as app:
        app.register(sculpture_scale)
        await app.tools.disable("sculpture_scale", persona="clerk")
        directory: ToolDirectory = app.parts.providers.everywhere[ToolDirectory]
        clerk = Actor("acme", "clerk", "ada")
        for actors, expected in (((ADA,), True), ((ADA, clerk), False), ((clerk, ADA), False)):
            found = (await directory.search(["sculpture scale"], actors, 5)).entries
            assert ("sculpture_scale" in {one.entry.name for one in found}) is expected
            assert (await directory.find("sculpture_scale", actors) is not None) is expected


# -- the call


@pytest.mark.requirement("TIER-9", "TIER-6")
async def test_an_approval_shows_the_tool_that_is_called_and_the_same_call_runs_it_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "did")
    database = f"sqlite:///{tmp_path / 'a.db'}"
    async with App.open(os.devnull, database_url=database, home=tmp_path / "home", entry_points=False) as app:
        bench.move_into(app)
        id = waits(await call(app, "risky", {"text": "now"}))
        asked = (await app.approvals.get(id, "acme")).request
        assert (asked.tool, asked.tier, asked.arguments) == ("risky", "execute", {"text": "now"})
        assert bench.did == []
        await approve(app, id, BOSS)
    async with bench.move_into(
        App.open(os.devnull, database_url=database, home=tmp_path / "home", entry_points=False)
    ) as app:
        outcome = await call(app, "risky", {"text": "now"}, approval=id)
        assert (outcome.status, outcome.output) == ("success", "did now")
        assert bench.did == ["risky now"]
        waits(await call(app, "risky", {"text": "other"}))  # the answer was for one call


@pytest.mark.requirement("PIPE-9", "PIPE-1")
async def test_the_call_inside_is_on_record_as_its_own_and_a_key_has_one_effect(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "did")
    async with memory_app() as app:
        bench.move_into(app)
        first = await call(app, "note", {"text": "a"}, idempotency_key="k")
        again = await call(app, "note", {"text": "a"}, idempotency_key="k")
        assert first.output == again.output == "noted a" and bench.did == ["note a"]
        other = await call(app, "note", {"text": "b"}, idempotency_key="k")
        assert other.error is not None and other.error.code == "IDEMPOTENCY_CONFLICT" and bench.did == ["note a"]
        [inner] = await app.audit.calls_within(first.id, tenant="acme")
        told = summary_of(*inner)
        assert (told.tool, told.parent, told.user, told.status) == ("note", first.id, "ada", "success")


@pytest.mark.requirement("COST-2")
async def test_what_the_call_inside_costs_is_spent_and_refused_as_its_own() -> None:
    @tool(tier="write", cost="0.60")
    async def buy(what: str) -> str:
        """Buy something."""
        return what

    async with memory_app() as app:
        app.register(buy)
        await app.budgets.set(new_budget("day", DOLLAR, tenant="acme"))
        assert (await call(app, "buy", {"what": "tea"})).ok
        second = await call(app, "buy", {"what": "tea"})
        assert second.error is not None and second.error.code == "BUDGET_EXCEEDED"
        [status] = [one for one in await app.budgets.list() if one.budget.tier is None]
        assert (status.spent, status.reserved) == (600_000_000, 0)


@pytest.mark.requirement("POL-1")
async def test_a_rule_on_the_tool_that_is_called_holds() -> None:
    """The policy sees the call by its own name and tier, not by those of call_tool."""
    async with memory_app() as app:
        app.register(sculpture_scale)
        seen: list[tuple[str, str | None]] = []

        class Notes:
            def will_authorize(self, ctx: InvokeContext) -> None:
                seen.append((ctx.call.tool, ctx.call.parent))

        app.add_hook(Notes())
        outcome = await call(app, "sculpture_scale", {"text": "x"})
        assert seen == [(CALL_TOOL, None), ("sculpture_scale", outcome.id)]


@pytest.mark.parametrize("name", sorted(DISCOVERY_TOOLS))
async def test_the_tools_of_discovery_do_not_call_each_other(name: str) -> None:
    async with memory_app() as app:
        error = (await call(app, name, {"name": "echo", "arguments": {}})).error
        assert error is not None and error.code == "INVALID_INPUT" and f"Call {name} directly" in (error.suggestion or "")


async def test_errors_and_long_outputs_are_those_of_a_direct_call() -> None:
    @tool(tier="read_only")
    async def long_story() -> str:
        """Tell a long story."""
        return "word " * 10_000

    async with memory_app() as app:
        app.register(long_story)
        wrong = await call(app, "calculator", {"expresion": "1"})
        direct = await app.invoke("calculator", {"expresion": "1"}, actor=ADA)
        assert wrong.error is not None and wrong.error == direct.error
        told, plain = await call(app, "long_story", {}), await app.invoke("long_story", actor=ADA)
        assert told.output == plain.output and len(told.output) < 11_000
        assert told.artifact is not None and plain.artifact is not None and told.artifact.bytes == plain.artifact.bytes


@pytest.mark.requirement("IO-5")
async def test_a_secret_is_filled_for_the_tool_that_is_named_for_it_and_not_on_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_KEY", "correct-horse-battery-7")
    seen: list[str] = []

    @tool(tier="read_only")
    async def send(text: str) -> str:
        """Send."""
        seen.append(text)
        return "sent"

    async with memory_app(secrets=named("KEY", "send")) as app:
        app.tools.register_many([send, sculpture_scale])
        assert (await call(app, "send", {"text": "{{secret:KEY}}"})).ok
        assert seen == ["correct-horse-battery-7"]
        refused = (await call(app, "sculpture_scale", {"text": "{{secret:KEY}}"})).error
        assert refused is not None and refused.code == "PERMISSION_DENIED"
        await app.parts.store.flush()
        assert "correct-horse" not in str(await app.parts.store.read(latest(100)))


@pytest.mark.requirement("SBX-1")
async def test_code_in_the_sandbox_does_not_become_somebody_else_by_it() -> None:
    """A call of code may name no secret and starts no other program: through call_tool it would be no call of code."""

    @tool(tier="read_only")
    async def as_code(ctx: InvokeContext) -> str | None:
        """Call as the code of a program does."""
        outcome = await ctx.call_inside(CALL_TOOL, {"name": "echo", "arguments": {"text": "x"}})
        return outcome.error.code if outcome.error is not None else None

    async with memory_app() as app:
        app.register(as_code)
        assert (await app.invoke("as_code", actor=ADA)).output == "INVALID_INPUT"


@pytest.mark.requirement("DOOR-4")
@pytest.mark.parametrize(("pinned", "level"), [(["calculator"], "ok"), (["calculater"], "warning")])
async def test_doctor_tells_of_a_pinned_name_that_no_tool_has(pinned: list[str], level: str) -> None:
    async with memory_app(discovery={"pinned": pinned}) as app:
        [found] = [one async for one in model_checks(app) if one.name == "discovery"]
        assert found.status == level and ("calculater" in found.message) is (level == "warning")
