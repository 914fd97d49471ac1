"""The types of TypeScript, checked by Deno: its configuration, and its report as values.

Deno gets a configuration of ours and nothing else: what is imported from elsewhere (npm, jsr, an address) is mapped to
nothing, so that it is reported and counts as `any`, and nothing is asked for.
"""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from urllib.parse import unquote

from typing_extensions import TypedDict

MAX_MESSAGE_CHARS = 600
MAX_SPECIFIERS = 2_000
SPECIFIER = re.compile(r"""["']((npm|jsr):((?!\.\.)[^"'\s\\]{1,300}))["']""")
HEADER = re.compile(r"^(?:TS(?P<code>\d+) \[(?P<kind>[A-Z]+)\]|(?P<fatal>error)): ?(?P<message>.*)$", re.MULTILINE)
PLACE = re.compile(r"^ {4}at (file://\S+?):(\d+):(\d+)$", re.MULTILINE)
MARKER = re.compile(r"^[ |]*[~^]+\s*$")
NUMBERED = re.compile(r"^ *\d* *\|")
ELSEWHERE = "elsewhere"
NODE_MODULES = (
    "assert", "async_hooks", "buffer", "child_process", "cluster", "console", "crypto", "dgram", "dns", "events", "fs",
    "fs/promises", "http", "http2", "https", "inspector", "module", "net", "os", "path", "path/posix", "path/win32",
    "perf_hooks", "process", "punycode", "querystring", "readline", "readline/promises", "stream", "stream/promises",
    "stream/web", "string_decoder", "timers", "timers/promises", "tls", "tty", "url", "util", "util/types", "v8", "vm",
    "worker_threads", "zlib",
)  # fmt: skip
ASSETS = re.compile(r"\.(?:css|scss|sass|less|svg|png|jpe?g|gif|webp|ico|woff2?|ttf|mp[34]|html|md|txt|graphql|vue)'\.?$")

JSX_TYPES = """\
export namespace JSX {
  type Element = any; type ElementClass = any; type LibraryManagedAttributes<C, P> = any;
  interface IntrinsicElements { [name: string]: any }
}
export const jsx: any; export const jsxs: any; export const jsxDEV: any; export const Fragment: any;
"""
GLOBAL_TYPES = 'import "node:process"; import "node:buffer"; import "node:module"; export {};\n'


class TypeFault(TypedDict):
    """One error or warning of a checker. Lines and columns count from 1; code is the checker's own."""

    file: str
    line: int
    column: int
    code: str
    message: str


def configure(top: Path, texts: Iterable[str], *, strict: bool) -> list[str]:
    """Writes the configuration beside the copied sources and gives the arguments of Deno before the files."""
    imports = {f"{scheme}://": f"./{ELSEWHERE}/" for scheme in ("http", "https")}
    imports |= {name: f"node:{name}" for name in NODE_MODULES}
    imports |= {"toolgate-jsx/jsx-runtime": "./jsx.d.ts"}
    for text in texts:
        for found in SPECIFIER.finditer(text):
            if len(imports) < MAX_SPECIFIERS:
                imports[found[1]] = f"./{ELSEWHERE}/{found[2]}/{found[3].lstrip('/')}"
    (top / "jsx.d.ts").write_text(JSX_TYPES)
    (top / "globals.d.ts").write_text(GLOBAL_TYPES)
    options = {
        "strict": strict, "lib": ["esnext", "dom", "dom.iterable", "dom.asynciterable", "deno.ns"], "jsx": "react-jsx",
        "jsxImportSource": "toolgate-jsx", "types": ["./globals.d.ts"], "allowJs": True, "checkJs": False,
    }  # fmt: skip
    given = {"imports": imports, "compilerOptions": options, "unstable": ["sloppy-imports"], "lock": False}
    (top / "deno.json").write_text(json.dumps(given))
    return ["check", "--quiet", "--no-remote", "--no-npm", "--no-lock", "--cached-only", "--config", str(top / "deno.json")]


def environment(top: Path) -> dict[str, str]:
    return {"DENO_DIR": str(top / "cache"), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}


class TypeScriptReport:
    """What Deno wrote, as errors and warnings."""

    def __init__(self, text: str, sources: Path) -> None:
        self._sources = sources
        self.errors: list[TypeFault] = []
        self.warnings: list[TypeFault] = []
        self.stopped_early = False
        """True if Deno gave up at a source that it can't read: others may have faults that are not reported."""
        for header, body in _blocks(text):
            self._take(header, body)

    def _take(self, header: "re.Match[str]", body: str) -> None:
        place = PLACE.search(body)
        if place is None:  # how many there are, or that the check failed
            return
        fault = self._fault(header, body[: place.start()], place)
        is_fatal = header["fatal"] is not None
        self.stopped_early |= is_fatal
        is_elsewhere = header["code"] == "2307" and (
            "Import " in header["message"] or f"'{ELSEWHERE}/" in fault["message"] or ASSETS.search(header["message"])
        )
        if is_elsewhere:
            fault["message"] = _missing(fault["message"])
            self.warnings.append(fault)
        elif is_fatal or header["kind"] == "ERROR":
            self.errors.append(fault)
        else:
            self.warnings.append(fault)

    def _fault(self, header: "re.Match[str]", details: str, place: "re.Match[str]") -> TypeFault:
        message = " ".join([header["message"].strip(), *_details(details)])
        for folder in (self._sources, self._sources.parent):
            message = message.replace(f"{folder.as_uri()}/", "").replace(f"{folder}/", "")
        code = f"TS{header['code']}" if header["code"] else "syntax"
        return {
            "file": self._name(place[1]), "line": int(place[2][:9]), "column": int(place[3][:9]), "code": code,
            "message": message.removeprefix("SyntaxError: ")[:MAX_MESSAGE_CHARS],
        }  # fmt: skip

    def _name(self, uri: str) -> str:
        path = Path(unquote(uri.removeprefix("file://")))
        return path.relative_to(self._sources).as_posix() if path.is_relative_to(self._sources) else path.name


def _blocks(text: str) -> Iterator[tuple["re.Match[str]", str]]:
    """Each fault: its first line, and what is said of it."""
    headers = list(HEADER.finditer(text))
    for header, following in zip_longest(headers, headers[1:]):
        yield header, text[header.end() + 1 : following.start() if following else len(text)]


def _details(text: str) -> list[str]:
    """The lines that go on with a message; not those that quote the source or give advice about Deno."""
    lines = text.split("\n")
    quoted = {number for number, line in enumerate(lines) if NUMBERED.match(line)}
    quoted |= {near for number, line in enumerate(lines) if MARKER.match(line) for near in (number - 1, number)}
    told = (line for number, line in enumerate(lines) if number not in quoted)
    return [line.strip() for line in told if line.startswith("  ") and line.strip() and "hint:" not in line]


def _missing(message: str) -> str:
    name = re.search(r"""["']([^"']*)["']""", message)
    shown = (name[1] if name else "a module").removeprefix(f"{ELSEWHERE}/")
    return f"{shown} is not available here: what is imported from it counts as any."
