"""Validates an MCP tool's output against the schema of its server: the structured part, where the output has other parts
beside it (see `runner`)."""

from collections.abc import Iterator
from typing import Any

from toolgate.model import Validator

STRUCTURED_CONTENT = "structuredContent"


class StructuredOutputValidator:
    """A compiled schema, for outputs that are the value itself or have it in `structuredContent`."""

    def __init__(self, check: Validator) -> None:
        self._check: Any = check

    def is_valid(self, output: Any, /) -> bool:
        return bool(self._check.is_valid(output[STRUCTURED_CONTENT] if _has_parts(output) else output))

    def iter_errors(self, output: Any, /) -> Iterator[Any]:
        if not _has_parts(output):
            return iter(self._check.iter_errors(output))
        return map(NestedError, self._check.iter_errors(output[STRUCTURED_CONTENT]))

    def validate(self, output: Any, /) -> None:
        if not _has_parts(output):
            self._check.validate(output)
            return
        try:
            self._check.validate(output[STRUCTURED_CONTENT])
        except ValueError as error:
            raise NestedError(error) from None


class NestedError(ValueError):
    """An error of the structured part, located in the whole output."""

    def __init__(self, error: Any) -> None:
        super().__init__(str(error))
        self.instance_path = [STRUCTURED_CONTENT, *error.instance_path]
        self.schema_path = error.schema_path
        self.kind = _NestedErrorKind(error.kind)


class _NestedErrorKind:
    def __init__(self, kind: Any) -> None:
        self._kind = kind

    @property
    def context(self) -> list[list[NestedError]]:
        return [[NestedError(error) for error in branch] for branch in self._kind.context]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)


def _has_parts(output: Any) -> bool:
    return (
        isinstance(output, dict) and output.keys() == {"content", STRUCTURED_CONTENT} and isinstance(output["content"], list)
    )
