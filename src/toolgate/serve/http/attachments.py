"""/v1/attachments: files that users upload, for the tool document_ingest and to be fetched again."""

from datetime import datetime
from email.message import Message
from typing import Annotated
from urllib.parse import quote

import msgspec

from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Reply, Resource
from toolgate.serve.http.pages import Page, PageQuery, page_of, position_of
from toolgate.serve.problems import HttpProblem
from toolgate.serve.request_body import read_body
from toolgate.store.attachments import AttachmentRow

resource = Resource("attachments")

BINARY = "application/octet-stream"
SETTING = "limits.attachment_bytes"
MAX_HEADER_BYTES = 2_000


class AttachmentView(ApiView, frozen=True):
    """A file without its content."""

    id: str
    name: str
    media_type: str
    """As whoever uploaded it says; it is served as application/octet-stream."""
    size_bytes: int
    sha256: str
    tenant: str
    user: str
    created_at: datetime


class UploadQuery(ApiModel, frozen=True):
    """The name of a file that is uploaded."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=255)] | None = None
    """Its name, if the header Content-Disposition does not say it."""


def view_of(row: AttachmentRow) -> AttachmentView:
    return AttachmentView(
        id=row.id, name=row.name, media_type=row.media_type, size_bytes=row.size_bytes, sha256=row.sha256,
        tenant=row.tenant_id, user=row.user_id, created_at=row.created_at,
    )  # fmt: skip


@resource.get("/v1/attachments", permission="own")
async def list_attachments(request: ApiRequest, query: PageQuery) -> Page[AttachmentView]:
    """List files, latest first: those of the caller's user, or with the permission read of all users."""
    position = position_of(request, query)
    found = await request.app.attachments.list(
        actor=request.actor, all_users=request.all_users, limit=query.limit + 1,
        before=None if position is None else position[0],
    )  # fmt: skip
    return page_of(request, query, [view_of(row) for row in found], lambda one: (one.id,))


@resource.post("/v1/attachments", permission="call", status=201, problems=(409,), max_body=30_000_000)
async def upload_attachment(request: ApiRequest, query: UploadQuery) -> AttachmentView:
    """Upload a file of the caller's own user: the body is the file itself.

    Its name is `name`, or that of the header Content-Disposition.
    """
    media_type = request.headers.get(b"content-type", b"").decode("latin-1")
    if media_type.lower().startswith("multipart/"):
        raise HttpProblem(415, "The body must be the file itself, not a form.")
    name = query.name or _file_name(request.headers.get(b"content-disposition"))
    if name is None:
        raise HttpProblem(422, "The file has no name.", suggestion="Give it: POST /v1/attachments?name=report.pdf")
    attachments = request.app.attachments
    content = await read_body(request.headers, request.receive, attachments.max_bytes, SETTING)
    return view_of(await attachments.add(name, content, media_type=media_type, actor=request.actor))


def _file_name(header: bytes | None) -> str | None:
    """The name of a file in a header, by RFC 6266."""
    if header is None or len(header) > MAX_HEADER_BYTES:
        return None
    message = Message()
    message["content-disposition"] = header.decode("latin-1")
    return message.get_filename()


@resource.get("/v1/attachments/{id}", permission="own", media_type=BINARY)
async def get_attachment(request: ApiRequest, id: str) -> bytes:
    """Get a file, to be saved: it is never shown as a page. Somebody else's looks missing."""
    row, content = await request.app.attachments.get(id, actor=request.actor, all_users=request.all_users)
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(row.name, safe='')}",
        "content-security-policy": "default-src 'none'; sandbox",
    }
    return Reply(content, headers=headers, media_type=BINARY)  # type: ignore[return-value]


@resource.delete("/v1/attachments/{id}", permission="call")
async def remove_attachment(request: ApiRequest, id: str) -> None:
    """Remove a file: one's own, as an admin any of the tenant."""
    await request.app.attachments.remove(id, actor=request.actor, all_users=request.credential.may("administer"))
