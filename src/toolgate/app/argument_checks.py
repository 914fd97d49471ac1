"""Answers to a gate that needs another gate's view of a call's arguments."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from toolgate.errors import CallError
from toolgate.model import Call, CommandEntry
from toolgate.pipeline.context import InvokeContext, Providers, runs_nothing

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts


class ArgumentChecks:
    """Answers to a gate that needs another gate's view of a call's arguments: no gate knows another, the App knows all."""

    def __init__(self, parts: "Parts") -> None:
        self._parts = parts

    def workspace(self, call: Call) -> str:
        """The folder that a call works in, without links, whether it is there yet or not. One of Toolgate's own is named
        from its home: processes that share a store may have theirs elsewhere. One that was chosen for this call alone ends
        in a slash: settings say nothing of it, before or after."""
        folder = Path(os.path.realpath(self._parts.places.known(call) or Path.cwd()))
        home = Path(os.path.realpath(self._parts.settings.home))
        if folder.is_relative_to(home):
            return str(folder.relative_to(home))
        return str(folder) if call.workspace is None else f"{folder}{os.sep}"

    def canonical(self, tool: str, tenant: str, workspace: str, arguments: dict[str, Any]) -> bytes:
        """Arguments that a person edited, as they would run in a folder; raises a CallError if they do not fit the tool."""
        entry = self._parts.catalog.resolve(tool, tenant)
        ctx = InvokeContext(Call("", tool, arguments), Providers(), runs_nothing, 0, 0.0, arguments, None)
        self._parts.inputs.accept(ctx, entry)
        if entry.guards is not None:
            governing = entry.of_call(ctx.arguments)
            self._parts.tiers.check(governing, ctx.arguments, Path(os.path.realpath(self._parts.settings.home)) / workspace)
        return ctx.canonical

    async def masked(self, tool: str, tenant: str, canonical: bytes) -> bytes:
        """Arguments as records may hold them."""
        arguments = orjson.loads(canonical)
        if not self._parts.redactor.ready:
            await self._parts.redactor.prepare(arguments)
        return self._parts.redactor.arguments(
            canonical, arguments, self._parts.catalog.resolve(tool, tenant).public_input, ()
        )

    async def masked_text(self, text: str) -> str:
        """A text as records may hold it."""
        if not self._parts.redactor.ready:
            await self._parts.redactor.prepare(text)
        return self._parts.redactor.text(text)

    async def may_run(self, ctx: InvokeContext, command: str, allow: tuple[CommandEntry, ...] | None) -> bool:
        """Tells whether a command would be let through for the actor of a call; asking a person is not part of it."""
        actor, call = ctx.call.actor, ctx.call
        try:
            entry = self._parts.catalog.resolve("execute_command", actor.tenant)
            decisions = [
                await self._parts.guard.decide(
                    one, "tool.request", entry.name, tier=entry.tier, session=call.session, door=call.door
                )
                for one in call.actors
            ]
            if entry.guards is not None:
                self._parts.tiers.check(entry, {"command": command}, self._parts.places.known(call), allow)
        except CallError:
            return False
        return all(decision.allow for decision in decisions) and self._parts.catalog.why_off(entry, actor.tenant) is None
