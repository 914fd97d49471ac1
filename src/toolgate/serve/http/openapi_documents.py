"""/v1/openapi: the OpenAPI documents whose operations are tools, and what of theirs waits to be accepted. For operators."""

from typing import Annotated, Any

import msgspec
import orjson

from toolgate.app.openapi_documents import DocumentStatus
from toolgate.errors import plural
from toolgate.openapi.records import pin_server
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.pages import Page
from toolgate.serve.http.servers import AcceptedFingerprints, QuarantinedDefinition, waiting_view
from toolgate.serve.problems import HttpProblem

resource = Resource("openapi-documents")

Patterns = Annotated[list[Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=200)]
Texts = Annotated[dict[str, Annotated[str, msgspec.Meta(max_length=128)]], msgspec.Meta(max_length=32)]


class OpenApiDocumentView(ApiView, frozen=True):
    """An OpenAPI document."""

    name: str
    origin: str
    """The URL or file that it was read from; empty: it was sent in."""
    title: str
    server: str | None
    """The base URL of the service, where it was said in place of the document's."""
    operations: list[str]
    """Patterns of the operations that become tools; none: all."""
    secrets: dict[str, str]
    """By security scheme, the name of the secret that is sent."""
    accepted: int
    waiting: int
    gone: int
    read_at: str


class OpenApiDocumentDetail(ApiView, frozen=True):
    """A document with the definitions that wait."""

    document: OpenApiDocumentView
    quarantined: list[QuarantinedDefinition]
    problems: list[str]
    """Operations that cannot be tools, and why, as this process last read it."""


class NewOpenApiDocument(ApiModel, frozen=True):
    """A document that is to be read: from a URL, or as it is sent. Files of the server's machine are not read."""

    name: Annotated[str, msgspec.Meta(pattern="^[A-Za-z][A-Za-z0-9_-]{0,31}$")]
    url: Annotated[str, msgspec.Meta(pattern="^https?://", max_length=2_048)] | None = None
    document: dict[str, Any] | None = None
    server: Annotated[str, msgspec.Meta(max_length=2_048)] | None = None
    operations: Patterns = msgspec.field(default_factory=list)
    secrets: Texts = msgspec.field(default_factory=dict)
    replace: bool = False


def view_of(status: DocumentStatus) -> OpenApiDocumentView:
    return OpenApiDocumentView(**{**status._asdict(), "operations": list(status.operations)})


async def _detail(request: ApiRequest, name: str) -> OpenApiDocumentDetail:
    status = await request.app.openapi.get(name)
    waiting = await request.app.servers.quarantined(pin_server(name))
    return OpenApiDocumentDetail(
        document=view_of(status),
        quarantined=[waiting_view(one) for one in waiting],
        problems=[f"{problem.where}: {problem.why}" for problem in request.app.openapi.problems(name)],
    )


@resource.get("/v1/openapi", permission="operate")
async def list_openapi_documents(request: ApiRequest) -> Page[OpenApiDocumentView]:
    """List the OpenAPI documents: all of them, since there are few."""
    return Page([view_of(one) for one in await request.app.openapi.list()])


@resource.get("/v1/openapi/{name}", permission="operate")
async def get_openapi_document(request: ApiRequest, name: str) -> OpenApiDocumentDetail:
    """Get a document with the operations that wait to be accepted, each with its difference."""
    return await _detail(request, name)


@resource.post("/v1/openapi", permission="operate", status=201, problems=(409,))
async def add_openapi_document(request: ApiRequest, body: NewOpenApiDocument) -> OpenApiDocumentDetail:
    """Read an OpenAPI document, as `toolgate tools add --openapi` does.

    None of its operations can be called before it was accepted."""
    if (body.url is None) == (body.document is None):
        raise HttpProblem(422, "Give either url or document.")
    await request.app.openapi.add(
        body.name,
        body.url or "",
        content=None if body.document is None else orjson.dumps(body.document),
        server=body.server,
        operations=body.operations,
        secrets=body.secrets,
        replace=body.replace,
        operator=request.sender,
    )
    return await _detail(request, body.name)


@resource.post("/v1/openapi/{name}/refresh", permission="operate", problems=(409,))
async def refresh_openapi_document(request: ApiRequest, name: str) -> OpenApiDocumentDetail:
    """Read a document again, and compare its operations with those that were accepted."""
    await request.app.openapi.refresh(name, operator=request.sender)
    return await _detail(request, name)


@resource.post("/v1/openapi/{name}/accept", permission="operate", problems=(409,))
async def accept_operations(request: ApiRequest, name: str, body: AcceptedFingerprints) -> OpenApiDocumentDetail:
    """Accept operations as they were shown, by their fingerprints. If one has changed since, none is accepted."""
    await request.app.openapi.get(name)
    waiting = {one.hash: one for one in await request.app.servers.quarantined(pin_server(name))}
    unknown = [one for one in body.hashes if one not in waiting]
    if unknown:
        raise HttpProblem(
            409,
            f"{plural(len(unknown), 'fingerprint')} of those named is none of an operation that waits.",
            suggestion="It was accepted already, or has changed: get the document again, and look.",
        )
    wanted = [waiting[one] for one in dict.fromkeys(body.hashes)]
    if len(await request.app.servers.accept(wanted, operator=request.sender)) < len(wanted):
        raise HttpProblem(409, "An operation changed at this moment, and was not accepted.", suggestion="Look again.")
    return await _detail(request, name)


@resource.delete("/v1/openapi/{name}", permission="operate", problems=(409,))
async def remove_openapi_document(request: ApiRequest, name: str) -> None:
    """Remove a document with its tools and what was accepted of them."""
    await request.app.openapi.remove(name, operator=request.sender)
