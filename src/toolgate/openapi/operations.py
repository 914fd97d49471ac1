"""Makes the definition of a tool of each operation of an OpenAPI document.

A document can say what is sent where. It cannot say how risky that is: every operation is tier external_api, and one of the
method DELETE is destructive, whatever its name and its words are.
"""

import re
import time
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from toolgate.errors import DefinitionError, Fault, printable
from toolgate.mcp.pins import cleaned
from toolgate.model.http_endpoint import (
    BODILESS_METHODS,
    FIXED_HEADERS,
    FORM,
    MAX_PLACES,
    MEDIA_TYPE,
    MULTIPART,
    PLACEHOLDER,
    REPEATED_METHODS,
    STYLES,
)
from toolgate.openapi.document import Document, DocumentError, DocumentOperation, joined, server_url
from toolgate.openapi.document_settings import DocumentSettings
from toolgate.openapi.operation_names import name_tools
from toolgate.openapi.schemas import MAX_READ_CHARS, MAX_TEXT_CHARS, SchemaWriter
from toolgate.openapi.security_schemes import check_secrets, credentials_of, unmet_schemes
from toolgate.registry.catalog import ToolProblem
from toolgate.services.http_runner import ANSWER_SCHEMA

MAX_SUMMARY_CHARS = 1_200
MAX_READ_SECONDS = 60.0
MAX_FIELD_NAMES = 20
MAX_NAMED_OPERATIONS = 10
"""In the message about patterns that fit none."""
ARGUMENT = re.compile(r"[^A-Za-z0-9_.-]")
BODY_ORDER = ("application/json", FORM, MULTIPART, "text/plain", "application/octet-stream")
MAX_ATTEMPTS = 3
RETRY_CODES = ("TIMEOUT", "CONNECTION_ERROR")


class ReadOperations(NamedTuple):
    """The tools of a document by the name of their operation, and the operations that cannot be tools."""

    tools: dict[str, dict[str, Any]]
    problems: list[ToolProblem]
    unmet: tuple[str, ...]
    """Security schemes that operations ask for and for which no secret is named."""


def read_operations(name: str, document: Document, settings: DocumentSettings, base: str) -> ReadOperations:
    """The definitions of a document's operations. Raises DocumentError if the whole of it cannot be used."""
    check_secrets(document, settings)
    tools: dict[str, dict[str, Any]] = {}
    problems: list[ToolProblem] = []
    unmet: dict[str, None] = {}
    ends = time.monotonic() + MAX_READ_SECONDS
    for operation in document.operations():
        if time.monotonic() > ends:
            raise DocumentError("paths", f"it takes more than {MAX_READ_SECONDS:g} s to read its operations")
        if not settings.wants(operation):
            continue
        try:
            made = OperationReader(name, document, settings, base, operation).read()
        except DocumentError as error:
            problems.append(ToolProblem(f"{name}, {operation.method.upper()} {operation.path[:100]}", error.why))
            continue
        unmet |= dict.fromkeys(unmet_schemes(document, settings, operation))
        key = f"{operation.method.upper()} {operation.path}"
        tools[key] = made
    name_tools(name, tools)
    if not tools:
        why = problems[0].why if problems else _none_fits(document) if settings.operations else "it has none"
        raise DocumentError("paths", f"none of its operations can be a tool: {why}")
    return ReadOperations(tools, problems, tuple(unmet))


def _none_fits(document: Document) -> str:
    """The fault of patterns that fit no operation, with names of some that are there."""
    found = islice(document.operations(), MAX_NAMED_OPERATIONS + 1)
    names = [printable(one.value.get("operationId") or f"{one.method.upper()} {one.path}") for one in found]
    more = ", …" if len(names) > MAX_NAMED_OPERATIONS else ""
    return f"no operation fits the patterns; it has {', '.join(names[:MAX_NAMED_OPERATIONS]) or 'none'}{more}"


class OperationReader:
    """Reads one operation."""

    def __init__(
        self, name: str, document: Document, settings: DocumentSettings, base: str, operation: DocumentOperation
    ) -> None:
        self._document, self._settings, self._base, self._operation = document, settings, base, operation
        self._schemas = SchemaWriter(document)
        self._source = name
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []

    def read(self) -> dict[str, Any]:
        """The pinned fields of the tool: what a model reads of it, and what is sent where."""
        operation, method = self._operation, self._operation.method.upper()
        base = self._own_base()
        parameters = self._parameters()
        body = None if method in BODILESS_METHODS else self._body()
        http: dict[str, Any] = {"method": method, "url": base + operation.path, "parameters": parameters}
        if body is not None:
            http["body"] = body
        credentials = credentials_of(self._document, self._settings, operation)
        if credentials:
            http["credentials"] = credentials
        schema = {"type": "object", "properties": self._properties, "additionalProperties": False}
        if self._required:
            schema["required"] = self._required
        named = operation.value.get("operationId")
        return {
            "operationId": named if isinstance(named, str) else None,
            "description": self._description(),
            "inputSchema": schema,
            "http": http,
            "annotations": _hints(method),
        }

    def _own_base(self) -> str:
        """The base URL of the operation: the document's, or its own if that is on the same host. Another host is refused: a
        credential that is meant for one would go to the other."""
        holders = (self._operation.value, self._operation.item)
        own = next((found for holder in holders if (found := server_url(holder.get("servers"))) is not None), None)
        if own is None:
            return self._base
        own = joined(f"{self._base}/", own)
        if _origin(own) != _origin(self._base):
            raise DocumentError(
                f"{self._operation.place}.servers", "it is on another server than the document's",
                suggestion="Add the document a second time, under another name, with `--server` and `--operations`.",
            )  # fmt: skip
        return own.rstrip("/")

    def _description(self) -> str:
        said = self._operation.value
        given = (said.get(field) for field in ("summary", "description"))
        words = [cleaned(text[:MAX_READ_CHARS]).strip() for text in given if isinstance(text, str)]
        text = "\n\n".join(dict.fromkeys(word for word in words if word))
        if len(text) > MAX_SUMMARY_CHARS:
            text = f"{text[: MAX_SUMMARY_CHARS - 2]} …"
        answer = self._answer_words()
        return (
            "\n\n".join(part for part in (text, answer) if part)
            or f"{self._operation.method.upper()} {self._operation.path}"
        )

    def _answer_words(self) -> str:
        """The fields that the document says an answer has. They are words and no schema: an answer that differs, as those of
        real services do, is no error of a call that was made and paid for."""
        responses = self._operation.value.get("responses")
        good = [said for code, said in responses.items() if str(code)[:1] == "2"] if isinstance(responses, Mapping) else []
        try:
            response = self._document.resolved(good[0], self._operation.place) if good else {}
            content = response.get("content")
            schema = self._document.resolved(_first_schema(content) or {}, self._operation.place)
            is_list = schema.get("type") == "array"
            if is_list:
                schema = self._document.resolved(schema.get("items") or {}, self._operation.place)
        except DocumentError:
            return ""
        names = schema.get("properties")
        if not isinstance(names, Mapping) or not names:
            return ""
        shown = ", ".join(cleaned(str(name)[:200])[:40] for name in islice(names, MAX_FIELD_NAMES))
        more = ", …" if len(names) > MAX_FIELD_NAMES else ""
        return f"Answers {'a list of objects' if is_list else 'an object'} with {shown}{more}."

    # -- parameters

    def _parameters(self) -> list[dict[str, Any]]:
        found: dict[tuple[str, str], Mapping[str, Any]] = {}
        for holder in (self._operation.item, self._operation.value):
            listed = holder.get("parameters")
            if isinstance(listed, list) and len(listed) > MAX_PLACES:
                raise DocumentError(f"{self._operation.place}.parameters", f"there are more than {MAX_PLACES}")
            for given in listed if isinstance(listed, list) else ():
                parameter = self._document.resolved(given, f"{self._operation.place}.parameters")
                found[str(parameter.get("in")), str(parameter.get("name"))] = parameter
        made = [self._parameter(place, name, one) for (place, name), one in found.items()]
        written = {one["name"] for one in made if one is not None and one["place"] == "path"}
        for name in PLACEHOLDER.findall(self._operation.path):
            if name not in written:
                raise DocumentError(self._operation.place, f"{name!r} in its path is no parameter")
        return [one for one in made if one is not None]

    def _parameter(self, place: str, name: str, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """A parameter, placed; None for those that are not sent: OpenAPI leaves out headers that the request itself has."""
        if place not in ("path", "query", "header", "cookie"):
            raise DocumentError(
                f"{self._operation.place}.parameters.{name}", "its place is none of path, query, header, cookie"
            )
        if place == "header" and (name.lower() in FIXED_HEADERS or name.lower() == "accept"):
            return None
        if place == "path" and f"{{{name}}}" not in self._operation.path:
            return None
        if self._is_credential(place, name):
            return None
        argument = self._argument(name, place)
        content = given.get("content")
        as_json = isinstance(content, Mapping) and bool(content)
        schema = _first_schema(content) if as_json else given.get("schema")
        read = self._schemas.read(schema or {}, f"{self._operation.place}.parameters.{name}")
        words = given.get("description")
        if isinstance(words, str) and words.strip():
            read["description"] = cleaned(words[:MAX_READ_CHARS]).strip()[:MAX_TEXT_CHARS]
        self._properties[argument] = read
        if place == "path" or given.get("required") is True:
            self._required.append(argument)
            read.pop("default", None)
        made: dict[str, Any] = {"argument": argument, "place": place, "name": name}
        if as_json:
            made["as_json"] = True
        if given.get("style") in STYLES[place]:  # type: ignore[index]
            made["style"] = given["style"]
        if isinstance(given.get("explode"), bool):
            made["explode"] = given["explode"]
        return made

    def _is_credential(self, place: str, name: str) -> bool:
        """True for a place that a credential fills, which no argument may."""
        credentials = credentials_of(self._document, self._settings, self._operation)
        return any((one["place"], one["name"].lower()) == (place, name.lower()) for one in credentials)

    def _argument(self, name: str, place: str) -> str:
        """The name of an argument: the parameter's own, or with its place before it if two are alike."""
        plain = ARGUMENT.sub("_", name)[:64] or "_"
        for tried in (plain, f"{place}_{plain}"[:64], *(f"{plain[:60]}_{number}" for number in range(2, 100))):
            if tried not in self._properties:
                return tried
        raise DocumentError(self._operation.place, f"more than a hundred of its parameters are called {name[:64]!r}")

    # -- the body

    def _body(self) -> dict[str, Any] | None:
        given = self._operation.value.get("requestBody")
        if given is None:
            return None
        place = f"{self._operation.place}.requestBody"
        body = self._document.resolved(given, place)
        content = body.get("content")
        if not isinstance(content, Mapping) or not content:
            return None
        media_type, media = _chosen(content)
        if not MEDIA_TYPE.match(media_type):
            raise DocumentError(place, f"{media_type[:64]!r} is no media type")
        schema = media.get("schema") if isinstance(media, Mapping) else None
        argument = self._argument("body", "request")
        read = self._schemas.read(schema or {}, place)
        words = body.get("description")
        if isinstance(words, str) and words.strip():
            read.setdefault("description", cleaned(words[:MAX_READ_CHARS]).strip()[:MAX_TEXT_CHARS])
        made: dict[str, Any] = {"argument": argument, "media_type": media_type}
        if media_type in (FORM, MULTIPART):
            made |= self._form(schema, media, place)
        elif not (media_type == "application/json" or media_type.endswith("+json")):
            read = {"type": "string", "description": read.get("description") or f"The content, {media_type}."}
        self._properties[argument] = read
        if body.get("required") is True:
            self._required.append(argument)
        return made

    def _form(self, schema: Any, media: Any, place: str) -> dict[str, Any]:
        made: dict[str, Any] = {}
        fields = {}
        encoding = media.get("encoding") if isinstance(media, Mapping) else None
        for name, said in encoding.items() if isinstance(encoding, Mapping) else ():
            style = {key: said[key] for key in ("style", "explode") if isinstance(said, Mapping) and key in said}
            if style.get("style", "form") in STYLES["body"] and style:
                fields[name] = style
        if fields:
            made["fields"] = fields
        properties = self._document.resolved(schema or {}, place).get("properties")
        files = []
        for name, given in properties.items() if isinstance(properties, Mapping) else ():
            if isinstance(given, Mapping) and self._document.resolved(given, place).get("format") == "binary":
                files.append(name)
        if files:
            made["files"] = files
        return made


def _origin(url: str) -> str:
    return "/".join(url.split("/", 3)[:3]).lower()


def _first_schema(content: Any) -> Any:
    """The schema of the first media type of a list of them; None: there is none."""
    media = next(iter(content.values()), None) if isinstance(content, Mapping) else None
    return media.get("schema") if isinstance(media, Mapping) else None


def _chosen(content: Mapping[str, Any]) -> tuple[str, Any]:
    """The media type that is sent, of those that an operation takes."""
    types = {str(name).partition(";")[0].strip().lower(): media for name, media in content.items()}
    for wanted in BODY_ORDER:
        if wanted in types:
            return wanted, types[wanted]
    name, media = next(iter(types.items()))
    return ("application/json" if "*" in name else name), media


def _hints(method: str) -> dict[str, bool]:
    return {
        "readOnlyHint": method in BODILESS_METHODS,
        "destructiveHint": method == "DELETE",
        "idempotentHint": method in REPEATED_METHODS,
        "openWorldHint": True,
    }


def tool_fields(given: Mapping[str, Any], document: str) -> dict[str, Any]:
    """The fields of the tool that pinned fields are."""
    http = given.get("http")
    if not isinstance(http, Mapping):
        raise DefinitionError(str(given.get("name")), [Fault("http", "it is missing")])
    credentials = http.get("credentials") or []
    fields: dict[str, Any] = {
        "name": given["name"], "description": given["description"], "category": "service", "tier": "external_api",
        "kind": "http", "source": "openapi", "input_schema": given["inputSchema"], "output_schema": ANSWER_SCHEMA,
        "http": http, "annotations": given["annotations"], "tags": ("openapi", document),
    }  # fmt: skip
    if http.get("method") in REPEATED_METHODS:
        may_change = http["method"] not in BODILESS_METHODS
        codes = (*RETRY_CODES, "OUTCOME_UNKNOWN") if may_change else RETRY_CODES
        fields["retry"] = {"max_attempts": MAX_ATTEMPTS, "codes": codes}
    if credentials:
        kinds = {"bearer": "bearer_token", "basic": "basic_auth", None: "api_key"}
        fields["requires_auth"] = {
            "config_key": credentials[0]["secret"], "type": kinds[credentials[0].get("scheme")],
        }  # fmt: skip
    return fields
