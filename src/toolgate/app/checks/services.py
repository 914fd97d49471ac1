"""Checks of what decides, counts and keeps: policy, Redis, stores of secrets, and what waits for a person."""

import shlex
from collections.abc import AsyncIterator
from importlib.util import find_spec
from time import perf_counter
from typing import Literal

from toolgate.app.app import App
from toolgate.app.checks.check import Check
from toolgate.app.checks.policy import ask_policy
from toolgate.coordination.redis import BusError
from toolgate.errors import ToolgateError, plural
from toolgate.gates.secrets.sources import Vault
from toolgate.model import LOCAL

PACKAGES = {"file": "cryptography", "keyring": "keyring"}
"""What each store of secrets needs."""


async def service_checks(app: App) -> AsyncIterator[Check]:
    yield await _policy(app)
    redis = await _redis(app)
    yield redis
    if redis.status == "ok":
        yield await _circuits(app)
    for source in app.parts.secrets.sources:
        if isinstance(source, Vault):
            yield _vault(source)
    yield await _waiting(app)


async def _policy(app: App) -> Check:
    """The engine must deny a tool that can't exist."""
    engine = app.parts.guard.engine
    if engine.remote is True:
        name = "an OPA server decides"
    else:
        name = "the shipped policy decides" if engine.shipped else f"{app.settings.policy.file} decides"
    begun = perf_counter()
    verdict = await ask_policy(app)
    took = f"asked in {(perf_counter() - begun) * 1000:.1f} ms"
    if not verdict.sure:
        advice = "Until it answers, everything is denied. See the settings opa_url and policy."
        return Check("policy", "fault", f"{name}, but {verdict.decision.reason}", advice)
    if verdict.decision.allow:
        words = f"{name}, and allows a tool that does not exist: {verdict.decision.reason}"
        return Check("policy", "warning", words, "Begin the policy with `default allow := false`, and look the tool up.")
    return Check("policy", "ok", f"{name} ({app.parts.guard.policy_hash[:12]}), {took}")


async def _redis(app: App) -> Check:
    if app.parts.redis is None:
        return Check("redis", "unused", "not set: each process counts its own limits, and has its own breakers and caches")
    try:
        begun = perf_counter()
        await app.parts.redis.ping()
    except ToolgateError as error:
        return Check("redis", "fault", error.message, error.suggestion)
    return Check("redis", "ok", f"{app.parts.redis.place} answers in {(perf_counter() - begun) * 1000:.1f} ms")


async def _circuits(app: App) -> Check:
    """Only what processes share can be told: the doctor's own has just begun."""
    try:
        circuits = await app.parts.breakers.open_everywhere()
    except BusError as error:
        return Check("circuits", "fault", error.message, error.suggestion)
    if not circuits:
        return Check("circuits", "ok", "no circuit is open in the processes that share Redis")
    return Check(
        "circuits", "warning", f"open: {', '.join(circuits)}", "Their targets failed; each is tried again by itself."
    )


def _vault(source: Vault) -> Check:
    """A store of secrets that can't be read is broken. One that lacks its package is not in use; that is worth knowing."""
    broken: Literal["warning", "fault"] = "fault" if find_spec(PACKAGES[source.name]) is not None else "warning"
    try:
        held, why_not = len(source.held()), source.why_not()
    except ToolgateError as error:
        return Check("credentials", broken, f"{source.name}: {error.message}", error.suggestion)
    if why_not is not None:
        lost = f"; its {plural(held, 'secret')} can't be read" if held else ""
        return Check("credentials", broken if held else "warning", f"{source.name}: {why_not}{lost}")
    return Check("credentials", "ok", f"{source.name}: {plural(held, 'secret')}")


async def _waiting(app: App) -> Check:
    """What only a person can settle."""
    try:
        approvals, keys = await app.approvals.counts(), await app.idempotency.unsettled()
        definitions, changes = await app.servers.quarantined(), app.workspace.changes()
    except ToolgateError as error:
        return Check("waiting", "fault", error.message, error.suggestion)
    words, advice = [], []
    if approvals:
        tenants = ", ".join(f"{number} of tenant {tenant}" for tenant, number in sorted(approvals.items()))
        whose = "" if approvals.keys() == {LOCAL.tenant} else f" ({tenants})"
        words.append(f"{plural(sum(approvals.values()), 'approval')}{whose}")
        tenant = "'*'" if len(approvals) > 1 else shlex.quote(next(iter(approvals)))
        option = "" if tenant == LOCAL.tenant else f" --tenant {tenant}"
        advice.append(f"`toolgate approvals list{option}` shows what waits for a yes.")
    if keys:
        words.append(f"{plural(len(keys), 'idempotency key')} whose outcome is unknown")
        advice.append("`toolgate idempotency list` shows the keys; `settle` settles them.")
    if definitions:
        words.append(f"{plural(len(definitions), 'definition')} of MCP servers to be accepted")
        advice.append("`toolgate tools accept --all` shows them, and asks.")
    if changes:
        words.append(f"{plural(len(changes), 'set')} of changes in workspaces")
        advice.append("`toolgate workspace list` shows what programs changed and was not brought in.")
    return Check(
        "waiting", "warning" if keys else "ok", ", ".join(words) or "nothing waits for a person", " ".join(advice) or None
    )
