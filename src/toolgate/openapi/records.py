"""Stores which OpenAPI documents there are: table openapi_documents. Their definitions are pinned as those of MCP servers
are (`toolgate.mcp.definitions`), each under the server `openapi:NAME`, a name that no server can have."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import orjson

from toolgate.mcp import definitions as pins
from toolgate.mcp.definitions import Comparison, DefinitionKey, FoundDefinition, ServerSnapshot
from toolgate.openapi.document_settings import DocumentSettings
from toolgate.store.database import Transaction, now
from toolgate.store.sql import select, upsert

PIN_PREFIX = "openapi:"
METHOD = "openapi"
"""Stands in place of a method in the definitions of documents."""


class OpenApiRow(NamedTuple):
    """A document that was added; its settings are JSON."""

    name: str
    origin: str
    title: str
    settings: str
    added_by: str
    created_at: datetime
    read_at: datetime

    @property
    def said(self) -> DocumentSettings:
        return msgspec.json.decode(self.settings, type=DocumentSettings)


class RecordedDocuments(NamedTuple):
    """All that is on record, in one snapshot."""

    epoch: int
    documents: list[OpenApiRow]
    definitions: list[pins.DefinitionPin]


def pin_server(name: str) -> str:
    """The server under which the definitions of a document are pinned."""
    return f"{PIN_PREFIX}{name}"


def recorded() -> Transaction[RecordedDocuments]:
    number = yield from pins.epoch()
    documents = yield from select(OpenApiRow, "openapi_documents", "ORDER BY created_at, name")
    where = "WHERE method = :method ORDER BY first_seen, server, tool"
    found = yield from select(pins.DefinitionPin, "server_tools", where, {"method": METHOD})
    return RecordedDocuments(number, documents, found)


def put(row: OpenApiRow, info: Mapping[str, str], found: Mapping[DefinitionKey, FoundDefinition]) -> Transaction[Comparison]:
    """Records a document, what it says of its service, and the definitions that it has now; gives how these differ from
    those that were accepted."""
    yield upsert("openapi_documents", row._asdict(), ("name",), ("origin", "title", "settings", "read_at"))
    about: dict[str, Any] = {"info": info, "origin": row.origin, "settings": row.settings}
    seen = ServerSnapshot(METHOD, orjson.dumps(about).decode(), None, found, {}, frozenset())
    return (yield from pins.compare(pin_server(row.name), seen))


def remove(name: str) -> Transaction[bool]:
    """Removes a document and what was accepted of it; gives whether there was one."""
    rows = yield "DELETE FROM openapi_documents WHERE name = :name RETURNING name", {"name": name}
    if rows:
        yield "DELETE FROM server_listings WHERE server = :server", {"server": pin_server(name)}
        yield "DELETE FROM server_tools WHERE server = :server", {"server": pin_server(name)}
        yield from pins.changed()
    return bool(rows)


def new_row(name: str, origin: str, title: str, settings: DocumentSettings, by: str) -> OpenApiRow:
    at = now()
    return OpenApiRow(name, origin, title, msgspec.json.encode(settings).decode(), by, at, at)
