"""FastAPI: an App that is open for as long as the web application runs, and callers that their credential names.

    api = FastAPI(lifespan=lifespan(tools=[pay]))

    @api.post("/tools/{name}")
    async def call(name: str, arguments: dict[str, Any], caller: Caller) -> Outcome:
        return await caller.invoke(name, arguments)

Who calls comes from the credential of the request, never from its body: an API key of Toolgate or a token of a known issuer
(`Caller`, `Approver`), or whatever a dependency of the web application makes of it (`caller_from`).
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from os import PathLike
from typing import Annotated, Any

from toolgate.adapters.requirement import framework
from toolgate.app.app import App
from toolgate.errors import ToolgateError
from toolgate.gates.approval.request import Answer, Approval
from toolgate.mcp.server.identity import Credential
from toolgate.model import Actor, Outcome, check_request_id
from toolgate.model.roles import Permission
from toolgate.registry.export import Shape
from toolgate.serve.problems import HttpProblem, problem_of
from toolgate.settings import Settings

with framework("FastAPI", "fastapi"):
    from fastapi import Depends, FastAPI, HTTPException, Request, Response
    from fastapi.security import HTTPBearer

    from toolgate.serve.authentication import Authenticator
    from toolgate.serve.http.tools import retry_after, status_of

CHALLENGE = {"www-authenticate": 'Bearer realm="toolgate"'}


def lifespan(
    settings_or_path: Settings | str | PathLike[str] | None = None, /, *, tools: Iterable[Any] = (), **overrides: Any
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """Gives the lifespan of a web application with an App in it, which is `api.state.toolgate` while it runs.

    Args:
        settings_or_path: As for `App.open`.
        tools: Functions, classes and objects declared with `@tool`, which are registered.
        **overrides: Settings by name, as for `App.open`.
    """

    @asynccontextmanager
    async def opened(api: FastAPI) -> AsyncIterator[None]:
        async with App.open(settings_or_path, **overrides) as app:
            app.tools.register_many(tools)
            api.state.toolgate, api.state.toolgate_authenticator = app, Authenticator(app)
            yield

    return opened


class WebCaller:
    """The sender of a request: the calls of an App that they may make, as the actor that they are."""

    def __init__(self, app: App, actor: Actor, request: Request, response: Response) -> None:
        self.app = app
        self.actor = actor
        self._request = request
        self._response = response

    async def tools(self, shape: Shape = "mcp") -> list[dict[str, Any]]:
        """Gives the tools that the caller may see, in the shape that a model's API or an MCP client takes."""
        return await self.app.tools.export(shape, self.actor)

    async def invoke(
        self,
        name: str | Callable[..., Any],
        arguments: Mapping[str, Any] | str | bytes | None = None,
        *,
        session: str | None = None,
        approval: str | None = None,
        timeout: float | None = None,
    ) -> Outcome:
        """Calls a tool, and gives the response the status of its outcome: 202 if it waits for a person.

        The headers Idempotency-Key and X-Request-Id of the request are the call's. Arguments as for `App.invoke`.
        """
        headers = self._request.headers
        request_id = headers.get("x-request-id")
        try:
            if request_id is not None:
                check_request_id(request_id)
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        outcome = await self.app.invoke(
            name, arguments, actor=self.actor, session=session, approval=approval, timeout=timeout,
            idempotency_key=headers.get("idempotency-key"), request_id=request_id, door="http",
        )  # fmt: skip
        self._response.status_code = status_of(outcome)
        self._response.headers.update(retry_after(outcome) or {})
        return outcome

    async def answer(self, id: str, answer: Answer | bool) -> Approval:
        """Approves, edits or rejects a call that waits. Raises an `HTTPException` if there is no such question, it was
        answered already, or this caller may not answer it: nobody approves a call of their own."""
        try:
            return await self.app.approvals.answer(id, answer, actor=self.actor, through="http")
        except ToolgateError as error:
            raise _refusal(error) from None


def caller_from(actor: Callable[..., Any]) -> Any:
    """Gives a dependency on a `WebCaller`, whose actor a dependency of the web application tells: of a session cookie, say.

    `Person = Annotated[WebCaller, caller_from(signed_in)]`. It may do what its routes let it do: roles are theirs to check.
    """

    async def made(request: Request, response: Response, who: Annotated[Actor, Depends(actor)]) -> WebCaller:
        return WebCaller(request.app.state.toolgate, who, request, response)

    return Depends(made)


def holder_of(permission: Permission) -> Callable[..., Any]:
    """Gives a dependency on the actor of a request's API key, or of its issuer's token, if its roles permit this."""

    async def actor(request: Request, _: Annotated[Any, Depends(HTTPBearer(auto_error=False))]) -> Actor:
        credential = await _credential(request)
        if not credential.may(permission):
            raise HTTPException(403, f"The credential's roles do not permit this: it takes the permission {permission}.")
        return credential.actor

    return actor


async def _credential(request: Request) -> Credential:
    headers = dict(request.scope["headers"])
    if b"authorization" not in headers:  # a cookie of Toolgate's own console is none for other pages
        raise HTTPException(401, "Send an API key: `Authorization: Bearer tg_…`.", CHALLENGE)
    authenticator: Authenticator = request.app.state.toolgate_authenticator
    try:
        return await authenticator.check(request.scope, headers)
    except HttpProblem as problem:
        raise _refusal(problem) from None


def _refusal(error: ToolgateError) -> HTTPException:
    problem = error if isinstance(error, HttpProblem) else problem_of(error)
    if problem is None:
        raise error
    return HTTPException(problem.status, str(problem), dict(problem.headers or {}) or None)


Caller = Annotated[WebCaller, caller_from(holder_of("call"))]
"""The type of a route's parameter: whoever sent the request, with a credential that may call tools."""
Approver = Annotated[WebCaller, caller_from(holder_of("answer"))]
"""The type of a route's parameter: whoever sent the request, with a credential that may answer approvals."""
