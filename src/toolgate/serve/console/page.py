"""Declarations of the console's pages.

A page is a function with a decorator, as a route of /v1 is:

    @pages.get("/calls", permission="own", place="calls", twin="/v1/invocations")
    async def calls(request: PageRequest, query: CallsQuery) -> View: ...

It gets its data from the functions of /v1, so it shows what its twin answers, to whom it answers it. A form is a page of
method POST; before its function is called, its hidden field was compared, and `request.form` holds what was typed. It gives
a `Go` to where the browser is to go, or a `View` of the page once more, with what was typed and what is wrong about it.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, get_type_hints
from urllib.parse import urlencode

import msgspec

from toolgate.model.roles import Permission
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, NoQuery

Place = Literal["overview", "approvals", "calls", "tools", "money", "system"]
CARRIED = ("tenant", "persona")
"""Parameters of an address that every link of its page has too."""
OWN_FIELDS = (*CARRIED, "done", "format")
"""Parameters that the frame reads; a page's query does not name them."""


class Typed(msgspec.Struct, frozen=True):
    """A form as somebody filled it in, and what is wrong with it: by field, and under the empty name as a whole."""

    values: Mapping[str, str] = {}
    faults: Mapping[str, str] = {}


NOTHING_TYPED = Typed()


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A page to be shown."""

    template: str
    title: str
    values: dict[str, Any] = {}
    status: int = 200
    listed: Sequence[Any] | Mapping[str, Any] | None = None
    """The items of its list, or a document, as /v1 answers them: what `format=csv` and `format=json` give out."""
    twin: Mapping[str, Any] | None = None
    """The query of its twin, where that is another than its own."""


class Go(msgspec.Struct, frozen=True):
    """The browser is sent to another page of this server; `done` names a sentence of `words.DONE` that is shown there."""

    path: str
    done: str | None = None
    headers: Mapping[str, str] = {}


class PageRequest(ApiRequest):
    """A request for a page by somebody who is signed in and may see it."""

    __slots__ = ("carried", "csrf", "fields", "form", "path", "persona", "seq", "theme")

    carried: dict[str, str]
    """Parameters that every link carries on: the tenant and the persona that were chosen."""
    csrf: str
    """The hidden field of this session's forms."""
    fields: dict[str, str]
    """The query as it was sent, without what the frame reads."""
    form: Mapping[str, list[str]]
    path: str
    persona: str | None
    """The persona that was chosen: whom an operator looks and acts as, for others a filter of calls and jobs."""
    seq: int
    """The last row of the log before the page was made: live parts follow what comes after it."""
    theme: str | None

    def url(self, path: str, **fields: object) -> str:
        """The address of a page, with the chosen tenant and persona; what is None is left out."""
        given = {**self.carried, **{name: str(value) for name, value in fields.items() if value is not None}}
        return f"{path}?{urlencode(given)}" if given else path

    def here(self, **changes: object) -> str:
        """The address of this page with other parameters. A change of a filter begins at the first page again."""
        kept = {name: value for name, value in self.fields.items() if name != "cursor"}
        return self.url(self.path, **{**kept, **changes})

    def typed(self, name: str) -> str:
        """A field of the form; empty if it was not sent."""
        return self.form.get(name, [""])[-1]

    def typed_form(self, faults: Mapping[str, str]) -> Typed:
        """The form once more, with what is wrong about it."""
        return Typed({name: values[-1] for name, values in self.form.items()}, faults)


Handle = Callable[..., Awaitable[View | Go]]


class PageRoute(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one address."""

    method: Literal["GET", "POST"]
    path: str
    permission: Permission
    place: Place
    twin: str | None
    """The route of /v1 that answers the same as JSON."""
    page: str | None = None
    """The page that a form is on, where that is not the next one above its address."""
    handle: Handle
    path_parameters: tuple[str, ...]
    query: type[ApiModel]


class Pages:
    """The pages of one place."""

    def __init__(self, place: Place) -> None:
        self.place: Place = place
        self.routes: list[PageRoute] = []

    def get(self, path: str, permission: Permission, twin: str | None = None) -> Callable[[Handle], Handle]:
        return self._add("GET", path, permission, twin)

    def post(self, path: str, permission: Permission, page: str | None = None) -> Callable[[Handle], Handle]:
        return self._add("POST", path, permission, None, page)

    def _add(
        self, method: Literal["GET", "POST"], path: str, permission: Permission, twin: str | None, page: str | None = None
    ) -> Callable[[Handle], Handle]:
        def declare(handle: Handle) -> Handle:
            hints = get_type_hints(handle)
            in_path = tuple(part[1:-1] for part in path.split("/") if part.startswith("{"))
            named = [name for name in inspect.signature(handle).parameters if name not in ("request", "query")]
            if set(named) != set(in_path):
                raise TypeError(f"{handle.__name__}: its parameters {named} are not those of {path}")
            self.routes.append(
                PageRoute(
                    method=method,
                    path=path,
                    permission=permission,
                    place=self.place,
                    twin=twin,
                    page=page,
                    handle=handle,
                    path_parameters=in_path,
                    query=hints.get("query", NoQuery),
                )
            )
            return handle

        return declare
