"""The choice of the jail for this machine: by trying to break out of it, never by looking whether a program is installed."""

import asyncio
from collections.abc import Mapping
from time import monotonic

import msgspec

from toolgate.sandbox.jail import Feature, Jail, Unavailable
from toolgate.sandbox.self_check import trial
from toolgate.settings import SandboxSettings
from toolgate.tasks import finish, start_task

ORDER = ("bubblewrap", "namespaces", "landlock")
"""The first that holds is taken."""
RETRY_SECONDS = 10.0
"""If nothing could hold code, it is tried again after this long."""


class JailReport(msgspec.Struct, frozen=True):
    """The result of trying one jail."""

    name: str
    available: bool
    reason: str | None
    """Why not."""
    enforces: Mapping[Feature, str]


class ChosenJail:
    """The jail that the settings mean: found out when it is first asked for, and anew some time after that failed."""

    def __init__(self, settings: SandboxSettings) -> None:
        self._settings = settings
        self._choosing: asyncio.Task[Jail] | None = None
        self._chosen_at = 0.0

    async def get(self) -> Jail:
        if self._choosing is None:
            self._choosing, self._chosen_at = start_task(choose(self._settings)), monotonic()
        try:
            return await finish(self._choosing)
        except Unavailable:
            if monotonic() > self._chosen_at + RETRY_SECONDS:
                self._choosing = None  # the machine may only have been too busy for the trial
            raise
        except asyncio.CancelledError:
            if self._choosing.cancelled():
                raise Unavailable("it is closed") from None
            raise

    async def close(self) -> None:
        if self._choosing is None:
            return
        if not self._choosing.done():
            self._choosing.cancel()
        elif not self._choosing.cancelled() and self._choosing.exception() is None:
            await self._choosing.result().close()


async def choose(settings: SandboxSettings) -> Jail:
    """The jail that is set, or the first that holds. Raises Unavailable with the reason of each that does not."""
    names = ORDER if settings.backend == "auto" else (settings.backend,)
    reasons: list[str] = []
    for name in names:
        try:
            return await _tried(name, settings)
        except Unavailable as error:
            reasons.append(f"{name}: {error}")
    if settings.backend != "auto":
        raise Unavailable(
            f"sandbox.backend names {' '.join(reasons)}",
            suggestion=f"Make {settings.backend} work, or set sandbox.backend to auto: then another that works is used.",
        )
    raise Unavailable("No sandbox holds on this machine. " + " ".join(reasons))


async def survey(settings: SandboxSettings) -> list[JailReport]:
    """All of them, tried one after another."""
    return [await _report(name, settings) for name in (*ORDER, "docker")]


async def _report(name: str, settings: SandboxSettings) -> JailReport:
    try:
        # Containers only if they are what is set, since they may take seconds.
        jail = await (_tried(name, settings) if name != "docker" or settings.backend == "docker" else _docker(settings))
    except Unavailable as error:
        return JailReport(name, False, str(error), {})
    try:
        return JailReport(name, True, None, dict(jail.enforces()))
    finally:
        await jail.close()


async def _tried(name: str, settings: SandboxSettings) -> Jail:
    jail = await _docker(settings) if name == "docker" else make(name)
    try:
        await trial(jail)
    except BaseException:
        await jail.close()
        raise
    return jail


def make(name: str) -> Jail:
    """A jail by its name, untried."""
    match name:
        case "bubblewrap":
            from toolgate.sandbox.jails.bubblewrap import Bubblewrap

            return Bubblewrap()
        case "namespaces":
            from toolgate.sandbox.jails.namespaces import Namespaces

            return Namespaces()
        case "landlock":
            from toolgate.sandbox.jails.landlock import Landlock

            return Landlock()
    raise Unavailable(f"There is no sandbox called {name!r}.")


async def _docker(settings: SandboxSettings) -> Jail:
    from toolgate.sandbox.jails.docker import Docker

    jail = Docker(command=settings.docker_command, image=settings.docker_image)
    try:
        await jail.probe()
    except BaseException:
        await jail.close()
        raise
    return jail
