"""The types of Python, checked by pyrefly: its configuration, and its report as values.

Pyrefly gets a configuration of ours and nothing else. It asks no interpreter where packages are, so what is imported from
packages is reported and counts as `Any`.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolgate.errors import ToolError
from toolgate.tools.typescript_check import MAX_MESSAGE_CHARS, TypeFault

MISSING = frozenset({"missing-import", "missing-source", "missing-source-for-stubs", "untyped-import"})
"""Names of faults that speak of packages which are not here, and not of the sources."""


def configure(top: Path, sources: Path, files: Sequence[str], *, strict: bool) -> list[str]:
    """Writes the configuration beside the copied sources and gives the arguments of pyrefly."""
    paths = [str(sources), *(str(sources / "src") for _ in range((sources / "src").is_dir()))]
    lines = {
        "search-path": paths, "site-package-path": [], "skip-interpreter-query": True, "use-ignore-files": False,
        "enable-fallback-search-path": True,
        "disable-project-excludes-heuristics": True, "project-excludes": [],
    }  # fmt: skip
    config = top / "pyrefly.toml"
    config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items()))
    preset = "default" if strict else "basic"
    options = ["--config", str(config), "--preset", preset, "--min-severity", "warn", "--output-format", "json"]
    return [
        "check",
        *options,
        "--summary=none",
        "--color",
        "never",
        "--threads",
        "1",
        *(_escaped(sources / name) for name in files),
    ]


def _escaped(path: Path) -> str:
    """A path in which nothing is a wildcard."""
    return "".join(f"[{char}]" if char in "*?[]" else char for char in str(path))


def read_report(text: str, sources: Path) -> tuple[list[TypeFault], list[TypeFault]]:
    """The errors and the warnings of a report."""
    try:
        found = msgspec.json.decode(text, type=dict[str, list[dict[str, Any]]]).get("errors", [])
    except msgspec.DecodeError:
        raise ToolError("The checker of Python gave no report.", suggestion="Check fewer files.") from None
    errors: list[TypeFault] = []
    warnings: list[TypeFault] = []
    for one in found:
        path = Path(str(one.get("path", "")))
        name = path.relative_to(sources).as_posix() if path.is_relative_to(sources) else path.as_posix()
        fault: TypeFault = {
            "file": name.removeprefix(f"{sources.name}/"), "line": int(one.get("line", 1)),
            "column": int(one.get("column", 1)), "code": str(one.get("name", ""))[:100],
            "message": str(one.get("concise_description", ""))[:MAX_MESSAGE_CHARS].replace(f"{sources}/", ""),
        }  # fmt: skip
        is_error = one.get("severity") == "error" and fault["code"] not in MISSING
        (errors if is_error else warnings).append(fault)
    return errors, warnings
