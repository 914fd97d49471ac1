"""The system prompt: how the model is to work, the tools that its actor may see, and the manner of its persona.

What comes from others is put in so that it stays where it is: definitions of tools and adjustments of behaviour are JSON on
one line each, and no text that is put in is searched for placeholders. Nothing of it grants anything: what an actor may
call is decided when it calls.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

import orjson
from msgspec.structs import replace

from toolgate.agent.prompt_files import BEHAVIOURS, MAIN, NATIVE, TOOLS, PromptFiles, PromptTexts, Template
from toolgate.llm.completion import ToolDefinition
from toolgate.model import Actor, Entry, Tool
from toolgate.pipeline.hooks import HookSet, PromptDraft
from toolgate.registry.export import count_tokens, definition_text, parameters_of
from toolgate.threads import to_thread
from toolgate.timezones import Timezones

Style = Literal["native", "json"]
MAX_NAME_CHARS = 200
"""Of an actor's names in a prompt."""


class SystemPrompt(NamedTuple):
    """The system prompt of an actor."""

    text: str
    tools: tuple[ToolDefinition, ...]
    """The tools that it is told of. In the style json their definitions are in the text, and only there."""
    tokens: int
    """All that the model reads: the text, and in the style native the definitions."""


class Prompts:
    """Makes system prompts."""

    def __init__(
        self,
        prompt_files: PromptFiles,
        *,
        permitted: Callable[[Actor], Awaitable[tuple[Tool, ...]]],
        listed: Callable[[tuple[Tool, ...], Actor], Awaitable[Sequence[Entry]]],
        behaviours: Callable[[Actor], Awaitable[Sequence[str]]],
        hooks: HookSet,
        timezones: Timezones,
        clock: Callable[[], datetime],
    ) -> None:
        """`permitted`: the tools that an actor may see; `listed`: those of them that a model is told of."""
        self._files, self._permitted, self._listed, self._behaviours = prompt_files, permitted, listed, behaviours
        self._hooks, self._timezones, self._clock = hooks, timezones, clock

    async def system(
        self, actor: Actor, *, session: str | None = None, style: Style = "native", on_behalf_of: Sequence[Actor] = ()
    ) -> SystemPrompt:
        """Makes the system prompt of an actor as it is now; of a subordinate, with the tools that everybody for whom it acts
        has too. Raises SettingsError for a prompt file that cannot be used, `CallError` for a hook that fails."""
        texts, values = await self._texts(), self._values(actor)
        permitted = await self._permitted(actor)
        for above in on_behalf_of:
            theirs = {tool.name for tool in await self._permitted(above)}
            permitted = tuple(tool for tool in permitted if tool.name in theirs)
        entries = _described(await self._listed(permitted, actor), texts.tools, values)
        manner = [_one_line(text) for text in await self._behaviours(actor)]
        lines = [definition_text(entry.tool) for entry in entries]
        text = _main(texts.sections, values, lines if style == "json" else None, manner)
        names = tuple(entry.name for entry in entries)
        text = await self._hooks.system_prompt(PromptDraft(text, actor, session, style, names))
        read = "\n".join([text, *(lines if style == "native" else ())])
        tools = tuple(ToolDefinition(one.name, one.tool.description, parameters_of(one.tool)) for one in entries)
        return SystemPrompt(text, tools, await to_thread(count_tokens, read))

    async def described(self, entries: Sequence[Entry], actor: Actor) -> Sequence[Entry]:
        """Tools with the descriptions that models are given of them."""
        if not self._files.is_replaced:
            return entries
        return _described(entries, (await self._texts()).tools, self._values(actor))

    async def _texts(self) -> PromptTexts:
        return await to_thread(self._files.load) if self._files.is_replaced else self._files.load()

    def _values(self, actor: Actor) -> dict[str, str]:
        zone = self._timezones.of(actor)
        return {
            "date": f"{self._clock().astimezone(ZoneInfo(zone)):%Y-%m-%d}",
            "timezone": zone,
            "tenant": _quoted(actor.tenant),
            "persona": _quoted(actor.persona or "default"),
            "user": _quoted(actor.user),
        }


def _main(sections: Mapping[str, Template], values: dict[str, str], tools: list[str] | None, manner: list[str]) -> str:
    """The text. `tools`: their definitions, if they belong into it."""
    if tools is None:
        told = sections[NATIVE].filled(values)
    else:
        told = sections[TOOLS].filled({**values, "tools": "\n".join(tools)})
    noted = (
        sections[BEHAVIOURS].filled({**values, "behaviours": "\n".join(f"- {text}" for text in manner)}) if manner else ""
    )
    return sections[MAIN].filled({**values, "tools": told.strip(), "behaviours": noted.strip()}).strip()


def _described(entries: Sequence[Entry], files: Mapping[str, Template], values: dict[str, str]) -> Sequence[Entry]:
    if not files:
        return entries

    def described(entry: Entry) -> Entry:
        file = files.get(entry.name)
        if file is None:
            return entry
        text = file.filled({**values, "name": entry.name, "description": entry.tool.description}).strip()
        return replace(entry, tool=entry.tool.model_copy(update={"description": text or entry.tool.description}))

    return [described(entry) for entry in entries]


def _one_line(text: str) -> str:
    """A text as JSON on one line: it cannot end the line or begin a section."""
    return orjson.dumps(" ".join("".join(char if char.isprintable() else " " for char in text).split())).decode()


def _quoted(name: str) -> str:
    return _one_line(name[:MAX_NAME_CHARS])
