"""`toolgate tools add --openapi` and `toolgate openapi`: the documents whose operations are tools."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from toolgate.app.openapi_documents import AddedDocument, DocumentStatus
from toolgate.cli.context import CommandGroup, NotFound, Usage, argument, opened
from toolgate.cli.output import answer, answered, note, say
from toolgate.cli.table import listing
from toolgate.errors import plural

MAX_SHOWN_PROBLEMS = 10
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9]+")
Name = Annotated[str, argument("NAME", "The document.")]

group = CommandGroup(help="OpenAPI documents whose operations are tools.", no_args_is_help=True)


async def add_document(
    ctx: typer.Context, origin: str, *, name: str | None, operations: list[str], server: str | None, secrets: list[str],
    force: bool,
) -> int:  # fmt: skip
    """Reads a document and says what waits."""
    is_url = "://" in origin
    if not is_url and not Path(origin).is_file():
        raise NotFound(f"There is no file {origin}.")
    given = {}
    for one in secrets:
        scheme, equals, secret = one.partition("=")
        if not (scheme and equals and secret):
            raise Usage(f"--secret is SCHEME=NAME, not {one[:64]!r}.")
        given[scheme] = secret
    async with opened(ctx) as app:
        added = await app.openapi.add(
            name or _name_of(origin),
            origin if is_url else str(Path(origin).resolve()),
            server=server, operations=operations, secrets=given, replace=force,
        )  # fmt: skip
    return _say_read(added, "Added")


@group.command("list")
async def list_documents(ctx: typer.Context) -> int:
    """List the documents, and how many of their operations are tools."""
    async with opened(ctx) as app:
        found = await app.openapi.list()
    return listing(
        {"documents": [_plain(one) for one in found]},
        ["name", "title", ">tools", ">waiting", ">gone", "from"],
        [[one.name, one.title, str(one.accepted), str(one.waiting), str(one.gone), one.origin] for one in found],
        none="There are no OpenAPI documents. `toolgate tools add --openapi FILE_OR_URL` adds one.",
    )


@group.command()
async def refresh(ctx: typer.Context, name: Name) -> int:
    """Read a document again. Operations that are new or have changed wait until they are accepted."""
    async with opened(ctx) as app:
        added = await app.openapi.refresh(name)
    return _say_read(added, "Read")


@group.command()
async def remove(ctx: typer.Context, name: Name) -> int:
    """Remove a document with all its tools."""
    async with opened(ctx) as app:
        await app.openapi.remove(name)
    return answer({"document": name, "removed": True}, ("✓ Removed", "green"), f" document {name}")


def _say_read(added: AddedDocument, done: str) -> int:
    document = added.document
    plain: dict[str, Any] = {
        "document": _plain(document),
        "waiting": [one.name for one in added.waiting],
        "problems": [problem._asdict() for problem in added.problems],
        "needs_secrets": list(added.unmet),
    }
    if answered(plain):
        return 0
    counts = f"{plural(document.accepted, 'tool')} in use, {len(added.waiting):,} waiting to be accepted"
    say((f"✓ {done} document", "green"), f": {document.name} ({document.title}): {counts}")
    for problem in added.problems[:MAX_SHOWN_PROBLEMS]:
        note((f"Not a tool: {problem.where}: {problem.why}", "yellow"))
    if len(added.problems) > MAX_SHOWN_PROBLEMS:
        note((f"… and {len(added.problems) - MAX_SHOWN_PROBLEMS:,} more; `--json` shows all.", "yellow"))
    for scheme in added.unmet:
        note(f"The service asks for {scheme}. Add it again with --force and the secret to send: --secret {scheme}=NAME")
    if added.waiting:
        note(f"Look at them: toolgate tools accept {document.name} --all")
    return 0


def _plain(one: DocumentStatus) -> dict[str, Any]:
    return {**one._asdict(), "operations": list(one.operations)}


def _name_of(origin: str) -> str:
    """A name for a document of which none was said: of its file, or of the host that it comes from."""
    words = origin.split("/")[2].split(":")[0] if "://" in origin else Path(origin).name.split(".")[0]
    name = NOT_IN_NAMES.sub("_", words).strip("_").lower()[:32]
    if not name or not name[0].isalpha():
        raise Usage("Say what the names of its tools begin with: --name PREFIX.")
    return name
