"""The HTTP request that a call of a tool is: its method and URL, and the place of each argument in it.

All of it is data that is checked when the definition is made. Nothing of it is chosen by whoever calls the tool: an argument
fills a place that the definition names, and can change neither the host nor the path beside it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from toolgate.errors import ToolgateError
from toolgate.model.frozen_model import FrozenModel
from toolgate.network.http_headers import OWN_HEADERS
from toolgate.network.urls import Url, parse_url

HttpMethod = Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
Place = Literal["path", "query", "header", "cookie", "body"]
Style = Literal["simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject"]
STYLES: Mapping[Place, tuple[Style, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
    "body": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
}
"""The styles of each place as OpenAPI has them, the first is the default."""
REPEATED_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
"""Methods whose request may be sent again: once or twice is the same to the service."""
BODILESS_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_PLACES = 200
PLACEHOLDER = re.compile(r"\{([^{}/?#]{1,128})\}")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}\Z")
COOKIE_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}\Z")
MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9*][a-z0-9!#$&^_.+-]{0,126}\Z")
SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
FIXED_HEADERS = OWN_HEADERS | {
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "content-type",
    "accept-encoding",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
}
"""Headers that no argument fills: they say how a message is sent, or who sends it, or have a service take it for a request
of another method or path."""
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"


class FieldStyle(FrozenModel):
    """The way in which a list or an object is written as text, by the names that OpenAPI has."""

    style: Style | None = None
    """None: the default of its place."""
    explode: bool | None = None
    """None: as OpenAPI has it, for the style form only."""

    def of(self, place: Place) -> tuple[Style, bool]:
        """The style in effect, and whether each item stands for itself."""
        style = self.style or STYLES[place][0]
        return style, style in ("form", "deepObject") if self.explode is None else self.explode


class HttpParameter(FieldStyle):
    """An argument of the tool, and its place in the request."""

    argument: str = Field(min_length=1, max_length=128)
    place: Place
    name: str | None = Field(default=None, min_length=1, max_length=128)
    """Its name in the request; None: the argument's own."""
    as_json: bool = False
    """True: written as JSON, whatever it is."""

    @property
    def sent_name(self) -> str:
        return self.argument if self.name is None else self.name

    @model_validator(mode="after")
    def _fits_its_place(self) -> "HttpParameter":
        if self.style is not None and self.style not in STYLES[self.place]:
            raise ValueError(f"a parameter in the {self.place} has no style {self.style}: {', '.join(STYLES[self.place])}")
        name = self.sent_name
        if self.place == "header" and (
            not HEADER_NAME.match(name) or name.lower() in FIXED_HEADERS or name.lower().startswith("proxy-")
        ):
            raise ValueError(f"no argument fills the header {name[:64]!r}")
        if self.place == "cookie" and not COOKIE_NAME.match(name):
            raise ValueError(f"{name[:64]!r} is not the name of a cookie")
        return self


class HttpBody(FrozenModel):
    """The body of a request."""

    media_type: str = "application/json"
    """JSON, a form, `multipart/form-data` and text are written from arguments; of any other type, the argument is base64."""
    argument: str | None = Field(default=None, min_length=1, max_length=128)
    """The argument that is the whole body; None: an object of the arguments whose place is the body."""
    fields: dict[str, FieldStyle] = Field(default_factory=dict, max_length=MAX_PLACES)
    """Of a form: the styles of its fields that have others than the default."""
    files: tuple[str, ...] = Field(default=(), max_length=MAX_PLACES)
    """Of `multipart/form-data`: the fields that are files, given as base64."""

    @field_validator("media_type")
    @classmethod
    def _is_media_type(cls, text: str) -> str:
        if not MEDIA_TYPE.match(text) or "*" in text:
            raise ValueError("it must be a media type such as application/json, without parameters")
        return text

    @property
    def is_json(self) -> bool:
        return self.media_type == "application/json" or self.media_type.endswith("+json")

    @property
    def is_form(self) -> bool:
        return self.media_type in (FORM, MULTIPART)


class HttpCredential(FrozenModel):
    """A secret that goes with each request."""

    secret: str
    """Its name, never its value."""
    place: Literal["header", "query", "cookie"] = "header"
    name: str = Field(default="Authorization", min_length=1, max_length=128)
    scheme: Literal["bearer", "basic"] | None = None
    """`basic`: the secret is `user:password`. None: it is sent as it is."""

    @field_validator("secret")
    @classmethod
    def _is_secret_name(cls, name: str) -> str:
        if not SECRET.match(name):
            raise ValueError("it must be the name of a secret, not its value: letters, digits and _, and no digit first")
        return name

    @model_validator(mode="after")
    def _fits_its_place(self) -> "HttpCredential":
        key = self.name.lower()
        if self.place == "header" and (not HEADER_NAME.match(key) or key in FIXED_HEADERS - {"authorization"}):
            raise ValueError(f"no credential is sent in the header {key[:64]!r}")
        if self.place == "cookie" and not COOKIE_NAME.match(self.name):
            raise ValueError(f"{self.name[:64]!r} is not the name of a cookie")
        return self


class HttpEndpoint(FrozenModel):
    """One operation of an HTTP service."""

    method: HttpMethod = "GET"
    url: str
    """`https://api.example.com/users/{id}`: the arguments whose place is the path stand in braces, and nowhere but there."""
    parameters: tuple[HttpParameter, ...] = Field(default=(), max_length=MAX_PLACES)
    body: HttpBody | None = None
    credentials: tuple[HttpCredential, ...] = Field(default=(), max_length=8)

    @field_validator("url")
    @classmethod
    def _is_template(cls, url: str) -> str:
        try:
            parse_url(PLACEHOLDER.sub("x", url))
        except ToolgateError as error:
            raise ValueError(error.message) from None
        origin, path = _split(url)
        if "{" in origin or "}" in origin:
            raise ValueError("its host is written out: no argument chooses it")
        bare = PLACEHOLDER.sub("x", path)
        if re.search(r"[{}?#]", bare):
            raise ValueError("it has braces around a name, or a query: parameters of the query are named as such")
        segments = path.split("/")
        if any(re.fullmatch(r"(?:\.|%2e){1,2}", segment, re.IGNORECASE) for segment in segments):
            raise ValueError("its path has . or .. as a segment")
        return url

    @model_validator(mode="after")
    def _has_one_place_each(self) -> "HttpEndpoint":
        named = PLACEHOLDER.findall(_split(self.url)[1])
        filled = [parameter.sent_name for parameter in self.parameters if parameter.place == "path"]
        if sorted(set(named)) != sorted(filled):
            odd = sorted(set(named) ^ set(filled)) or sorted(filled)
            raise ValueError(f"each name in braces needs one parameter whose place is path: {', '.join(odd)[:200]}")
        for what, names in (("places", self._places()), ("arguments", self.arguments())):
            twice = _repeated(names)
            if twice is not None:
                raise ValueError(f"two {what} are the same: {twice}")
        in_body = any(parameter.place == "body" for parameter in self.parameters)
        if in_body and (self.body is None or self.body.argument is not None):
            raise ValueError("arguments are placed in the body, but it is not made of arguments")
        if self.body is not None and self.method in BODILESS_METHODS:
            raise ValueError(f"a {self.method} request has no body")
        return self

    def _places(self) -> Iterator[str]:
        placed = [(one.place, one.sent_name) for one in self.parameters]
        for place, name in (*placed, *((one.place, one.name) for one in self.credentials)):
            yield f"{place} {name.lower() if place == 'header' else name}"

    def arguments(self) -> Iterator[str]:
        """The arguments that the request is made of."""
        for parameter in self.parameters:
            yield parameter.argument
        if self.body is not None and self.body.argument is not None:
            yield self.body.argument

    @property
    def address(self) -> Url:
        """The URL as the HTTP client reads it; its target is no path that can be requested."""
        return parse_url(PLACEHOLDER.sub("x", self.url))

    @property
    def origin(self) -> str:
        return _split(self.url)[0]

    @property
    def path(self) -> str:
        """The template of the path."""
        return _split(self.url)[1]


def endpoint_fault(endpoint: HttpEndpoint, schema: Mapping[str, Any], *, is_repeated: bool) -> tuple[str, str] | None:
    """The field of a tool that contradicts its endpoint, and why; None if none does."""
    properties = schema.get("properties")
    declared = set(properties) if isinstance(properties, Mapping) else set()
    placed = set(endpoint.arguments())
    if declared != placed:
        odd = ", ".join(sorted(declared ^ placed))[:200]
        return "http", f"every argument of input_schema has a place in the request, and no other has one: {odd}"
    required = schema.get("required")
    given = {*(required if isinstance(required, list | tuple) else ())}
    for parameter in endpoint.parameters:
        if parameter.place == "path" and parameter.argument not in given:
            return "input_schema", f"the argument {parameter.argument!r} is in the path, so it must be required"
    if is_repeated and endpoint.method not in REPEATED_METHODS:
        return "retry", f"a {endpoint.method} request is not repeated: it may have had its effect"
    return None


def _split(url: str) -> tuple[str, str]:
    """Scheme with host, and path."""
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host}", f"{slash}{path}"


def _repeated(names: Iterator[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name[:100]
        seen.add(name)
    return None
