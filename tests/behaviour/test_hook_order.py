"""The order of the stages on every path, as CONTRACTS section 1 has it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.recording import Recorder
from toolgate import Hook, InvokeContext, Outcome, Retry, ToolError, tool
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("PIPE-2", "PIPE-3", "PIPE-5")

OPEN = ["will_create_invoke_context", "did_create_invoke_context", "will_bind_providers"]
GATES = ["will_authorize", "will_check_feature_flags"]
INPUT = ["will_parse_input", "will_validate_input", "will_normalize_input"]
ROOM = ["will_check_consent", "will_acquire_quota", "will_acquire_semaphore", "will_redact_input"]
UNTIL_CACHE = [*OPEN, *GATES, *INPUT, *ROOM, "will_read_cache"]
UNTIL_RUN = [*UNTIL_CACHE, "did_cache_miss", "will_inject_secrets"]
OUTPUT = ["will_validate_output", "will_redact_output", "will_transform_output"]
RECORD = ["will_audit", "did_audit", "on_metrics"]
RELEASE = ["did_release_semaphore", "did_release_quota"]
END = [*RECORD, *RELEASE, "will_finalize_invoke"]
RUN = ["around_execute(", "will_execute", "did_execute", ")"]


async def stages_of(
    code: Any, *hooks: Any, arguments: dict[str, Any] | None = None, calls: int = 1
) -> tuple[list[str], Outcome]:
    """The stages of the last of some equal calls."""
    recorder = Recorder()
    async with memory_app() as app:
        app.add_hook(recorder)
        for hook in hooks:
            app.add_hook(hook)
        declared = app.register(code)
        for _ in range(calls):
            recorder.seen.clear()
            outcome = await app.invoke(declared.name, arguments or {})
    return recorder.seen, outcome


@tool(tier="read_only")
async def answer() -> int:
    """The answer."""
    return 42


@tool(tier="read_only", cache=60)
async def remembered() -> int:
    """The answer, kept for a minute."""
    return 42


async def test_success() -> None:
    seen, outcome = await stages_of(answer)
    assert seen == [*UNTIL_RUN, *RUN, *OUTPUT, "will_write_cache", *END]
    assert outcome.output == 42


async def test_cache_hit() -> None:
    seen, outcome = await stages_of(remembered, calls=2)
    assert seen == [*UNTIL_CACHE, "did_cache_hit", *END]
    assert outcome.metrics.cached
    assert outcome.output == 42


async def test_a_declined_cache_hit_runs_the_tool() -> None:
    class Decline(Hook):
        def did_cache_hit(self, ctx: InvokeContext) -> None:
            ctx.decline_cache_hit()

    seen, outcome = await stages_of(remembered, Decline(), calls=2)
    after_hit = [*UNTIL_CACHE, "did_cache_hit", "did_cache_miss", "will_inject_secrets"]
    assert seen == [*after_hit, *RUN, *OUTPUT, "will_write_cache", *END]
    assert not outcome.metrics.cached


@pytest.mark.parametrize("stage", [*UNTIL_RUN])
@pytest.mark.sample(4)
async def test_respond_before_execution_goes_on_with_the_output(stage: str) -> None:
    seen, outcome = await stages_of(answer, acting_at(stage, lambda ctx: ctx.respond(7)))
    assert seen == [
        *UNTIL_RUN[: UNTIL_RUN.index(stage) + 1],
        *OUTPUT,
        *RECORD,
        *released_after(stage),
        "will_finalize_invoke",
    ]
    assert (outcome.status, outcome.output) == ("success", 7)


async def test_respond_in_execution_goes_on_with_the_output() -> None:
    @tool(tier="read_only")
    async def early(ctx: InvokeContext) -> int:
        """Answers by the way out."""
        ctx.respond(7)

    seen, outcome = await stages_of(early)
    assert seen == [*UNTIL_RUN, "around_execute(", "will_execute", ")", *OUTPUT, *END]
    assert outcome.output == 7


@pytest.mark.parametrize("stage", [*UNTIL_RUN])
@pytest.mark.sample(4)
async def test_abort_runs_the_error_stages(stage: str) -> None:
    seen, outcome = await stages_of(answer, acting_at(stage, lambda ctx: ctx.abort("not now", "PERMISSION_DENIED")))
    before = UNTIL_RUN[: UNTIL_RUN.index(stage) + 1]
    assert seen == [*before, "on_error", *RECORD, *released_after(stage), "will_finalize_invoke"]
    assert outcome.status == "denied"
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.message) == ("PERMISSION_DENIED", "not now")


async def test_retry_after_runs_the_error_stages_and_says_when() -> None:
    class Later(Hook):
        priority = -1

        def will_acquire_quota(self, ctx: InvokeContext) -> None:
            ctx.retry_after(1500, "busy")

    seen, outcome = await stages_of(answer, Later())
    before = UNTIL_RUN[: UNTIL_RUN.index("will_acquire_quota") + 1]
    assert seen == [*before, "on_error", *RECORD, "will_finalize_invoke"]
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.retryable) == ("RATE_LIMITED", True)
    assert outcome.error.details == {"retry_after": 1.5}


async def test_tool_error() -> None:
    @tool(tier="read_only")
    async def broken() -> int:
        """Raises."""
        raise ValueError("no")

    seen, outcome = await stages_of(broken)
    assert seen == [*UNTIL_RUN, "around_execute(", "will_execute", ")", "on_error", *END]
    assert outcome.status == "failure"


async def test_timeout() -> None:
    @tool(tier="read_only", timeout=0.05)
    async def slow() -> int:
        """Sleeps."""
        await asyncio.sleep(30)
        return 1

    seen, outcome = await stages_of(slow)
    assert seen == [*UNTIL_RUN, "around_execute(", "will_execute", ")", "on_error", *END]
    assert outcome.status == "timeout"


def failing(times: int) -> Any:
    """A tool that can't reach its target the first few times."""
    left = times

    @tool(tier="read_only", retry=Retry(max_attempts=3, backoff_ms=1))
    async def flaky() -> str:
        """Fails, then works."""
        nonlocal left
        left -= 1
        if left >= 0:
            raise ConnectionError("not yet")
        return "done"

    return flaky


async def test_retry_then_success() -> None:
    seen, outcome = await stages_of(failing(2))
    attempts = ["will_execute", "on_retry", "will_execute", "on_retry", "will_execute", "did_execute"]
    assert seen == [*UNTIL_RUN, "around_execute(", *attempts, ")", *OUTPUT, "will_write_cache", *END]
    assert (outcome.output, outcome.metrics.attempts) == ("done", 3)


async def test_give_up() -> None:
    seen, outcome = await stages_of(failing(9))
    attempts = ["will_execute", "on_retry", "will_execute", "on_retry", "will_execute", "on_give_up"]
    assert seen == [*UNTIL_RUN, "around_execute(", *attempts, ")", "on_error", *END]
    assert outcome.error is not None
    assert (outcome.error.code, outcome.metrics.attempts) == ("CONNECTION_ERROR", 3)


async def test_an_error_that_is_not_listed_is_not_retried() -> None:
    @tool(tier="read_only", retry=Retry(max_attempts=3, backoff_ms=1))
    async def picky() -> str:
        """Refuses."""
        raise ToolError("never", code="INVALID_INPUT")

    seen, outcome = await stages_of(picky)
    assert seen == [*UNTIL_RUN, "around_execute(", "will_execute", ")", "on_error", *END]
    assert outcome.metrics.attempts == 1


@pytest.mark.requirement("TIER-2")
async def test_a_destructive_write_waits_for_a_person_and_one_that_only_sounds_so_does_not() -> None:
    @tool(tier="write")
    async def delete_user() -> int:
        """Would destroy."""
        return 1

    @tool(tier="read_only")
    async def airdrop_info() -> int:
        """Destroys nothing."""
        return 1

    assert (await stages_of(delete_user))[1].status == "pending"
    assert (await stages_of(airdrop_info))[1].status == "success"


async def test_pending_runs_no_error_stage() -> None:
    @tool(tier="execute")
    async def dangerous() -> int:
        """Would run code."""
        return 1

    seen, outcome = await stages_of(dangerous)
    assert seen == [*UNTIL_RUN[: UNTIL_RUN.index("will_check_consent") + 1], *RECORD, "will_finalize_invoke"]
    assert outcome.status == "pending"
    assert outcome.pending is not None
    assert outcome.pending.kind == "approval"


async def test_invalid_arguments_stop_before_consent() -> None:
    seen, outcome = await stages_of(answer, arguments={"x": 1})
    before = UNTIL_RUN[: UNTIL_RUN.index("will_validate_input") + 1]
    assert seen == [*before, "on_error", *RECORD, "will_finalize_invoke"]
    assert outcome.error is not None
    assert outcome.error.code == "VALIDATION_ERROR"


async def test_an_unknown_tool_has_the_error_stages_only() -> None:
    recorder = Recorder()
    async with memory_app() as app:
        app.add_hook(recorder)
        outcome = await app.invoke("nothing")
    assert recorder.seen == ["on_error", *RECORD, "will_finalize_invoke"]
    assert outcome.error is not None
    assert outcome.error.code == "TOOL_NOT_FOUND"


def acting_at(stage: str, act: Callable[[InvokeContext], None]) -> Hook:
    """A hook that does something at a stage, after the recorder has seen it."""

    class ActThere(Hook):
        priority = 1 if stage.startswith("did_") else -1

    setattr(ActThere, stage, lambda _self, ctx: act(ctx))
    return ActThere()


def released_after(stage: str) -> list[str]:
    """What a call holds once it has passed a stage is what it gives back."""
    place = UNTIL_RUN.index("will_acquire_semaphore")
    held = [*(["did_release_semaphore"] if UNTIL_RUN.index(stage) > place else [])]
    quota = UNTIL_RUN.index("will_acquire_quota")
    return [*held, *(["did_release_quota"] if UNTIL_RUN.index(stage) > quota else [])]
