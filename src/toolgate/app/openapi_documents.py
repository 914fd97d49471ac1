"""`app.openapi`: OpenAPI documents are added, read again and removed; their operations are accepted with `app.servers`.

Whoever names no actor is the person who runs this installation; for an actor, the policy is asked (tool.enable).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolgate.app.facets import CallableFacet
from toolgate.errors import CallError, Denied, SettingsError, ToolError, did_you_mean
from toolgate.mcp.review import PendingDefinition
from toolgate.model import LOCAL, Actor
from toolgate.model.http_endpoint import SECRET
from toolgate.openapi.catalog import OpenApiTools
from toolgate.openapi.document import MAX_DOCUMENT_BYTES, Document, DocumentError, read_document
from toolgate.openapi.document_settings import DocumentSettings
from toolgate.openapi.records import OpenApiRow
from toolgate.registry.catalog import ToolProblem
from toolgate.tasks import uninterrupted
from toolgate.threads import to_thread

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts

FETCH_SECONDS = 60.0
DOCUMENT_NAME_CHARS = 32


class DocumentStatus(NamedTuple):
    """An OpenAPI document, and how many of its operations are tools."""

    name: str
    origin: str
    title: str
    server: str | None
    operations: tuple[str, ...]
    secrets: dict[str, str]
    accepted: int
    waiting: int
    gone: int
    read_at: str


class AddedDocument(NamedTuple):
    """A document that was read: what of it waits, what cannot be a tool, and what it asks for."""

    document: DocumentStatus
    waiting: list[PendingDefinition]
    problems: list[ToolProblem]
    unmet: tuple[str, ...]
    """Security schemes for which no secret is named."""


class OpenApiFacet(CallableFacet):
    """The OpenAPI documents of this installation."""

    async def list(self) -> list[DocumentStatus]:
        """Gives every document, in the order in which they were added."""
        await self._parts.openapi_tools.look()
        return [self._status(row) for row in self._parts.openapi_tools.documents.values()]

    async def get(self, name: str) -> DocumentStatus:
        """Gives one document. Raises `SettingsError` if there is none of that name."""
        await self._parts.openapi_tools.look()
        return self._status(self._row(name))

    @uninterrupted
    async def add(
        self,
        name: str,
        origin: str,
        *,
        content: bytes | None = None,
        server: str | None = None,
        operations: Sequence[str] = (),
        secrets: Mapping[str, str] | None = None,
        replace: bool = False,
        actor: Actor | None = None,
        operator: Actor | None = None,
    ) -> AddedDocument:
        """Reads a document from a URL, or a file of this machine, and has each of its operations wait to be accepted.

        Args:
            name: What its tools are called after: `NAME_operation`.
            origin: The URL or file. `content`: what was read from there already.
            server: The base URL of the service, in place of the document's.
            operations: Patterns of those that become tools; none: all.
            secrets: By security scheme, the name of the secret that is sent.
            replace: Read it in place of the document that has the name.

        Raises `DocumentError` or `SettingsError` if it cannot be used; nothing has changed then.
        """
        await self._may_change(name, actor)
        _check_name(name)
        await self._parts.openapi_tools.look()
        if not replace and name in self._parts.openapi_tools.documents:
            raise SettingsError(
                f"There is a document named {name} already.",
                suggestion=f"Read it again: `toolgate openapi refresh {name}`. Or replace it (--force), or change the name.",
                category="conflict",
            )
        for scheme, secret in (secrets or {}).items():
            if not SECRET.match(secret):
                raise SettingsError(f"{scheme}: the name of a secret is needed, not its value.")
        said = DocumentSettings(server=server, operations=tuple(operations), secrets=dict(secrets or {}))
        return await self._put(name, origin, content, said, actor or operator or LOCAL)

    @uninterrupted
    async def refresh(
        self, name: str, *, content: bytes | None = None, actor: Actor | None = None, operator: Actor | None = None
    ) -> AddedDocument:
        """Reads a document again, and compares its operations with those that were accepted."""
        await self._may_change(name, actor)
        await self._parts.openapi_tools.look()
        row = self._row(name)
        return await self._put(name, row.origin, content, row.said, actor or operator or LOCAL)

    @uninterrupted
    async def remove(self, name: str, *, actor: Actor | None = None, operator: Actor | None = None) -> None:
        """Removes a document with its tools and what was accepted of them."""
        await self._may_change(name, actor)
        if not await self._parts.openapi_tools.remove(name):
            raise self._missing(name)
        await self._parts.events.record("openapi.document_removed", actor or operator or LOCAL, "", {"document": name})

    async def _put(self, name: str, origin: str, content: bytes | None, said: DocumentSettings, by: Actor) -> AddedDocument:
        given = await self._content(origin, by) if content is None else content
        document: Document = await to_thread(read_document, given)
        base = document.server(said.server, origin if "://" in origin else None)
        self._parts.http.check(base)
        read, compared = await self._parts.openapi_tools.put(name, origin, document, said, base, by.user)
        details: dict[str, Any] = {
            "document": name, "origin": origin[:500], "server": base, "new": len(compared.new),
            "changed": len(compared.changed), "gone": len(compared.gone),
        }  # fmt: skip
        await self._parts.events.record("openapi.document_read", by, "", details)
        row = self._parts.openapi_tools.documents[name]
        return AddedDocument(self._status(row), self._parts.openapi_tools.waiting(name), read.problems, read.unmet)

    async def _content(self, origin: str, by: Actor) -> bytes:
        """The document at a URL, fetched with the guarded client, or in a file."""
        if not origin:
            raise SettingsError(
                "The document was sent in, so it cannot be read again.", suggestion="Send it again, with replace."
            )
        if "://" not in origin:
            return await to_thread(_read_file, origin)
        try:
            response = await self._parts.http.request(
                "GET", origin, headers={"accept": "application/json, application/yaml;q=0.9, */*;q=0.5"},
                timeout=FETCH_SECONDS, max_bytes=MAX_DOCUMENT_BYTES, tenant=by.tenant,
            )  # fmt: skip
        except (CallError, ToolError) as error:
            raise SettingsError(f"The document cannot be fetched: {error.message}", suggestion=error.suggestion) from None
        if not response.is_success:
            raise SettingsError(f"The document cannot be fetched: the server answered with status {response.status}.")
        return response.body

    def problems(self, name: str) -> Sequence[ToolProblem]:
        """Gives the operations of a document that could not be tools when this process last read it."""
        return self._parts.openapi_tools.read_problems.get(name, ())

    def _status(self, row: OpenApiRow) -> DocumentStatus:
        counts, said = self._parts.openapi_tools.counts(row.name), row.said
        return DocumentStatus(
            row.name, row.origin, row.title, said.server, said.operations, said.secrets, counts["accepted"],
            counts["quarantined"], counts["gone"], row.read_at.isoformat(),
        )  # fmt: skip

    def _row(self, name: str) -> OpenApiRow:
        row = self._parts.openapi_tools.documents.get(name)
        if row is None:
            raise self._missing(name)
        return row

    def _missing(self, name: str) -> SettingsError:
        return SettingsError(
            f"There is no OpenAPI document named {name[:64]!r}.",
            suggestion=did_you_mean(name, self._parts.openapi_tools.documents) or "`toolgate openapi list` shows them.",
            category="missing",
        )

    async def _may_change(self, name: str, actor: Actor | None) -> None:
        if actor is None:
            return
        decision = await self._parts.guard.decide(actor, "tool.enable", name)
        if not decision.allow:
            details = {"document": name, "reason": decision.reason}
            await self._parts.events.record("openapi.change_denied", actor, "", details)
            raise Denied(
                "PERMISSION_DENIED", f"Changing {name} is not permitted: {decision.reason}.", reason=decision.reason
            )


def make_openapi_tools(parts: "Parts") -> OpenApiTools:
    """Makes the object that takes accepted operations into the catalog."""
    return OpenApiTools(
        parts.store,
        parts.catalog,
        parts.rules,
        register=parts.catalog_sync.register,
        forget=parts.guard.forget,
        announce=parts.announce,
    )


def _check_name(name: str) -> None:
    plain = name.replace("_", "").replace("-", "")
    if not (plain.isascii() and plain.isalnum() and name[0].isalpha() and len(name) <= DOCUMENT_NAME_CHARS):
        raise SettingsError(
            f"The name of a document is a letter, then letters, digits, _ and -, at most {DOCUMENT_NAME_CHARS} in all."
        )
    if name.lower().startswith("mcp_") or name.lower() == "mcp":
        raise SettingsError("Names that begin with mcp_ are for tools of MCP servers.", suggestion="Give another name.")


def _read_file(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as error:
        raise DocumentError("", f"{path} cannot be read: {error.strerror or error}") from None
