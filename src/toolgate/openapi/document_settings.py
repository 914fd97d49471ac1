"""The settings of an OpenAPI document: its server, the operations that are wanted, and its secrets."""

from fnmatch import fnmatchcase

import msgspec

from toolgate.openapi.document import DocumentOperation


class DocumentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings that a person gave a document when it was added."""

    server: str | None = None
    """The base URL in place of the document's."""
    operations: tuple[str, ...] = ()
    """Patterns of the operations that become tools: operationId, or `GET /path`. Empty: all."""
    secrets: dict[str, str] = msgspec.field(default_factory=dict)
    """By security scheme of the document, the name of the secret that is sent for it."""

    def wants(self, operation: DocumentOperation) -> bool:
        names = (str(operation.value.get("operationId") or ""), f"{operation.method.upper()} {operation.path}")
        return not self.operations or any(fnmatchcase(name, one) for one in self.operations for name in names)
