"""The commands of a chat. Most are those of the command line, for the actor of the chat and in its App."""

import shlex
from collections.abc import Awaitable, Callable, Iterator, Sequence
from inspect import iscoroutine
from typing import Any, NamedTuple

import typer
from typer.main import get_command

from toolgate.app.app import App
from toolgate.cli.chat.conversation import Conversation
from toolgate.cli.context import Usage
from toolgate.cli.main import with_commands
from toolgate.cli.output import clean, note, say
from toolgate.cli.table import table
from toolgate.cli.times import shown
from toolgate.errors import did_you_mean, plural
from toolgate.model import LOCAL, NANO, Actor
from toolgate.pipeline.usage import dollars

TOOLS_COMMANDS = ("list", "enable", "disable", "info", "tokens", "search")
NOBODY = "-"
"""The name of no persona."""


class SlashCommand(NamedTuple):
    """A command of the chat."""

    usage: str
    about: str
    run: Callable[[list[str]], Awaitable[bool | None]]
    """False: the chat is to end."""


class SlashCommands:
    """The commands that begin with a slash."""

    def __init__(self, ctx: typer.Context, app: App, talk: Conversation) -> None:
        self._ctx, self._app, self._talk = ctx, app, talk
        self._all = {
            "help": SlashCommand("/help", "list the commands", self._help),
            "tools": SlashCommand(
                "/tools [enable|disable|info NAME | search WORDS | tokens]", "the tools, and who has them", self._tools
            ),
            "approve": SlashCommand("/approve [ID]", "what waits for a yes; with an id, say it", self._approve),
            "reject": SlashCommand("/reject ID [REASON]", "say no", self._reject),
            "continue": SlashCommand("/continue", "go on after an answer, or after a failure", self._continue),
            "stop": SlashCommand("/stop", "end what the agent waits for", self._stop),
            "cost": SlashCommand("/cost", "what this chat and this week have cost", self._cost),
            "persona": SlashCommand("/persona [NAME|-]", "speak as a persona; - as none", self._persona),
            "runs": SlashCommand("/runs", "list earlier conversations", self._runs),
            "resume": SlashCommand("/resume ID", "go on with one of them", self._resume),
            "new": SlashCommand("/new", "begin another conversation", self._new),
            "explain": SlashCommand("/explain NAME [KEY=VALUE …]", "what the gates would say to a call", self._explain),
            "undo": SlashCommand("/undo [CALL]", "take back what a call changed", self._undo),
            "quit": SlashCommand("/quit", "end the chat (Ctrl-D too)", self._quit),
        }  # fmt: skip

    async def run(self, line: str) -> bool:
        """Runs a command; False: the chat is to end. Raises a ToolgateError for what is not right."""
        try:
            name, *words = shlex.split(line.removeprefix("/"))
        except ValueError:
            raise Usage("A quotation mark is missing.") from None
        command = self._all.get(name)
        if command is None:
            raise Usage(f"There is no command /{name}.", suggestion=did_you_mean(name, self._all) or "/help lists them.")
        return await command.run(words) is not False

    def complete(self, line: str) -> Iterator[tuple[str, str]]:
        """The words that may end a line, each with what it is about."""
        *before, word = line.split(" ")
        if not before:
            yield from ((f"/{name}", one.about) for name, one in self._all.items() if f"/{name}".startswith(word))
        elif before == ["/tools"]:
            yield from ((name, "") for name in TOOLS_COMMANDS if name.startswith(word))
        elif before[0] == "/explain" or (before[0] == "/tools" and before[1] in ("enable", "disable", "info")):
            found = (entry.tool for entry in self._app.tools.entries() if entry.name.startswith(word))
            yield from ((tool.name, clean(tool.description.partition("\n")[0][:60])) for tool in found)
        elif before == ["/persona"]:
            yield from ((name, "") for name in sorted(self._app.policy.personas()) if name.startswith(word))
        elif before[0] == "/approve" and self._talk.run is not None:
            yield from ((one.id, one.tool) for one in self._talk.run.pending if one.id.startswith(word))

    # -- those of the command line

    async def _program(self, *words: str) -> int:
        """Runs a command of the command line in the App of this chat."""
        try:
            program = get_command(with_commands(words))
            given: Any = program.main(list(words), prog_name="toolgate", standalone_mode=False, obj=self._ctx.obj)
            given = await given if iscoroutine(given) else given
        except typer.TyperException as error:
            raise Usage(error.format_message()) from None
        return given if isinstance(given, int) else 0

    def _whose(self, *, user: bool = True) -> list[str]:
        """The options that name the actor of the chat."""
        actor = self._talk.actor
        words = [] if actor.tenant == LOCAL.tenant else ["--tenant", actor.tenant]
        if actor.persona is not None:
            words += ["--persona", actor.persona]
        return words if not user or actor.user == LOCAL.user else [*words, "--user", actor.user]

    def _tenant(self) -> list[str]:
        return [] if self._talk.actor.tenant == LOCAL.tenant else ["--tenant", self._talk.actor.tenant]

    async def _tools(self, words: list[str]) -> None:
        command, *rest = words or ["list"]
        if command not in TOOLS_COMMANDS:
            raise Usage(f"/tools {command} is not known.", suggestion=did_you_mean(command, TOOLS_COMMANDS) or "/help")
        whose = self._tenant() if command in ("enable", "disable") else self._whose()
        if command == "list" and whose:
            rest = [*rest, "--all"]
        await self._program("tools", command, *rest, *whose)

    async def _explain(self, words: list[str]) -> None:
        await self._program("explain", *words, *self._whose())

    async def _undo(self, words: list[str]) -> None:
        await self._program("undo", *words)

    async def _approve(self, words: list[str]) -> None:
        if not words:
            await self._program("approvals", "list", *self._tenant())
            return
        await self._program("approvals", "approve", *words, *self._tenant())
        await self._after_answer(words[0])

    async def _reject(self, words: list[str]) -> None:
        if not words:
            raise Usage("/reject ID [REASON]: the id is missing.", suggestion="/approve lists what waits.")
        id, *reason = words
        given = ["--reason", " ".join(reason)] if reason else []
        await self._program("approvals", "reject", id, *given, *self._tenant())
        await self._after_answer(id)

    async def _after_answer(self, id: str) -> None:
        """Goes on if it was this conversation that waited for the answer."""
        run = self._talk.run
        if run is not None and any(one.id.startswith(id) for one in run.pending):
            self._talk.show_end(await self._talk.go_on())

    # -- those of the conversation

    async def _continue(self, words: list[str]) -> None:
        _no_words("/continue", words)
        self._talk.show_end(await self._talk.go_on())

    async def _stop(self, words: list[str]) -> None:
        _no_words("/stop", words)
        await self._talk.stop()
        note(("Stopped.", "dim"))

    async def _new(self, words: list[str]) -> None:
        _no_words("/new", words)
        self._talk.begin_anew()
        note(("Another conversation begins with what you say next.", "dim"))

    async def _runs(self, words: list[str]) -> None:
        _no_words("/runs", words)
        found = await self._app.agents.list(actor=self._talk.actor, limit=20)
        table(
            ["id", "status", "updated", ">cost", "answer"],
            [
                [one.id, one.status, shown(one.updated_at), dollars(round(one.cost_usd * NANO)), _first_line(one.text)]
                for one in found
            ],
        )
        note((f"{plural(len(found), 'conversation')}. /resume ID goes on with one." if found else "None yet.", "dim"))

    async def _resume(self, words: list[str]) -> None:
        if len(words) != 1:
            raise Usage("/resume takes the id of a conversation.", suggestion="/runs lists them.")
        await self._talk.take_up(words[0])
        self._talk.show_state()

    async def _cost(self, words: list[str]) -> None:
        _no_words("/cost", words)
        talk = self._talk
        say(f"This chat: {talk.tokens:,} tokens, {dollars(round(talk.cost_usd * NANO))}")
        if talk.run is not None:
            run = talk.run
            say(f"This conversation: {plural(run.turns, 'turn')}, {run.tokens:,} tokens, {_of_limit(run)}")
        say()
        await self._program("costs", *self._tenant())

    async def _persona(self, words: list[str]) -> None:
        actor = self._talk.actor
        if not words:
            known = ", ".join(sorted(self._app.policy.personas())) or "none is named in the policy's data"
            say(f"Persona: {actor.persona or 'none'}", f"  (known: {known})")
            return
        persona = None if words[0] == NOBODY else words[0]
        try:
            self._talk.become(Actor(actor.tenant, persona, actor.user, actor.scopes))
        except ValueError as error:
            raise Usage(f"{error}.") from None
        note((f"You speak as {persona or 'no persona'} now, in a new conversation.", "dim"))

    async def _help(self, words: list[str]) -> None:
        _no_words("/help", words)
        table(["", ""], [[(one.usage, "bold"), one.about] for one in self._all.values()])
        note(("What does not begin with a slash is said to the agent.", "dim"))

    async def _quit(self, words: list[str]) -> bool:
        _no_words("/quit", words)
        return False


def _no_words(command: str, words: Sequence[str]) -> None:
    if words:
        raise Usage(f"{command} takes nothing after it.")


def _first_line(text: str | None) -> str:
    return "" if text is None else text.strip().partition("\n")[0][:60]


def _of_limit(run: Any) -> str:
    return f"{dollars(round(run.cost_usd * NANO))} of at most {dollars(round(float(run.limits.cost_usd) * NANO))}"
