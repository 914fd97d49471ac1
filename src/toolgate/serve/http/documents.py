"""/v1/documents: the documents that agents may ask questions of. They are taken in by the tool document_ingest."""

from datetime import datetime

from toolgate.serve.http.endpoint import ApiRequest, ApiView, Resource
from toolgate.serve.http.pages import Page, PageQuery, page_of, position_of
from toolgate.serve.problems import HttpProblem
from toolgate.store.documents import DocumentRow

resource = Resource("documents")


class DocumentView(ApiView, frozen=True):
    """A document, without its text."""

    id: str
    name: str
    kind: str
    tenant: str
    persona: str | None
    """The persona whose agents may ask it; null: callers without one."""
    user: str
    """The user who took it in."""
    sha256: str
    """Of the file."""
    size_bytes: int
    passages: int
    truncated: bool
    """True if only its beginning was taken in."""
    created_at: datetime


def view_of(row: DocumentRow) -> DocumentView:
    return DocumentView(
        id=row.id, name=row.name, kind=row.kind, tenant=row.tenant_id, persona=row.persona_id or None, user=row.created_by,
        sha256=row.sha256, size_bytes=row.size_bytes, passages=row.passages, truncated=row.truncated,
        created_at=row.created_at,
    )  # fmt: skip


@resource.get("/v1/documents", permission="own")
async def list_documents(request: ApiRequest, query: PageQuery) -> Page[DocumentView]:
    """List documents, oldest first: those that the caller's user took in, or with the permission read of all users."""
    position = position_of(request, query)
    found = await request.app.documents.list(
        None if request.all_tenants else request.actor.tenant,
        user=None if request.all_users else request.actor.user,
        after=None if position is None else position[0],
        limit=query.limit + 1,
    )
    return page_of(request, query, [view_of(row) for row in found], lambda one: (one.id,))


@resource.delete("/v1/documents/{id}", permission="call")
async def remove_document(request: ApiRequest, id: str) -> None:
    """Remove a document with its passages: one's own, as an admin any of the tenant."""
    removed = await request.app.documents.remove(id, actor=request.actor, all_users=request.credential.may("administer"))
    if removed is None:
        raise HttpProblem(404, "There is no such document.", suggestion="GET /v1/documents lists them.")
