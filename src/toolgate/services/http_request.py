"""Makes an HTTP request of an endpoint's definition and a call's arguments.

Arguments are text that a model wrote. Each is encoded for the place that it fills, so that it stays there: no slash,
question mark or line end of it reaches the request as such. What a server could take for a way up in the path is refused.
"""

import base64
import binascii
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import orjson

from toolgate.errors import InvalidInput, printable
from toolgate.model.http_endpoint import FORM, PLACEHOLDER, FieldStyle, HttpBody, HttpCredential, HttpEndpoint, HttpParameter

MAX_DECODED_LAYERS = 4
"""Times that a value of the path is decoded in search of a way up: servers behind proxies decode more than once."""
SEPARATORS = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}
PLAIN_STYLE = FieldStyle()

Pairs = Iterator[tuple[str, str]]
"""Names and values, both encoded."""


class HttpRequest(NamedTuple):
    """A request that is ready to be sent to the endpoint's origin."""

    target: str
    """Path and query."""
    headers: dict[str, str]
    content: bytes | None


def make_request(
    endpoint: HttpEndpoint, arguments: Mapping[str, Any], credential: Callable[[HttpCredential], str | None]
) -> HttpRequest:
    """The request of a call. `credential` gives the value of one; None: it goes without. Raises InvalidInput for arguments
    that cannot be sent."""
    known = set(endpoint.arguments())
    for name in arguments:
        if name not in known:
            raise InvalidInput(f"The request has no place for the argument {printable(name)[:64]!r}.")
    given = {parameter: arguments[parameter.argument] for parameter in endpoint.parameters
             if arguments.get(parameter.argument) is not None}  # fmt: skip
    taken: set[tuple[str, str]] = {(one.place, one.name) for one in endpoint.credentials} | {
        (one.place, one.sent_name) for one in endpoint.parameters
    }
    query = [pair for one, value in given.items() if one.place == "query" for pair in _free(one, value, taken)]
    headers = {one.sent_name: _header(one, value) for one, value in given.items() if one.place == "header"}
    cookies = [pair for one, value in given.items() if one.place == "cookie" for pair in _free(one, value, taken)]
    for kept in endpoint.credentials:
        value = credential(kept)
        if value is None:
            continue
        if kept.place == "header":
            headers[kept.name] = _authorization(kept, value)
        else:
            (query if kept.place == "query" else cookies).append((_encoded(kept.name), _encoded(value)))
    if cookies:
        headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies)
    content, media_type = _content(endpoint, arguments, given)
    if media_type is not None:
        headers["Content-Type"] = media_type
    target = _path(endpoint, given)
    return HttpRequest(f"{target}?{_joined(query)}" if query else target, headers, content)


def _authorization(credential: HttpCredential, value: str) -> str:
    if credential.scheme == "basic":
        return f"Basic {base64.b64encode(value.encode()).decode()}"
    return f"Bearer {value}" if credential.scheme == "bearer" else value


# -- the path


def _path(endpoint: HttpEndpoint, given: Mapping[HttpParameter, Any]) -> str:
    values = {one.sent_name: _segment(one, given.get(one)) for one in endpoint.parameters if one.place == "path"}
    return PLACEHOLDER.sub(lambda found: values[found[1]], endpoint.path) or "/"


def _segment(parameter: HttpParameter, value: Any) -> str:
    """The text in place of a name in braces. Raises InvalidInput for one that leads to another path: empty, or a way up."""
    name = parameter.argument
    style, explode = parameter.of("path")
    parts = [] if value is None else list(_items(value, explode=explode, as_json=parameter.as_json))
    if not parts or not any(parts):
        raise InvalidInput(f"The argument {name!r} is empty, which would lead to another path.")
    for text in _texts(value):
        if _leads_up(text):
            raise InvalidInput(
                f"The argument {name!r} holds . or .. as a segment of a path, which is not sent.",
                suggestion="Give the name or id itself.",
            )
    if style == "label":
        return "." + ("." if explode else ",").join(parts)
    if style == "matrix":
        own = "" if explode and isinstance(value, Mapping) else f"{_encoded(parameter.sent_name)}="
        return "".join(f";{own}{part}" for part in parts) if explode else f";{own}{','.join(parts)}"
    return ",".join(parts)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (text for pair in value.items() for part in pair for text in _texts(part))
    elif isinstance(value, list):
        yield from (text for part in value for text in _texts(part))
    else:
        yield _text(value)


def _leads_up(text: str) -> bool:
    for _ in range(MAX_DECODED_LAYERS):
        if any(segment.split(";")[0].strip() in (".", "..") for segment in text.replace("\\", "/").split("/")):
            return True
        decoded = unquote(text)
        if decoded == text:
            return False
        text = decoded
    return "%" in text  # encoded so often that no honest value is


# -- query, cookies and forms


def _free(parameter: HttpParameter, value: Any, taken: set[tuple[str, str]]) -> Pairs:
    """The pairs of a parameter. Raises InvalidInput if a name inside an object is that of another place."""
    style, explode = parameter.of(parameter.place)
    if style == "form" and explode and isinstance(value, Mapping):
        for name in value:
            if (parameter.place, name) in taken:
                raise InvalidInput(
                    f"{printable(name)[:64]!r} in the argument {parameter.argument!r} is the name of another parameter."
                )
    return _pairs(parameter.sent_name, value, parameter, as_json=parameter.as_json)


def _pairs(name: str, value: Any, written: FieldStyle, *, as_json: bool = False) -> Pairs:
    style, explode = written.of("query")
    key = _encoded(name)
    if as_json or not isinstance(value, list | Mapping):
        yield key, _encoded(_json(value) if as_json else _text(value))
    elif style == "deepObject":
        yield from _nested(name, value)
    elif explode:
        if isinstance(value, Mapping):
            yield from ((_encoded(inner), _encoded(_text(part))) for inner, part in value.items() if part is not None)
        else:
            yield from ((key, _encoded(_text(part))) for part in value)
    elif value:
        yield key, SEPARATORS.get(style, ",").join(_items(value, explode=False))


def _nested(name: str, value: Any) -> Pairs:
    if isinstance(value, Mapping):
        for inner, part in value.items():
            yield from _nested(f"{name}[{inner}]", part)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _nested(f"{name}[{index}]", part)
    elif value is not None:
        yield _encoded(name), _encoded(_text(value))


def _items(value: Any, *, explode: bool, as_json: bool = False) -> Iterator[str]:
    """The encoded parts of a value in the order in which a style joins them."""
    if as_json:
        yield _encoded(_json(value))
    elif isinstance(value, Mapping):
        for name, part in value.items():
            if explode:
                yield f"{_encoded(name)}={_encoded(_text(part))}"
            else:
                yield from (_encoded(name), _encoded(_text(part)))
    elif isinstance(value, list):
        yield from (_encoded(_text(part)) for part in value)
    else:
        yield _encoded(_text(value))


def _header(parameter: HttpParameter, value: Any) -> str:
    """The text of a header, which is not encoded: the HTTP client refuses what no header may hold."""
    if parameter.as_json:
        return _json(value)
    if isinstance(value, Mapping):
        mark = "=" if parameter.of("header")[1] else ","
        return ",".join(f"{name}{mark}{_text(part)}" for name, part in value.items())
    return ",".join(map(_text, value)) if isinstance(value, list) else _text(value)


def _encoded(text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise InvalidInput("An argument holds half of a surrogate pair, which is no text.") from None


def _joined(pairs: list[tuple[str, str]]) -> str:
    return "&".join(f"{name}={value}" for name, value in pairs)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


# -- the body


def _content(
    endpoint: HttpEndpoint, arguments: Mapping[str, Any], given: Mapping[HttpParameter, Any]
) -> tuple[bytes | None, str | None]:
    """The body and its media type."""
    body = endpoint.body
    if body is None:
        return None, None
    if body.argument is None:
        value: Any = {one.sent_name: part for one, part in given.items() if one.place == "body"}
        if not value:
            return None, None
    elif body.argument not in arguments:
        return None, None
    else:
        value = arguments[body.argument]
    if body.is_json:
        return orjson.dumps(value), body.media_type
    if body.is_form:
        return _form(body, value)
    if not isinstance(value, str):
        raise InvalidInput(f"The body is {body.media_type}, which is given as text.")
    if body.media_type.startswith("text/") or body.media_type.endswith(("/xml", "+xml", "/yaml")):
        return value.encode(), f"{body.media_type}; charset=utf-8"
    return _bytes("body", value), body.media_type


def _form(body: HttpBody, value: Any) -> tuple[bytes, str]:
    if not isinstance(value, Mapping):
        raise InvalidInput("The body is a form, which is given as an object.")
    fields = {name: part for name, part in value.items() if part is not None}
    if body.media_type == FORM:
        pairs = [pair for name, part in fields.items() for pair in _pairs(name, part, body.fields.get(name, PLAIN_STYLE))]
        return _joined(pairs).encode(), FORM
    boundary = secrets.token_hex(16)
    parts = [part for name, inner in fields.items() for part in _parts(name, inner, is_file=name in body.files)]
    content = b"".join(b"--%b\r\n%b\r\n" % (boundary.encode(), part) for part in parts)
    return content + b"--%b--\r\n" % boundary.encode(), f"{body.media_type}; boundary={boundary}"


def _parts(name: str, value: Any, *, is_file: bool) -> Iterator[bytes]:
    shown = name.replace("\\", "%5C").replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    head = f'Content-Disposition: form-data; name="{shown}"'
    for one in value if isinstance(value, list) else [value]:
        if is_file:
            file = _bytes(name, one)
            yield f'{head}; filename="{shown}"\r\nContent-Type: application/octet-stream\r\n\r\n'.encode() + file
        elif isinstance(one, list | Mapping):
            yield f"{head}\r\nContent-Type: application/json\r\n\r\n{_json(one)}".encode()
        else:
            yield f"{head}\r\n\r\n{_text(one)}".encode()


def _bytes(name: str, value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise InvalidInput(f"{printable(name)[:64]!r} is given as base64.") from None
