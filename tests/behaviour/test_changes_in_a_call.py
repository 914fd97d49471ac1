"""What an operator changes while a call waits between two gates holds for that call at every gate still ahead of it.

A call may wait long: for a hook, for a person. Whatever the line knows beforehand of policies, flags and grants is of that
moment only; each gate looks when the call enters it.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.asking import ADA, BOSS, Workshop
from toolgate import App, Hook, InvokeContext, Outcome, tool
from toolgate.gates.approval.request import Answer, GrantTerms
from toolgate.pipeline.hooks import STAGES
from toolgate.testing import ManualClock, memory_app

pytestmark = pytest.mark.requirement("POL-4", "PIPE-2")

Act = Callable[[], Awaitable[object]]
HEAD = "package soma.policy\nimport rego.v1\n"
ALLOWS = HEAD + "allow if true\n"
DENIES = HEAD + 'allow if input.action == "tool.view"\n'
READS_ARGUMENTS = DENIES + "allow if input.context.arguments.amount <= 100\n"
LONG = GrantTerms("persona", 3_600)


def until(last: str) -> list[str]:
    """The stages from a call's beginning to the one before a gate."""
    return list(STAGES[: STAGES.index(last) + 1])


class At(Hook):
    """Waits at one stage for something to be done by somebody else."""

    def __init__(self, stage: str, act: Act) -> None:
        async def wait(_ctx: InvokeContext) -> None:
            await act()

        setattr(self, stage, wait)


def pay(ran: list[int]) -> Any:
    @tool(name="pay", tier="read_only")
    async def pay(amount: int) -> int:
        """Pay an amount."""
        ran.append(amount)
        return amount

    return pay


def code(outcome: Outcome) -> str | None:
    return None if outcome.error is None else outcome.error.code


@pytest.mark.parametrize("stage", until("will_authorize"))
@pytest.mark.parametrize(("before", "after"), [(ALLOWS, DENIES), (DENIES, ALLOWS)], ids=["forbidden", "permitted"])
async def test_a_policy_that_changes_before_its_gate(tmp_path: Path, stage: str, before: str, after: str) -> None:
    ran: list[int] = []
    outcome = await called_while_the_policy_changes(tmp_path, ran, stage, before, after)
    assert (outcome.ok, ran) == ((True, [500]) if after is ALLOWS else (False, []))


@pytest.mark.parametrize("stage", until("will_normalize_input"))
async def test_a_policy_that_comes_to_read_arguments(tmp_path: Path, stage: str) -> None:
    ran: list[int] = []
    outcome = await called_while_the_policy_changes(tmp_path, ran, stage, ALLOWS, READS_ARGUMENTS)
    assert (code(outcome), ran) == ("PERMISSION_DENIED", [])


async def called_while_the_policy_changes(folder: Path, ran: list[int], stage: str, before: str, after: str) -> Outcome:
    file = folder / "own.rego"
    file.write_text(before)
    async with memory_app(policy={"file": file}) as app:
        app.register(pay(ran))
        first = await app.invoke("pay", {"amount": 500})  # what is known of it, is known by now
        assert first.ok is (before is ALLOWS)
        ran.clear()

        async def change() -> None:
            file.write_text(after)
            await app.policy.reload()

        app.add_hook(At(stage, change))
        return await app.invoke("pay", {"amount": 500})


@pytest.mark.requirement("REG-4")
@pytest.mark.parametrize("stage", until("will_check_feature_flags"))
@pytest.mark.parametrize("tenant", [None, "acme"], ids=["everybody", "tenant"])
@pytest.mark.parametrize("enabled", [True, False], ids=["on", "off"])
@pytest.mark.sample(4)
async def test_a_flag_that_changes_before_its_gate(stage: str, tenant: str | None, enabled: bool) -> None:
    ran: list[int] = []
    async with memory_app() as app:
        app.register(pay(ran))
        await app.tools.set_enabled("pay", not enabled, tenant=tenant)
        assert (await app.invoke("pay", {"amount": 1}, actor=ADA)).ok is not enabled
        ran.clear()
        app.add_hook(At(stage, lambda: app.tools.set_enabled("pay", enabled, tenant=tenant)))
        outcome = await app.invoke("pay", {"amount": 1}, actor=ADA)
    if enabled and STAGES.index(stage) <= STAGES.index("will_authorize"):  # for the policy looks at flags too
        assert (outcome.status, ran) == ("success", [1])
    else:
        assert (code(outcome), ran) == ("TOOL_NOT_FOUND", [])


@pytest.mark.requirement("TIER-2")
@pytest.mark.parametrize("stage", until("will_check_consent"))
@pytest.mark.parametrize("change", ["created", "revoked", "expired"])
@pytest.mark.sample(4)
async def test_a_grant_that_changes_before_its_gate(stage: str, change: str) -> None:
    workshop, clock = Workshop(), ManualClock()
    async with memory_app(clock=clock) as app:
        workshop.move_into(app)
        grant = None if change == "created" else await app.grants.create("run", LONG, actor=ADA, by=BOSS)

        async def act() -> None:
            if grant is None:
                await app.grants.create("run", LONG, actor=ADA, by=BOSS)
            elif change == "revoked":
                await app.grants.revoke(grant.id, actor=BOSS)
            else:
                clock.advance(hours=2)

        app.add_hook(At(stage, act))
        outcome = await app.invoke("run", {"task": "ls"}, actor=ADA)
    assert outcome.status == ("success" if change == "created" else "pending"), outcome
    assert len(workshop.ran) == (1 if change == "created" else 0)


@pytest.mark.requirement("TIER-2")
@pytest.mark.parametrize("change", ["policy", "flag", "registration"])
async def test_what_changes_while_a_person_thinks(tmp_path: Path, change: str) -> None:
    file, workshop = tmp_path / "own.rego", Workshop()
    file.write_text(ALLOWS)
    async with memory_app(policy={"file": file}) as app:
        workshop.move_into(app)

        async def agree(_request: Any) -> Answer:
            await CHANGES[change](app, file)
            return Answer("approve")

        app.approvals.add_approver(agree)
        outcome = await app.invoke("run", {"task": "ls"}, actor=ADA)
    assert (outcome.ok, workshop.ran) == (False, []), outcome


async def _deny(app: App, file: Path) -> None:
    file.write_text(DENIES)
    await app.policy.reload()


async def _switch_off(app: App, _file: Path) -> None:
    await app.tools.set_enabled("run", False)


async def _register_another(app: App, _file: Path) -> None:
    @tool(name="run", tier="execute")
    async def run(task: str) -> str:
        """Run something else."""
        return task

    app.register(run)


CHANGES = {"policy": _deny, "flag": _switch_off, "registration": _register_another}
