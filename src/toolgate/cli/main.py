"""`toolgate`: the commands put together, and the one place where errors become words and exit codes."""

import asyncio
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from inspect import iscoroutine
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from toolgate import __version__
from toolgate.cli.context import GlobalOptions, NotFound, Usage, option, with_options
from toolgate.cli.output import STDOUT, Unwritable, clean, complain, emit_error, note, say
from toolgate.coordination.redis import CoordinationError
from toolgate.errors import (
    BundleRefused,
    CallError,
    DefinitionError,
    InvalidInput,
    KeyRefused,
    NotServing,
    SettingsError,
    SignInRefused,
    StoreError,
    ToolgateError,
    did_you_mean,
)
from toolgate.extras import MissingExtra, extra_of
from toolgate.gates.approval.request import ApprovalError
from toolgate.gates.policy.documents import PolicyError
from toolgate.learning.refusal import FeedbackRefused
from toolgate.undo import NoBackup, NotUndone

ERROR_CODES: dict[type[ToolgateError], tuple[str, int]] = {
    Usage: ("USAGE_ERROR", 2),
    NotFound: ("NOT_FOUND", 1),
    SettingsError: ("SETTINGS_ERROR", 2),
    Unwritable: ("OUTPUT_ERROR", 1),
    StoreError: ("STORE_ERROR", 1),
    DefinitionError: ("DEFINITION_ERROR", 1),
    PolicyError: ("POLICY_ERROR", 1),
    ApprovalError: ("APPROVAL_ERROR", 1),
    NoBackup: ("NOT_FOUND", 1),
    InvalidInput: ("INVALID_INPUT", 1),
    NotUndone: ("NOT_UNDONE", 1),
    CoordinationError: ("REDIS_ERROR", 1),
    KeyRefused: ("KEY_ERROR", 1),
    SignInRefused: ("SIGN_IN_ERROR", 1),
    BundleRefused: ("BUNDLE_REFUSED", 1),
    FeedbackRefused: ("FEEDBACK_REFUSED", 1),
    NotServing: ("SERVE_ERROR", 1),
    MissingExtra: ("EXTRA_MISSING", 1),
}
"""Code and exit code of what is no call error; those have codes of their own, and exit 1."""

PROGRAM: dict[str, Any] = {
    "name": "toolgate",
    "help": "One governed gate between AI agents and every tool they can use.",
    "epilog": "Exit codes: 0 success, 1 failure or denied, 2 usage, 3 pending.",
    "no_args_is_help": True,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def _version(wanted: bool) -> None:
    if wanted:
        say(f"toolgate {__version__}")
        raise typer.Exit


def toolgate(
    ctx: typer.Context,
    settings: Annotated[
        Path | None, option("--settings FILE", "Settings; without it, the toolgate.yaml of the project folder.")
    ] = None,
    home: Annotated[
        Path | None, option("--home DIR", "Where data is kept; without it, .toolgate of the project folder.")
    ] = None,
    version: Annotated[  # noqa: ARG001 - its callback does all
        bool, option("--version", "Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    ctx.obj = GlobalOptions(settings, home)


PROGRAM_OPTIONS = {"--settings": "FILE", "--home": "DIR"}
"""Options of the program itself, and what each takes."""

COMMANDS = (
    "call", "chat", "say", "explain", "tools", "servers", "openapi", "teams", "policy", "approvals", "grants", "budgets",
    "costs", "secrets", "idempotency", "jobs", "worker", "schedules", "undo", "workspace", "documents", "workflows",
    "notifications", "canvas", "behaviours", "learning", "audit", "artifacts", "keys", "sign-in", "serve", "demo", "mcp",
    "init", "trust", "doctor",
)  # fmt: skip
"""In the order of the help. The module of a command has a `group` of commands, or a function of its name."""


def with_commands(words: Sequence[str] | None = None) -> typer.Typer:
    """The program with all its commands, or only with the one that the words name: the others need not be loaded."""
    named = _command_of(words or ())
    program = typer.Typer(**PROGRAM)
    program.callback()(toolgate)
    for name in COMMANDS if named is None else (named,):
        module = import_module(f"toolgate.cli.{name.replace('-', '_')}")
        if hasattr(module, "group"):
            program.add_typer(module.group, name=name)
        else:
            program.command(name)(with_options(getattr(module, name)))
    return program


def _command_of(words: Sequence[str]) -> str | None:
    """The command that words name, past the options before it; None if that takes all commands to tell."""
    rest = iter(words)
    for word in rest:
        if word in PROGRAM_OPTIONS:
            next(rest, None)
        elif not word.startswith("-"):
            return word if word in COMMANDS else None
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    if COMPLETION_VARIABLE in os.environ:
        return _complete()
    with _plain_logging():
        code = _run(words)
    return _flush(code)


def _run(words: list[str]) -> int:
    as_json = "--json" in words
    try:
        given: Any = get_command(with_commands(words)).main(words, prog_name="toolgate", standalone_mode=False)
        if iscoroutine(given):  # a command that uses an App is a coroutine function
            given = asyncio.run(given)
        return given if isinstance(given, int) else 0
    except ToolgateError as error:
        return _report(error, as_json)
    except typer.TyperException as error:
        return _report_usage(error, as_json)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        return 1  # `_flush` sees to the rest
    except ModuleNotFoundError as error:
        extra = extra_of(error.name)
        return _report_unexpected(error, as_json) if extra is None else _report(MissingExtra(extra), as_json)
    except Exception as error:  # noqa: BLE001 - a person is shown a line, not a traceback
        return _report_unexpected(error, as_json)


COMPLETION_VARIABLE = "_TOOLGATE_COMPLETE"
"""Set by a shell that asks what to offer at Tab."""


def _complete() -> int:
    """Answer a shell. Somebody is typing, so nothing but the answer is written."""
    from toolgate.cli.completion import words_before

    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    logging.disable()
    program = get_command(with_commands(words_before()))
    try:
        program.main([], prog_name="toolgate")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except Exception:  # noqa: BLE001 - see above
        return 1
    return 0


# -- what went wrong


def _report(error: ToolgateError, as_json: bool) -> int:
    code, exit_code = next(
        (found for kind, found in ERROR_CODES.items() if isinstance(error, kind)), ("UNEXPECTED_ERROR", 1)
    )
    details = None
    if isinstance(error, CallError):
        code, details = error.code, error.details
    if as_json and not (isinstance(error, Unwritable) and error.to_stdout):
        emit_error(code, error.message, error.suggestion, details)
    else:
        complain(f"Error: {error.message}", error.suggestion)
    return exit_code


def _report_usage(error: typer.TyperException, as_json: bool) -> int:
    message, context = " ".join(error.format_message().replace("Value error, ", "").split()), getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":  # typer keeps it to itself; its message is the help
        print(error.format_message(), file=sys.stderr)
        return error.exit_code
    hint = f"Try `{context.command_path} --help`." if context is not None else None
    if isinstance(possible := getattr(error, "possibilities", None), list):  # an option that there is not
        near = did_you_mean(option := getattr(error, "option_name", ""), possible)
        message = f"{getattr(error, 'message', message)}.{f' {near}' if near else ''}"
        if option in PROGRAM_OPTIONS and context is not None and context.parent is not None:
            message = f"{option} stands before the command."
            hint = f"Write `toolgate {option} {PROGRAM_OPTIONS[option]} {context.command_path.partition(' ')[2]} …`."
    if type(error).__name__ == "NoSuchOption" and context is not None and context.command_path == "toolgate servers add":
        hint = "What the program itself is given follows `--`: `toolgate servers add NAME -- COMMAND …`."
    if as_json:
        emit_error("USAGE_ERROR", message, hint)
    else:
        if context is not None:
            note((context.get_usage(), "dim"), lines=True)
        complain(f"Error: {message}", hint)
    return error.exit_code


def _report_unexpected(error: Exception, as_json: bool) -> int:
    words = f"Unexpected error: {type(error).__name__}: {error}"
    hint = "Set TOOLGATE_DEBUG=1 for the traceback."
    if os.environ.get("TOOLGATE_DEBUG"):
        note("".join(traceback.format_exception(error)), lines=True)
        hint = "The traceback is above." if not as_json else "The traceback is on stderr."
    if as_json:
        emit_error("UNEXPECTED_ERROR", words, hint)
    else:
        complain(words, hint)
    return 1


# -- streams


def _prepare_streams() -> None:
    """No character that a terminal cannot show ends a command; a closed stdout or stderr is one that nobody reads."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until we end
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def _plain_logging() -> Iterator[None]:
    """Warnings of the program as single lines on stderr, without tracebacks unless they are asked for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(message)s") if os.environ.get("TOOLGATE_DEBUG") else _OneLine("%(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return clean(record.getMessage())


def _flush(code: int) -> int:
    """Write what is left; when nobody reads it any more, be quiet about it."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not code and not isinstance(error, BrokenPipeError):
            complain(f"Error: {Unwritable(STDOUT, error)}")
        return code or 1
    return code


if __name__ == "__main__":
    sys.exit(main())
