"""Names the tools of a document's operations."""

import re
from hashlib import sha256
from typing import Any

from toolgate.model import TOOL_NAME

MAX_NAME_CHARS = 64
LETTERS = re.compile(r"[^A-Za-z0-9-]+")


def name_tools(source: str, tools: dict[str, dict[str, Any]]) -> None:
    """Gives each tool its name: `{document}_{operationId}`, else of method and path. Where two would have the same one, each
    is closed with a piece of the hash of its method and path, so that neither depends on the order."""
    plain = {key: _plain_name(source, key, tool.pop("operationId", None)) for key, tool in tools.items()}
    seen: dict[str, int] = {}
    for name in plain.values():
        seen[name.lower()] = seen.get(name.lower(), 0) + 1
    for key, name in plain.items():
        tools[key]["name"] = name if seen[name.lower()] == 1 else _marked(name, key)


def _plain_name(source: str, key: str, operation: str | None) -> str:
    words = operation or re.sub(r"[{}]", "", key.replace("/", "_"))
    full = f"{source}_{LETTERS.sub('_', words).strip('_-') or 'operation'}"
    if len(full) <= MAX_NAME_CHARS and TOOL_NAME.match(full):
        return full
    return _marked(full, key)


def _marked(name: str, key: str) -> str:
    return f"{name[: MAX_NAME_CHARS - 9]}_{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
