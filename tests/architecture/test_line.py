"""The list of gates and the line that calls take are the same, and a call walks through the rooms in that order."""

from decimal import Decimal
from pathlib import Path

import pytest

from tests.docs.walk import Visit, figures, followed, walk_of_calculator, ways_of_terminal, zigzags
from toolgate import tool
from toolgate.model import Actor, Auth, Background, Call, Capability, Cost, RateLimit, SpendingLimit
from toolgate.pipeline.gate_order import LINE
from toolgate.pipeline.hooks import STAGES
from toolgate.pipeline.invoke import Pipeline
from toolgate.testing import memory_app

READS_ARGUMENTS = """package soma.policy
import rego.v1
allow if input.context.arguments.file != "secret"
"""
NO_GATES = {
    "Guard.known",  # what is remembered of the policy, which saves the gate
    "Inputs.parse",
    "Consent.key_hash",
    "Redaction.mask_arguments",  # for a person to see
    "Catalog.resolve",  # the tool again, after a person has answered
    "Consent.must_be_unchanged",
    "SpendingLimits.check",  # before a person is asked
    "Budgets.confirm",
    "Idempotency.confirm",
    "Budgets.charge",
    "Running.leave",
}
"""What the line asks of rooms besides the gates."""


@tool(
    tier="read_only",
    capabilities=(Capability(action="look", requires_confirmation=True),),
    cost=Cost(fixed=Decimal("0.01"), free_tier_limit=0),
    rate_limit=RateLimit(per_minute=9),
    concurrency=3,
    cache=60,
    requires_auth=Auth(config_key="BANK"),
)
async def everything(file: str) -> str:
    """Meets every gate."""
    return file * 2


@tool(tier="read_only")
async def plain(file: str) -> str:
    """Asks nobody, so the copy that records hold is made where it has its own place; and says much."""
    return file * 50_000


async def traced(folder: Path) -> tuple[Pipeline, list[list[Visit]]]:
    """A call with a key, a price and limits, a path, a secret, an approval and a cache; a plain one; one that is queued."""
    file = folder / "own.rego"
    file.write_text(READS_ARGUMENTS)
    actor = Actor("acme", "analyst", "ada")
    async with memory_app(policy={"file": file}) as app:
        app.tools.register_many([everything, plain])
        app.approvals.add_approver(lambda _request: True)
        pipeline: Pipeline = app.parts.pipeline
        limit = SpendingLimit(10**9)
        rich = Call("1", "everything", {"file": "notes.md"}, actor, idempotency_key="k", spending_limit=limit)
        plain_call = Call("2", "plain", {"file": "a"}, actor)
        later = Call("3", "everything", {"file": "notes.md"}, actor, background=Background())
        return pipeline, [await followed(pipeline(call)) for call in (rich, plain_call, later)]


async def test_the_list_of_gates_is_the_order_of_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_BANK", "open sesame, please")
    pipeline, walks = await traced(tmp_path)
    gates = [getattr(getattr(pipeline, gate.room), gate.enter).__func__.__code__ for gate in LINE]
    unmet = set(gates)
    for visits in walks:
        passed = [visit for visit in visits if visit.caller in ("pipeline/invoke.py", "pipeline/gates.py")]
        met = list(dict.fromkeys(visit.code for visit in passed if visit.code in gates))
        assert [code.co_qualname for code in met] == [code.co_qualname for code in gates if code in met]
        unmet -= set(met)
        rooms = [visit for visit in passed if visit.file.startswith(("gates/", "registry/", "runners/"))]
        others = {visit.function for visit in rooms if visit.code not in gates and "._" not in visit.function}
        assert {name for name in others if not name.endswith(".leave")} <= NO_GATES, (
            "a gate of the line that is not in the list"
        )
    assert unmet == set(), "a gate of the list that no call meets"


def test_every_gate_stands_at_a_stage_in_the_order_of_stages() -> None:
    stages = [gate.stage for gate in LINE if gate.stage]
    assert set(stages) <= set(STAGES)
    assert stages == sorted(stages, key=STAGES.index)


async def test_a_call_walks_through_the_rooms_in_the_order_of_the_line() -> None:
    """It comes back to a room only for another gate of the line, or to leave one."""
    visits = await walk_of_calculator()
    async with memory_app() as app:
        pipeline = app.parts.pipeline
        order = [getattr(getattr(pipeline, gate.room), gate.enter).__func__.__code__ for gate in LINE]
    spine = [visit for visit in visits if visit.caller == "pipeline/invoke.py" and visit.code in order]
    places = [order.index(visit.code) for visit in spine]
    assert places == sorted(set(places)), [visit.function for visit in spine]
    assert visits[0].function == "Pipeline.__call__"
    files, functions, _changes = figures(visits)
    assert files <= 19
    assert functions <= 60


def test_a_call_from_the_terminal_goes_straight_down_and_back() -> None:
    """Whatever it opens, calls and closes: no way down comes back to a room that it has left."""
    ways = ways_of_terminal()
    assert zigzags(ways) == []
    reached = {function for way in ways for _, function in way}
    assert {"calculator", "Execution.run", "McpTools.look", "SqliteStore.start"} <= reached
    from_cli = list(dict.fromkeys(way[1][1] for way in ways if len(way) > 1 and way[0][0].startswith("cli/")))
    steps = ["App.__init__", "App.__aenter__", "App.invoke", "Pipeline.__call__", "App.__aexit__"]
    assert [step for step in from_cli if step in steps] == steps


def test_a_way_that_comes_back_to_a_room_is_seen() -> None:
    straight = (("cli/call.py", "call"), ("app/app.py", "App.invoke"), ("store/open.py", "open_store"))
    assert zigzags((straight, (*straight, ("app/events.py", "Events.record")))) == [
        "cli/call.py call > app/app.py App.invoke > store/open.py open_store > app/events.py Events.record"
    ]


def test_every_gate_of_the_line_is_in_the_time_of_one_that_is_marked() -> None:
    """Details of calls show gates in the order of the line; a new stage has to be given a mark, or to a gate before it."""
    stages = {gate.stage for gate in LINE}
    timed = {gate.stage for gate in LINE if gate.timed}
    with_others = {"", "will_check_feature_flags", "will_transform_output"}
    after_the_end = {"will_write_cache", "will_audit"}
    assert stages - timed == with_others | after_the_end
    marks = [gate.mark for gate in LINE if gate.mark in STAGES]
    assert all(STAGES.index(gate.mark) < STAGES.index(gate.stage) for gate in LINE if gate.mark in marks)
