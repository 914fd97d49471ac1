"""Whether a tool's credential works, by the test that the tool brings (document B's testMethod): `test_auth(credential)`, a
method of a class-based tool or an attribute of a function. It answers True or False within the tool's time.
"""

import asyncio
import inspect
from functools import partial
from typing import Any, Literal, NamedTuple

from toolgate.app.app import App
from toolgate.cli.context import diverted
from toolgate.cli.missing import why_missing
from toolgate.errors import Denied, Failed, described
from toolgate.model import Actor, Entry


class Tested(NamedTuple):
    """What came of a test."""

    result: Literal["works", "refused", "failed", "untested", "missing", "not needed"]
    message: str
    credential: str | None = None
    """Its name."""
    advice: str | None = None


async def test_credential(app: App, tool: str, actor: Actor) -> Tested:
    """Test the credential that a tool would be given for an actor."""
    try:
        entry = app.catalog.resolve(tool, actor.tenant)
    except Failed as error:
        error.suggestion = await why_missing(app, tool, actor)
        raise
    if entry.auth is None:
        return Tested("not needed", "it declares no credential")
    name = entry.auth.config_key
    try:
        value = app.secrets.credential(entry, actor)
    except Denied as error:
        return Tested("missing", error.reason or error.message, name, error.suggestion)
    if value is None:
        return Tested("missing", f"{name} is not set; the tool can do without", name)
    method = _method(entry)
    if method is None:
        advice = "Give the tool a method `async def test_auth(self, credential: str) -> bool`."
        return Tested("untested", f"{name} is set, but the tool has no way to test it", name, advice)
    with diverted():
        trouble, works = await _ask(app, entry, method, value)
    if trouble is not None:
        return Tested("failed", app.redactor.text(trouble, (value,)), name)
    return Tested("works", f"{name} works", name) if works else Tested("refused", f"{name} was refused", name)


def _method(entry: Entry) -> Any:
    code = entry.implementation
    found = [getattr(getattr(code, part, None), "test_auth", None) for part in ("instance", "function")]
    return next((method for method in found if callable(method)), None)


async def _ask(app: App, entry: Entry, method: Any, value: str) -> tuple[str | None, bool]:
    """What went wrong, and the tool's answer. The tool is made ready as for a call and cleaned up again."""
    instance: Any = entry.implementation.instance
    try:
        async with asyncio.timeout(entry.timeout):
            if hasattr(instance, "initialize"):
                await _run(app, instance.initialize)
            try:
                return None, await _run(app, partial(method, value)) is True
            finally:
                if hasattr(instance, "cleanup"):
                    await _run(app, instance.cleanup)
    except TimeoutError:
        return f"no answer within {entry.timeout:g} s", False
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is its answer
        return described(error), False


async def _run(app: App, method: Any) -> Any:
    if inspect.iscoroutinefunction(method.func if isinstance(method, partial) else method):
        return await method()
    future = app.local.threads.submit(method)
    try:
        return await future
    except asyncio.CancelledError:
        app.local.threads.give_up()
        raise
