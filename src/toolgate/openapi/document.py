"""Reads OpenAPI documents. A document is untrusted data: its size is bounded before it is parsed, its depth after, and what
it refers to is looked for in the document itself and nowhere else."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin

import orjson

from toolgate.errors import ToolgateError, printable
from toolgate.jsontext import MAX_DEFINITION_DEPTH, is_deeper
from toolgate.mcp.pins import cleaned
from toolgate.network.urls import parse_url
from toolgate.yamltext import YamlError, read_yaml

MAX_DOCUMENT_BYTES = 33_554_432
MAX_YAML_DOCUMENT_BYTES = 4_194_304
MAX_OPERATIONS = 5_000
MAX_PLACE_CHARS = 200
MAX_INFO_CHARS = 1_000
MAX_TITLE_CHARS = 200
MAX_REFERENCES = 32
"""References that lead to each other."""
INDEX = re.compile(r"[0-9]{1,9}")
METHODS = ("get", "head", "options", "post", "put", "patch", "delete")


class DocumentError(ToolgateError):
    """The OpenAPI document cannot be used."""

    def __init__(self, place: str, why: str, *, suggestion: str | None = None) -> None:
        self.why = f"{place[:MAX_PLACE_CHARS].encode('unicode_escape').decode()}: {why}" if place else why
        super().__init__(f"The OpenAPI document is refused: {self.why}.", suggestion=suggestion)


class DocumentOperation(NamedTuple):
    """One operation as the document has it."""

    method: str
    path: str
    item: Mapping[str, Any]
    """The path item: it holds for all operations of the path."""
    value: Mapping[str, Any]

    @property
    def place(self) -> str:
        return f"paths.{self.path}.{self.method}"


class Document:
    """A document that was read."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.written_size = 0
        """Of all schemas that were written out so far."""
        version = root.get("openapi")
        if "swagger" in root and version is None:
            raise DocumentError(
                "swagger", "it is of Swagger 2.0, and OpenAPI 3.0 and 3.1 are read",
                suggestion="Convert it, for example with the program swagger2openapi.",
            )  # fmt: skip
        if not isinstance(version, str) or not version.startswith(("3.0", "3.1")):
            raise DocumentError("openapi", "it must say which version it is of: 3.0 or 3.1")
        self.is_3_0 = version.startswith("3.0")
        if not isinstance(root.get("paths"), Mapping):
            raise DocumentError("paths", "it is missing, or no object")

    @property
    def info(self) -> dict[str, str]:
        """The service's title and description, as far as the document says them."""
        given = self.root.get("info")
        words = {name: given.get(name) for name in ("title", "description")} if isinstance(given, Mapping) else {}
        return {
            name: cleaned(" ".join(str(text)[: 4 * MAX_INFO_CHARS].split()))[:MAX_INFO_CHARS]
            for name, text in words.items()
            if isinstance(text, str | int | float)
        }

    @property
    def title(self) -> str:
        return self.info.get("title", "")[:MAX_TITLE_CHARS]

    def operations(self) -> Iterator[DocumentOperation]:
        """All operations, in the order of the document."""
        number = 0
        for path, given in self.root["paths"].items():
            item = self.resolved(given, f"paths.{path}")
            if not path.startswith("/"):
                raise DocumentError(f"paths.{path}", "a path begins with /")
            for method in METHODS:
                if isinstance(item.get(method), Mapping):
                    number += 1
                    if number > MAX_OPERATIONS:
                        raise DocumentError("paths", f"it has more than {MAX_OPERATIONS:,} operations")
                    yield DocumentOperation(method, path, item, item[method])

    def resolved(self, given: Any, place: str) -> Mapping[str, Any]:
        """An object of the document, or the one that it refers to."""
        for _ in range(MAX_REFERENCES):
            if not isinstance(given, Mapping):
                raise DocumentError(place, "it is not an object")
            reference = given.get("$ref")
            if reference is None:
                return given
            given = self.at(reference, place)
        raise DocumentError(place, "its references lead in a circle")

    def at(self, reference: Any, place: str) -> Any:
        """The part that a reference names. Raises DocumentError for what is not in the document: nothing is ever fetched."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise DocumentError(
                place, "it refers to another document, which is not fetched", suggestion="Bundle it into one document first."
            )
        found: Any = self.root
        for part in reference[1:].split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and INDEX.fullmatch(key) and int(key) < len(found):
                found = found[int(key)]
            elif isinstance(found, Mapping) and key in found:
                found = found[key]
            else:
                raise DocumentError(place, f"it refers to {printable(reference)[:100]}, which is not there")
        return found

    def server(self, given: str | None, origin: str | None) -> str:
        """The base URL of the service: as it was given, or the first of the document. `origin`: the URL that the document
        came from, which relative URLs are relative to. Raises ToolgateError for one that cannot be requested."""
        url = given if given is not None else server_url(self.root.get("servers"))
        if given is None and url is not None and "://" not in url:
            url = None if origin is None else joined(origin, url)
        if url is None:
            raise DocumentError("servers", "it names no server", suggestion="Say which: `--server URL`.")
        if "?" in url or "#" in url or "{" in url:
            raise DocumentError("servers", "the URL of a server has no query, and no variable without a default")
        parse_url(url)
        return url.rstrip("/")


def joined(origin: str, url: str) -> str:
    """A URL that may be relative to another. Raises DocumentError for one that is no URL."""
    try:
        return urljoin(origin, url)
    except ValueError:
        raise DocumentError("servers", "the URL of its server is not valid") from None


def server_url(servers: Any) -> str | None:
    """The URL of the first server of a list, with the defaults of its variables; None: there is none."""
    first = servers[0] if isinstance(servers, list) and servers else None
    if not isinstance(first, Mapping) or not isinstance(first.get("url"), str):
        return None
    url: str = first["url"]
    variables = first.get("variables")
    for name, said in variables.items() if isinstance(variables, Mapping) else ():
        if isinstance(said, Mapping) and isinstance(said.get("default"), str):
            url = url.replace(f"{{{name}}}", said["default"])
    return url


def read_document(content: bytes) -> Document:
    """Reads a document, JSON or YAML. Raises DocumentError, which says where it is wrong."""
    if len(content) > MAX_DOCUMENT_BYTES:
        raise DocumentError("", f"it has more than {MAX_DOCUMENT_BYTES:,} bytes")
    root = _json(content) if content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" else _yaml(content)
    if not isinstance(root, dict):
        raise DocumentError("", "it is not a JSON or YAML object")
    if is_deeper(root, MAX_DEFINITION_DEPTH):
        raise DocumentError("", f"it is nested more than {MAX_DEFINITION_DEPTH} levels deep")
    return Document(root)


def _json(content: bytes) -> Any:
    try:
        return orjson.loads(content.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as error:
        raise DocumentError(f"line {error.lineno}", f"it is not valid JSON: {error.msg}") from None


def _yaml(content: bytes) -> Any:
    try:
        return read_yaml(content, MAX_YAML_DOCUMENT_BYTES, number_keys=True).value
    except YamlError as error:
        raise DocumentError("", f"it is neither JSON nor YAML that is read here: {error.message}") from None
