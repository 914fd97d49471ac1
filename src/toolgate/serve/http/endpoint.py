"""Declarations of the routes under /v1.

A route is a function with a decorator. Its signature says what it takes and gives, so that the checks of a request, the
OpenAPI document and the access tests are made from one thing:

    @resource.post("/v1/tools/{name}/invoke", permission="call")
    async def invoke(request: ApiRequest, name: str, body: Invocation) -> Outcome: ...

`request` is always there; `query` and `body` are msgspec structs that refuse unknown fields; every other parameter is a part
of the path. The docstring describes it.
"""

import inspect
from asyncio import Task
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, get_type_hints

import msgspec

from toolgate.model.roles import Permission, Role
from toolgate.serve.problems import HttpProblem
from toolgate.tasks import finish, start_task

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

    from toolgate.app.app import App
    from toolgate.mcp.server.identity import Credential
    from toolgate.model import Actor
    from toolgate.serve.app import HttpApp

T = TypeVar("T")
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
UNSAFE: frozenset[str] = frozenset({"POST", "PUT", "PATCH", "DELETE"})
MAX_PATH_PARAMETER_CHARS = 300


class ApiModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body or a query of a request: what it does not name is refused."""


class ApiView(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, or part of one."""


class NoQuery(ApiModel, frozen=True):
    """The query of a route that takes none."""


class ApiRequest:
    """A request whose sender is known, and may use the route."""

    __slots__ = ("_actor", "_known", "all_tenants", "credential", "headers", "http", "receive", "request_id", "scope")

    def __init__(
        self,
        http: "HttpApp",
        credential: "Credential",
        actor: "Actor",
        scope: "Scope",
        receive: "Receive",
        headers: Mapping[bytes, bytes],
        *,
        all_tenants: bool,
    ) -> None:
        self.http = http
        self.credential = credential
        self._actor = actor
        self.all_tenants = all_tenants
        """True if an operator asked for the things of all tenants (`tenant=*`)."""
        self.scope = scope
        self.receive = receive
        self.headers = headers
        self.request_id: str = scope["toolgate.request_id"]
        self._known: dict[Any, Task[Any]] = {}

    @property
    def app(self) -> "App":
        return self.http.app

    @property
    def actor(self) -> "Actor":
        """The actor for whom the request is made: the credential's; of an operator who named a tenant, in that tenant.

        Raises the problem of a request for all tenants: a route that does not look at `all_tenants` first is about one.
        """
        if self.all_tenants:
            raise HttpProblem(422, "This is about one tenant: name it in `tenant`, or leave that out.")
        return self._actor

    @property
    def sender(self) -> "Actor":
        """The actor who sends the request, also where it is about all tenants: for records of who did something, and for
        lists that look at `all_tenants` themselves."""
        return self._actor

    @property
    def all_users(self) -> bool:
        """True if the sender may see what other users of the tenant do."""
        return self.credential.may("read")

    async def once(self, find: "Callable[[Self], Awaitable[T]]") -> T:
        """Gives what a function finds for this request. It is looked for once, however many parts of the answer ask; while
        something is changed, each time."""
        if self.scope["method"] in UNSAFE:
            return await find(self)
        task = self._known.get(find)
        if task is None:
            task = self._known[find] = start_task(find(self), unheard=True)
        found: T = await finish(task)
        return found

    def require(self, permission: Permission) -> None:
        """Raises the problem of somebody who may not."""
        if not self.credential.may(permission):
            raise forbidden(permission)


ROLE_NAMES: dict[Permission, str] = {
    "own": "any role",
    "call": "caller, admin or operator",
    "read": "viewer, approver, admin or operator",
    "answer": "approver, admin or operator",
    "administer": "admin or operator",
    "operate": "operator",
}
"""The roles that have a permission, for messages and the OpenAPI document."""
LEAST_ROLES: dict[Permission, Role] = {
    "own": "guest",
    "call": "caller",
    "read": "viewer",
    "answer": "approver",
    "administer": "admin",
    "operate": "operator",
}
"""The role that has a permission and the fewest others."""


def forbidden(permission: Permission) -> HttpProblem:
    roles = ROLE_NAMES[permission]
    advice = f"`toolgate keys create NAME --role {LEAST_ROLES[permission]}` makes a key with it."
    return HttpProblem(403, f"This needs the role {roles}.", suggestion=advice)


class Reply(msgspec.Struct, frozen=True):
    """An answer with a status or headers of its own; handlers return a plain value for the usual ones."""

    value: Any
    status: int = 200
    headers: Mapping[str, str] | None = None
    media_type: str = "application/json"
    """Of another one than JSON, `value` is bytes."""


Handle = Callable[..., Awaitable[Any]]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: Method
    path: str
    tag: str
    permission: Permission
    handle: Handle
    path_parameters: tuple[str, ...]
    query: type[ApiModel]
    body: type[ApiModel] | None
    gives: Any
    """The type of the answer; None: there is no body."""
    status: int
    also: Mapping[int, str]
    """Statuses besides `status` whose answer has the same form, and when they come."""
    problems: tuple[int, ...]
    """Statuses of problem documents besides those that every route can answer with."""
    takes_key: bool
    """True if the header Idempotency-Key is taken."""
    media_type: str
    max_body: int | None
    """Bytes of a body that is not JSON and not read before the handler: an upload."""

    @property
    def id(self) -> str:
        return self.handle.__name__

    @property
    def summary(self) -> str:
        return inspect.getdoc(self.handle) or ""


class Resource:
    """The routes of one thing, which stand together in the OpenAPI document."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.endpoints: list[Endpoint] = []

    def _add(self, method: Method, path: str, permission: Permission, **terms: Any) -> Callable[[Handle], Handle]:
        def declare(handle: Handle) -> Handle:
            self.endpoints.append(_declared(self.tag, method, path, permission, handle, **terms))
            return handle

        return declare

    def get(self, path: str, permission: Permission, **terms: Any) -> Callable[[Handle], Handle]:
        return self._add("GET", path, permission, **terms)

    def post(self, path: str, permission: Permission, **terms: Any) -> Callable[[Handle], Handle]:
        return self._add("POST", path, permission, **terms)

    def put(self, path: str, permission: Permission, **terms: Any) -> Callable[[Handle], Handle]:
        return self._add("PUT", path, permission, **terms)

    def patch(self, path: str, permission: Permission, **terms: Any) -> Callable[[Handle], Handle]:
        return self._add("PATCH", path, permission, **terms)

    def delete(self, path: str, permission: Permission, **terms: Any) -> Callable[[Handle], Handle]:
        return self._add("DELETE", path, permission, **terms)


def _declared(
    tag: str,
    method: Method,
    path: str,
    permission: Permission,
    handle: Handle,
    *,
    status: int | None = None,
    also: Mapping[int, str] | None = None,
    problems: tuple[int, ...] = (),
    takes_key: bool = False,
    media_type: str = "application/json",
    max_body: int | None = None,
) -> Endpoint:
    hints = get_type_hints(handle)
    in_path = tuple(part[1:-1] for part in path.split("/") if part.startswith("{"))
    named = [name for name in inspect.signature(handle).parameters if name not in ("request", "query", "body")]
    if set(named) != set(in_path):
        raise TypeError(f"{handle.__name__}: its parameters {named} are not those of {path}")
    gives = hints.get("return")
    return Endpoint(
        method=method, path=path, tag=tag, permission=permission, handle=handle, path_parameters=in_path,
        query=hints.get("query", NoQuery), body=hints.get("body"), gives=None if gives is type(None) else gives,
        status=status or (204 if gives is type(None) else 200), also=also or {}, problems=problems, takes_key=takes_key,
        media_type=media_type, max_body=max_body,
    )  # fmt: skip
