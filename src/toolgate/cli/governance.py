"""The doctor's probes of what decides, counts and keeps: policy, Redis, stores of secrets, and what waits for a person."""

from collections.abc import AsyncIterator
from time import perf_counter

from toolgate.app import App
from toolgate.cli.checks import Check
from toolgate.errors import ToolgateError
from toolgate.policy.question import Question
from toolgate.secrets.sources import Vault

NO_SUCH_TOOL = "no tool has this name"


async def governance(app: App) -> AsyncIterator[Check]:
    """All of them."""
    yield await _policy(app)
    yield await _redis(app)
    for check in _vaults(app):
        yield check
    yield await _waiting(app)


async def _policy(app: App) -> Check:
    """Ask about a tool that can't exist: whatever decides must answer, and must say no."""
    engine, question = app.guard.engine, Question("default", None, "tool.request", NO_SUCH_TOOL, "local")
    begun = perf_counter()
    if engine.remote is True:
        name, verdict = "an OPA server decides", await engine.ask(question)
    else:
        name = "the shipped policy decides" if engine.shipped else f"{app.settings.policy.file} decides"
        verdict = engine.decide(question, app.policy_data, app.guard.epoch)
    took = f"asked in {(perf_counter() - begun) * 1000:.1f} ms"
    if not verdict.sure:
        advice = "Until it answers, everything is denied. See the settings opa_url and policy."
        return Check("policy", "fault", f"{name}, but {verdict.decision.reason}", advice)
    if verdict.decision.allow:
        words = f"{name}, and allows a tool that does not exist: {verdict.decision.reason}"
        return Check("policy", "warning", words, "Begin the policy with `default allow := false`, and look the tool up.")
    return Check("policy", "ok", f"{name} ({app.guard.policy_hash[:12]}), {took}")


async def _redis(app: App) -> Check:
    if app.redis is None:
        return Check("redis", "ok", "not used: limits, breakers and caches are this process's own")
    try:
        begun = perf_counter()
        await app.redis.ping()
    except ToolgateError as error:
        return Check("redis", "fault", error.message, error.suggestion)
    return Check("redis", "ok", f"{app.redis.place} answers in {(perf_counter() - begun) * 1000:.1f} ms")


def _vaults(app: App) -> list[Check]:
    found = []
    for source in app.secrets.sources:
        if not isinstance(source, Vault):
            continue
        why_not = source.why_not()
        if why_not is not None:
            found.append(Check("credentials", "warning", f"{source.name}: {why_not}"))
            continue
        try:
            held = len(source.held())
        except ToolgateError as error:
            found.append(Check("credentials", "fault", f"{source.name}: {error.message}", error.suggestion))
        else:
            found.append(Check("credentials", "ok", f"{source.name}: {held} {'secret' if held == 1 else 'secrets'}"))
    return found


async def _waiting(app: App) -> Check:
    """What only a person can settle."""
    try:
        approvals, keys = await app.approvals(), await app.unsettled_keys()
    except ToolgateError as error:
        return Check("waiting", "fault", error.message, error.suggestion)
    if not keys:
        words = f"{len(approvals)} approvals" if approvals else "nothing waits for a person"
        return Check("waiting", "ok", words, "`toolgate approvals list` shows them." if approvals else None)
    words = f"{len(approvals)} approvals, {len(keys)} idempotency keys whose outcome is unknown"
    return Check("waiting", "warning", words, "`toolgate idempotency list` shows them; `settle` settles them.")
