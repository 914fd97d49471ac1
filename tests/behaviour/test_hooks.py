"""What hooks can do: order, filter, wrap, shape input and output, bind providers, and fail without harm."""

import asyncio
import json
from typing import Any

import pytest

from toolgate import App, Hook, InvokeContext, Tool, tool
from toolgate.pipeline.hooks import Next
from toolgate.store import audit_log
from toolgate.testing import memory_app


@tool(tier="read_only")
async def double(number: int) -> int:
    """Twice a number."""
    return number * 2


async def end_record(app: App) -> dict[str, Any]:
    """The body of the last end record."""
    await app.flush()
    rows = await app.parts.store.read(audit_log.latest(20))
    bodies = [json.loads(row[7]) for row in rows if row[2] == "end"]
    found: dict[str, Any] = bodies[-1]
    return found


@pytest.mark.requirement("PIPE-3")
async def test_a_higher_priority_runs_earlier_and_at_did_stages_later() -> None:
    seen: list[str] = []

    def hook(name: str, rank: int) -> Hook:
        class Named(Hook):
            priority = rank

            def will_execute(self, _ctx: InvokeContext) -> None:
                seen.append(f"will {name}")

            async def did_execute(self, _ctx: InvokeContext) -> None:
                seen.append(f"did {name}")

            async def around_execute(self, _ctx: InvokeContext, inner: Next) -> Any:
                seen.append(f"around {name}")
                return await inner()

        return Named()

    async with memory_app() as app:
        app.add_hook(hook("low", 1))
        app.add_hook(hook("high", 9))
        app.register(double)
        await app.invoke("double", {"number": 1})
    assert seen == ["around high", "around low", "will high", "will low", "did low", "did high"]


@pytest.mark.requirement("PIPE-3")
async def test_priority_and_filter_may_be_methods_and_filter_may_be_async() -> None:
    seen: list[str] = []

    class Choosy:
        def priority(self) -> int:
            return 5

        async def filter(self, ctx: InvokeContext) -> bool:
            await asyncio.sleep(0)
            return ctx.actor.user == "local" and ctx.arguments == {"number": 2}

        def will_execute(self, ctx: InvokeContext) -> None:
            seen.append(ctx.id)

    async with memory_app() as app:
        app.add_hook(Choosy)
        app.register(double)
        await app.invoke("double", {"number": 1})
        second = await app.invoke("double", {"number": 2})
    assert seen == [second.id]


@pytest.mark.requirement("PIPE-3")
async def test_hooks_of_a_tool_run_for_that_tool_only() -> None:
    seen: list[str] = []

    class Mine(Hook):
        def will_execute(self, ctx: InvokeContext) -> None:
            assert isinstance(ctx.tool, Tool)
            seen.append(ctx.tool.name)

    @tool(tier="read_only", hooks=[Mine])
    async def hooked() -> int:
        """Has a hook."""
        return 1

    async with memory_app() as app:
        app.register(hooked)
        app.register(double)
        await app.invoke("hooked")
        await app.invoke("double", {"number": 1})
    assert seen == ["hooked"]


@pytest.mark.requirement("PIPE-3")
async def test_around_may_change_replace_or_skip_the_execution() -> None:
    class AddOne(Hook):
        priority = 2

        async def around_execute(self, _ctx: InvokeContext, inner: Next) -> Any:
            return await inner() + 1

    class Skip(Hook):
        async def around_execute(self, ctx: InvokeContext, inner: Next) -> Any:
            return 100 if ctx.arguments["number"] == 0 else await inner()

    async with memory_app() as app:
        app.add_hook(AddOne())
        app.add_hook(Skip())
        app.register(double)
        ran = await app.invoke("double", {"number": 5})
        skipped = await app.invoke("double", {"number": 0})
    assert (ran.output, ran.metrics.attempts) == (11, 1)
    assert (skipped.output, skipped.metrics.attempts) == (101, 0)


@pytest.mark.requirement("PIPE-4")
async def test_input_and_output_remember_what_they_were() -> None:
    histories: list[Any] = []

    class Shape(Hook):
        def will_parse_input(self, ctx: InvokeContext) -> None:
            ctx.input = {"number": ctx.input["text"]}

        def will_validate_input(self, ctx: InvokeContext) -> None:
            ctx.input = {"number": int(ctx.input["number"])}

        def will_transform_output(self, ctx: InvokeContext) -> None:
            ctx.output = f"={ctx.output}"

        def will_finalize_invoke(self, ctx: InvokeContext) -> None:
            histories.extend([ctx.input_history, ctx.output_history])

    async with memory_app() as app:
        app.add_hook(Shape())
        app.register(double)
        outcome = await app.invoke("double", {"text": "21"})
    assert outcome.output == "=42"
    assert histories == [({"text": "21"}, {"number": "21"}), (42,)]


@pytest.mark.requirement("PIPE-4")
@pytest.mark.parametrize("stage", ["will_check_consent", "will_read_cache", "will_execute"])
async def test_arguments_can_not_change_once_they_are_validated(stage: str) -> None:
    class Sneak(Hook):
        pass

    def assign(_self: Any, ctx: InvokeContext) -> None:
        ctx.input = {"number": 666}

    setattr(Sneak, stage, assign)
    async with memory_app() as app:
        app.add_hook(Sneak())
        app.register(double)
        outcome = await app.invoke("double", {"number": 1})
    assert outcome.error is not None
    assert outcome.error.code == "UNEXPECTED_ERROR"
    assert "Sneak" in outcome.error.message


@pytest.mark.requirement("PIPE-4")
async def test_what_a_caller_does_to_its_arguments_later_reaches_neither_tool_nor_record() -> None:
    given = {"items": [1, 2]}

    class Mutate(Hook):
        def will_execute(self, _ctx: InvokeContext) -> None:
            given["items"].append(666)

    @tool(tier="read_only")
    async def total(items: list[int]) -> int:
        """Sum."""
        return sum(items)

    async with memory_app() as app:
        app.add_hook(Mutate())
        app.register(total)
        outcome = await app.invoke("total", given)
    assert outcome.output == 3


@pytest.mark.requirement("PIPE-4")
async def test_providers_are_found_in_request_then_session_then_global() -> None:
    found: list[Any] = []

    class Bind(Hook):
        def will_bind_providers(self, ctx: InvokeContext) -> None:
            found.append(ctx.try_get("greeting"))
            if ctx.session is not None and ctx.try_get("seen") is None:
                ctx.bind("seen", 1, scope="session")
            if ctx.arguments["number"] == 1:
                ctx.bind("greeting", "request")

        def will_execute(self, ctx: InvokeContext) -> None:
            found.append(ctx.get("greeting"))
            found.append(ctx.try_get("seen"))

    async with memory_app() as app:
        app.provide("greeting", "global")
        app.provide("greeting", "session", scope="session", session="s")
        app.add_hook(Bind())
        app.register(double)
        await app.invoke("double", {"number": 1}, session="s")
        await app.invoke("double", {"number": 2}, session="s")
        await app.invoke("double", {"number": 2})
    assert found == ["session", "request", 1, "session", "session", 1, "global", "global", None]


@pytest.mark.requirement("PIPE-4")
@pytest.mark.parametrize(
    "given", [{"a": 1}, [("a", 1)], type("Box", (), {"__init__": lambda self: setattr(self, "a", 1)})()]
)
async def test_will_bind_providers_may_return_providers(given: Any) -> None:
    found: list[Any] = []

    class Bind(Hook):
        def will_bind_providers(self, _ctx: InvokeContext) -> Any:
            return given

        def will_execute(self, ctx: InvokeContext) -> None:
            found.append(ctx.get("a"))

    async with memory_app() as app:
        app.add_hook(Bind())
        app.register(double)
        await app.invoke("double", {"number": 1})
    assert found == [1]


@pytest.mark.requirement("PIPE-4")
async def test_global_providers_can_not_change_in_a_call_and_scratch_data_is_shared() -> None:
    errors: list[type[BaseException]] = []

    class Try(Hook):
        def will_execute(self, ctx: InvokeContext) -> None:
            ctx.data["seen"] = ctx.user
            for attempt in (
                lambda: setattr(ctx, "global_providers", {}),
                lambda: ctx.bind("x", 1, scope="global"),  # type: ignore[arg-type]
                lambda: ctx.bind("x", 1, scope="session"),
                lambda: ctx.get("nothing"),
            ):
                try:
                    attempt()
                except (AttributeError, ValueError, LookupError) as error:
                    errors.append(type(error))

        def did_execute(self, ctx: InvokeContext) -> None:
            assert ctx.data == {"seen": "local"}

    async with memory_app() as app:
        app.add_hook(Try())
        app.register(double)
        assert (await app.invoke("double", {"number": 1})).ok
        assert "hook_errors" not in await end_record(app)
    assert errors == [AttributeError, ValueError, ValueError, LookupError]


@pytest.mark.requirement("PIPE-5")
@pytest.mark.parametrize("stage", ["will_create_invoke_context", "will_authorize", "will_read_cache", "will_execute"])
@pytest.mark.parametrize("error", [RuntimeError("oops"), SystemExit(3), KeyboardInterrupt()])
async def test_a_broken_hook_before_execution_stops_the_call_and_is_named(stage: str, error: BaseException) -> None:
    async with memory_app() as app:
        app.add_hook(raising(stage, error))
        app.register(double)
        outcome = await app.invoke("double", {"number": 1})
        assert outcome.error is not None
        assert outcome.error.code == "UNEXPECTED_ERROR"
        assert outcome.error.details == {"hook": "Broken", "stage": stage}


@pytest.mark.requirement("PIPE-5")
@pytest.mark.parametrize(
    "stage", ["did_execute", "will_transform_output", "will_write_cache", "did_audit", "on_metrics", "will_finalize_invoke"]
)
async def test_a_broken_hook_after_execution_is_recorded_and_the_outcome_stands(stage: str) -> None:
    async with memory_app() as app:
        app.add_hook(raising(stage, RuntimeError("oops")))
        app.register(double)
        outcome = await app.invoke("double", {"number": 4})
        assert (outcome.status, outcome.output) == ("success", 8)
        if stage in ("did_execute", "will_transform_output", "will_write_cache"):
            body = await end_record(app)
            assert body["hook_errors"] == [{"stage": stage, "hook": "Broken", "error": "RuntimeError: oops"}]


@pytest.mark.requirement("PIPE-5", "IO-2")
@pytest.mark.parametrize("method", ["will_redact_output", "filter"])
@pytest.mark.parametrize("given", ["global", "per tool", "respond"])
async def test_a_hook_that_raises_at_redaction_withholds_the_output(given: str, method: str) -> None:
    reached: list[str] = []

    class Masks(Hook):
        def will_redact_output(self, ctx: InvokeContext) -> None:
            raise ValueError(f"no mask for {ctx.output}")

        def will_transform_output(self, _ctx: InvokeContext) -> None:
            reached.append("will_transform_output")

    class Answers(Hook):
        def will_read_cache(self, ctx: InvokeContext) -> None:
            if given == "respond":
                ctx.respond("number 078051120")

    if method == "filter":
        Masks.filter = lambda _self, ctx: 1 // 0 if ctx.output else True  # type: ignore[attr-defined]

    @tool(tier="read_only", hooks=[Masks] if given == "per tool" else [])
    async def look_up() -> str:
        """Look up a number."""
        return "number 078051120"

    async with memory_app() as app:
        app.add_hook(Answers())
        if given != "per tool":
            app.add_hook(Masks())
        app.register(look_up)
        outcome = await app.invoke("look_up")
        record = await end_record(app)
    kind = "ZeroDivisionError" if method == "filter" else "ValueError"
    assert outcome.error is not None
    assert (outcome.status, outcome.output, outcome.error.code) == ("failure", None, "UNEXPECTED_ERROR")
    assert outcome.error.message == f"Hook Masks failed at will_redact_output: {kind}. The output is withheld."
    assert (outcome.error.retryable, outcome.error.details) == (False, {"hook": "Masks", "stage": "will_redact_output"})
    assert "078051120" not in str(outcome.to_dict()), "the words of the error may quote what was to be removed"
    assert kind in record["traceback"], "the operator sees where it failed"
    assert reached == []


@pytest.mark.requirement("PIPE-5", "IO-2")
async def test_an_output_that_could_not_be_redacted_is_not_cached() -> None:
    class Masks(Hook):
        broken = True

        def will_redact_output(self, ctx: InvokeContext) -> None:
            if self.broken:
                raise ValueError("no list of names")
            ctx.output = "[name]"

    @tool(tier="read_only", cache=60)
    async def look_up() -> str:
        """Look up a name."""
        return "Ada"

    masks = Masks()
    async with memory_app() as app:
        app.add_hook(masks)
        app.register(look_up)
        outcomes = [await app.invoke("look_up"), await app.invoke("look_up")]
        assert [(one.status, one.metrics.cached) for one in outcomes] == [("failure", False)] * 2
        masks.broken = False
        outcomes = [await app.invoke("look_up"), await app.invoke("look_up")]
        assert [(one.output, one.metrics.cached) for one in outcomes] == [("[name]", False), ("[name]", True)]
        masks.broken = True
        hit = await app.invoke("look_up")
        assert (hit.output, hit.metrics.cached) == ("[name]", True), "what the cache holds was redacted before"


@pytest.mark.requirement("PIPE-5")
async def test_a_broken_around_hook_is_told_from_a_broken_tool() -> None:
    class BrokenAround(Hook):
        async def around_execute(self, _ctx: InvokeContext, inner: Next) -> Any:
            await inner()
            raise RuntimeError("mine")

    @tool(tier="read_only")
    async def fails() -> int:
        """Fails."""
        raise ValueError("the tool's")

    async with memory_app() as app:
        app.add_hook(BrokenAround())
        app.register(double)
        app.register(fails)
        hook_fault = await app.invoke("double", {"number": 1})
        tool_fault = await app.invoke("fails")
    assert hook_fault.error is not None
    assert (hook_fault.error.code, hook_fault.error.details) == (
        "UNEXPECTED_ERROR",
        {"hook": "BrokenAround", "stage": "around_execute"},
    )
    assert tool_fault.error is not None
    assert tool_fault.error.code == "INVOCATION_ERROR"


@pytest.mark.requirement("PIPE-5")
@pytest.mark.parametrize("stage", ["did_execute", "will_redact_output"])
async def test_an_abort_after_execution_keeps_the_output_from_the_caller(stage: str) -> None:
    class Leak(Hook):
        pass

    setattr(Leak, stage, lambda _self, ctx: ctx.abort("that would leak", "SECURITY_VIOLATION", 451))
    async with memory_app() as app:
        app.add_hook(Leak())
        app.register(double)
        outcome = await app.invoke("double", {"number": 1})
    assert (outcome.status, outcome.output) == ("denied", None)
    assert outcome.error is not None
    assert outcome.error.details == {"http_status": 451}


@pytest.mark.requirement("PIPE-5")
async def test_an_abort_with_a_code_of_ones_own_is_a_denial_that_names_it() -> None:
    class Own(Hook):
        def will_authorize(self, ctx: InvokeContext) -> None:
            ctx.abort("no", "QUOTA_OF_CHEESE")

    async with memory_app() as app:
        app.add_hook(Own())
        app.register(double)
        outcome = await app.invoke("double", {"number": 1})
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.details) == ("PERMISSION_DENIED", {"code": "QUOTA_OF_CHEESE"})


@pytest.mark.requirement("PIPE-3")
async def test_something_without_a_stage_is_no_hook() -> None:
    class OnlyExplains:
        def explain(self, ctx: InvokeContext) -> None: ...

    async with memory_app() as app:
        for given in (object(), OnlyExplains()):
            with pytest.raises(TypeError, match="no method named like a stage"):
                app.add_hook(given)


def raising(stage: str, error: BaseException) -> Hook:
    class Broken(Hook):
        pass

    def fail(_self: Any, _ctx: InvokeContext) -> None:
        raise error

    setattr(Broken, stage, fail)
    return Broken()
