"""Keeps the policy in force in step with its file, with the data that it decides by, and with an OPA server."""

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from toolgate.gates.policy.documents import PolicyData, PolicyError
from toolgate.gates.policy.open import open_engine, pushed_text
from toolgate.store.catalog import Flags
from toolgate.tasks import start_task
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

WATCH_SECONDS = 1.0

logger = logging.getLogger("toolgate")


class PolicySync:
    """One for each App."""

    data: PolicyData
    """What the policy decides by; known when the App is open."""

    def __init__(self, parts: "Parts") -> None:
        self._parts = parts
        self._watching: asyncio.Task[None] | None = None
        self.use(Flags())

    def start(self) -> None:
        """Begins to watch the policy's file."""
        self._watching = start_task(self._watch())

    def stop(self) -> None:
        """Stops watching."""
        if self._watching is not None:
            self._watching.cancel()

    def use(self, flags: Flags) -> None:
        """Takes the flags of tools, tenants and personas that hold from now on."""
        self.data = PolicyData(
            catalog=self._parts.catalog.policy_entry,
            names=self._parts.catalog.names,
            tenants=flags.tenants,
            personas=flags.personas,
            can_add_tools=flags.can_add_tools,
            global_deny=flags.global_deny,
            restricted_tenants=flags.restricted_tenants,
            enforced=self._parts.settings.enforcement.enforced_tools,
            tenant_names=self._parts.catalog.tenant_names,
            epoch=flags.epoch,
        )
        self._parts.guard.use(self.data)

    async def push(self) -> None:
        """Gives an OPA server what it is to decide by. If it does not take it, it denies everything until it does."""
        engine = self._parts.guard.engine
        if not (self._parts.settings.policy.push and engine.remote is True):
            return
        try:
            await engine.push(pushed_text(self._parts.settings.policy, self._parts.project.refusal), self.data.whole())
        except PolicyError as error:
            logger.error("%s", error)
        self._parts.guard.forget()

    async def reload(self) -> None:
        """Reads the policy's file again. One that is wrong is refused, and the policy in force stays."""
        if self._parts.guard.engine.remote is False:
            engine = await to_thread(open_engine, self._parts.settings.policy, None, self._parts.project.refusal)
            self._parts.guard.set_engine(engine)
        await self.push()

    async def _watch(self) -> None:
        """Takes a changed policy file without a restart, and pushes again what an OPA server did not take."""
        file, engine = self._parts.settings.policy.file, self._parts.guard.engine
        known = _stamp(file)
        while file is not None or self._parts.settings.policy.push or self._parts.observer is not None:
            await asyncio.sleep(WATCH_SECONDS)
            if self._parts.observer is not None:
                self._parts.observer.reload_changed()
            if (found := _stamp(file)) != known:
                known = found
                try:
                    await self.reload()
                except Exception as error:  # noqa: BLE001 - whatever it is, the next change must be seen
                    logger.error("the changed policy is not used, the one before stays in force: %s", error)
            elif engine.remote is True and not engine.is_ready:
                await self.push()


def _stamp(file: Path | None) -> tuple[int, int, int] | None:
    """A value that changes when a file does; None if there is none, or it cannot be looked at."""
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
