"""Makes the parts of an App that keep documents and the files that users uploaded."""

from typing import TYPE_CHECKING

from toolgate.documents.attachments import Attachments
from toolgate.documents.library import DocumentLibrary
from toolgate.documents.reader import DocumentReader

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts


def make_documents(parts: "Parts") -> tuple[DocumentLibrary, Attachments]:
    """The documents that can be asked questions, and the files that users uploaded."""
    limits = parts.settings.limits
    library = DocumentLibrary(parts.store, DocumentReader(parts.sandbox), parts.embedder, limits.document_passages)
    return library, Attachments(parts.store, limits.attachment_bytes, limits.attachments_bytes)
