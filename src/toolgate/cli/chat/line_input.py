"""The input of a chat: with history, completion and several lines at a terminal, line by line elsewhere."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from toolgate.cli.chat.conversation import Conversation
from toolgate.cli.chat.slash_commands import SlashCommands
from toolgate.cli.output import clean, note
from toolgate.extras import install_command
from toolgate.model import NANO
from toolgate.pipeline.usage import dollars
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

HISTORY = "chat_history"
CONTINUED = "\\"


class LineInput(Protocol):
    """A source of messages."""

    async def read(self) -> str | None:
        """The next message; None: there are no more."""


def line_input(home: Path, commands: SlashCommands, talk: Conversation) -> LineInput:
    """A line with all that a terminal can do, if somebody is at one; else the lines of stdin."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        return PlainInput()
    try:
        import prompt_toolkit  # noqa: F401
    except ModuleNotFoundError:
        note((f"For history, completion and several lines: {install_command('chat')}", "dim"))
        return PlainInput()
    return EditedInput(home, commands, talk)


class PlainInput:
    """The lines of stdin. One that ends with a backslash goes on."""

    async def read(self) -> str | None:
        parts: list[str] = []
        while True:
            if sys.stdin.isatty() and sys.stderr.isatty():
                sys.stderr.write("… " if parts else "> ")
                sys.stderr.flush()
            line = await to_thread(sys.stdin.readline)
            if not line:
                return "\n".join(parts) if parts else None
            text = line.rstrip("\n")
            if not text.endswith(CONTINUED):
                return "\n".join([*parts, text])
            parts.append(text.removesuffix(CONTINUED))


class EditedInput:
    """A line that is edited: Enter sends it, Alt-Enter or a backslash at its end begins another."""

    def __init__(self, home: Path, commands: SlashCommands, talk: Conversation) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
        from prompt_toolkit.output import create_output

        self._talk = talk
        self._session: PromptSession[str] = PromptSession(
            history=_history(home),
            completer=_completer(commands),
            complete_while_typing=True,
            auto_suggest=AutoSuggestFromHistory(),
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation="… ",
            bottom_toolbar=self._status,
            output=create_output(stdout=sys.stderr),
        )

    async def read(self) -> str | None:
        while True:
            try:
                return await self._session.prompt_async("> ")
            except KeyboardInterrupt:
                continue  # what was typed is dropped, as in a shell
            except EOFError:
                return None

    def _status(self) -> str:
        talk = self._talk
        who = talk.actor.tenant if talk.actor.persona is None else f"{talk.actor.persona} · {talk.actor.tenant}"
        spent = f" · {talk.tokens:,} tokens · {dollars(round(talk.cost_usd * NANO))}" if talk.tokens else ""
        return clean(f" {talk.model or 'no model'} · {who}{spent} · /help")


def _history(home: Path) -> Any:
    """The messages of earlier chats, in a file that only this user can read."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    file = home / HISTORY
    try:
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        file.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


def _keys() -> Any:
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.key_binding.key_processor import KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # the completion is taken, not the message sent
        elif buffer.document.text_before_cursor.endswith(CONTINUED):
            buffer.delete_before_cursor()
            buffer.newline()
        else:
            buffer.validate_and_handle()

    # Not Ctrl-J too: Enter that was pressed while the agent worked comes as that.
    @keys.add("escape", "enter")
    def begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline()

    return keys


def _completer(commands: SlashCommands) -> "Completer":
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class SlashCompleter(Completer):
        """Completes commands that begin with a slash, and what follows them."""

        def get_completions(self, document: Document, _: CompleteEvent) -> Iterable[Completion]:
            before = document.text_before_cursor
            if not before.startswith("/") or "\n" in before:
                return
            word = before.rpartition(" ")[2]
            for text, about in commands.complete(before):
                yield Completion(text, -len(word), display_meta=about)

    return SlashCompleter()
