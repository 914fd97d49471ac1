"""`parse_typescript`: what a TypeScript or JavaScript source declares, imports and exports, and its syntax errors."""

from pathlib import Path
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from toolgate.errors import InvalidInput
from toolgate.extras import require
from toolgate.jsontext import valid_text
from toolgate.model import Capability, ErrorCase, Example
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.sandbox.helper_process import run_helper
from toolgate.tools.call_folder import read_text

MAX_SOURCE_BYTES = 1_000_000
PARSE_SECONDS = 5.0
PARSER = "toolgate.tools.parsers.typescript_outline:outline"
DIALECTS = {
    ".ts": ("typescript",), ".mts": ("typescript",), ".cts": ("typescript",),
    ".tsx": ("tsx",), ".jsx": ("tsx",), ".js": ("tsx",), ".mjs": ("tsx",), ".cjs": ("tsx",),
}  # fmt: skip
"""By the end of a file's name. JavaScript is read as TSX: it may hold JSX, and has no casts in angle brackets."""

Code = Annotated[str, Field(max_length=MAX_SOURCE_BYTES, json_schema_extra={"x-command": False, "x-path": False})]


class SourceDeclaration(TypedDict):
    """One declaration: kind is function, class, interface, type, enum, variable, namespace, method or property."""

    kind: str
    name: str
    line: int
    endLine: int
    exported: NotRequired[bool]
    signature: NotRequired[str]
    members: NotRequired[list["SourceDeclaration"]]


class SyntaxFault(TypedDict):
    """A syntax error. Lines and columns count from 1."""

    line: int
    column: int
    message: str


class ParsedSource(TypedDict):
    """The outline of a source. `truncated`: there is more of it than is listed."""

    language: Literal["typescript", "tsx"]
    ast: list[SourceDeclaration]
    imports: list[str]
    exports: list[str]
    errors: list[SyntaxFault]
    truncated: bool


@tool(
    tier="read_only",
    category="code_analysis",
    timeout=30,
    tags=["code", "typescript"],
    capabilities=[Capability(action="parse", description="Parse TypeScript/JavaScript code into AST")],
    errors=[
        ErrorCase("INVALID_INPUT", "there is no source, or the file cannot be read", "give code, or a file that is text"),
        ErrorCase("SECURITY_VIOLATION", "filePath leads out of the working directory", "name a file in it"),
        ErrorCase("TIMEOUT", "the source takes more than 5 s to parse", "parse a part of it"),
        ErrorCase("SANDBOX_ERROR", "the source is too much for the parser", "parse a part of it"),
    ],
    examples=[
        Example(
            name="outline",
            arguments={"code": "export const add = (a: number, b: number): number => a + b;"},
            output={
                "language": "typescript",
                "ast": [
                    {
                        "kind": "function",
                        "name": "add",
                        "line": 1,
                        "endLine": 1,
                        "exported": True,
                        "signature": "add(a: number, b: number): number",
                    }
                ],
                "imports": [],
                "exports": ["add"],
                "errors": [],
                "truncated": False,
            },
        )
    ],
)
async def parse_typescript(ctx: InvokeContext, code: Code | None = None, filePath: str | None = None) -> ParsedSource:
    """Parse TypeScript or JavaScript: declarations with lines and signatures, imports, exports, syntax errors.

    Args:
        code: TypeScript code to parse. Without it, filePath is read.
        filePath: File of the working directory; beside code, only a name that tells .ts from .tsx.
    """
    require("code")
    if code is None:
        if filePath is None:
            raise InvalidInput("There is nothing to parse.", suggestion="Give code, or filePath.")
        code = await read_text(ctx, filePath, MAX_SOURCE_BYTES)
    dialects = DIALECTS.get(Path(filePath or "").suffix.lower(), ("typescript", "tsx"))
    parsed: ParsedSource = await run_helper(
        PARSER, {"code": valid_text(code), "dialects": dialects}, tenant=ctx.actor.tenant,
        packages=("tree_sitter", "tree_sitter_typescript"), seconds=min(PARSE_SECONDS, ctx.time_limit),
    )  # fmt: skip
    return parsed
