"""`parse_typescript`: outlines of sources, given as text or read from the working directory."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolgate import App, Outcome
from toolgate.sandbox.workspaces import Workspaces

pytestmark = pytest.mark.requirement("BUILTIN-3")

SOURCE = """\
import React, { useState } from "react";
import fs = require("fs");
export * from "./all";
export { a as b } from "./abc";
export default class Shop<T> {
  private stock: number = 1;
  async sell<K>(what: K): Promise<void> {}
}
export const add = (a: number, b: number): number => a + b, rate = 3;
interface Item { price(): number; name?: string }
type Colour = "red" | "blue";
export enum Size { S, L = 2 }
namespace Inner { export function deep() {} }
declare function known(a: string): void;
"""


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    monkeypatch.chdir(tmp_path)
    async with App.open(os.devnull, home=tmp_path / ".toolgate") as app:
        app.provide(Workspaces, Workspaces(tmp_path / ".toolgate", tmp_path))
        yield app


async def parsed(app: App, **arguments: Any) -> dict[str, Any]:
    outcome = await app.invoke("parse_typescript", arguments)
    assert outcome.status == "success", outcome.error
    found: dict[str, Any] = outcome.output
    return found


def failed(outcome: Outcome, code: str) -> str:
    assert outcome.error is not None, outcome
    assert outcome.error.code == code, outcome.error
    return outcome.error.message


async def test_an_outline_lists_declarations_with_lines_and_signatures(app: App) -> None:
    found = await parsed(app, code=SOURCE)
    assert [(item["kind"], item["name"], item["line"]) for item in found["ast"]] == [
        ("class", "Shop", 5), ("function", "add", 9), ("variable", "rate", 9), ("interface", "Item", 10),
        ("type", "Colour", 11), ("enum", "Size", 12), ("namespace", "Inner", 13), ("function", "known", 14),
    ]  # fmt: skip
    shop = found["ast"][0]
    assert shop["exported"] is True
    assert [member["name"] for member in shop["members"]] == ["stock", "sell"]
    assert shop["members"][1]["signature"] == "sell<K>(what: K): Promise<void>"
    assert found["ast"][1]["signature"] == "add(a: number, b: number): number"
    assert "exported" not in found["ast"][3]
    assert found["imports"] == ["react", "fs", "./all", "./abc"]
    assert found["exports"] == ["*", "b", "default", "add", "rate", "Size"]
    assert (found["errors"], found["truncated"], found["language"]) == ([], False, "typescript")


async def test_syntax_errors_have_line_and_column_in_characters(app: App) -> None:
    found = await parsed(app, code='const grüße = "ä"; let x = ;\nexport const ok = 1;\n')
    assert [(fault["line"], fault["column"]) for fault in found["errors"]] == [(1, 26)]
    assert found["ast"][-1]["name"] == "ok"


async def test_tsx_is_known_by_the_name_or_found_out(app: App, tmp_path: Path) -> None:
    component = "export const View = () => <div>{1}</div>;\n"
    (tmp_path / "View.tsx").write_text(component)
    for found in (await parsed(app, filePath="View.tsx"), await parsed(app, code=component)):
        assert (found["language"], found["errors"], found["exports"]) == ("tsx", [], ["View"])
    as_ts = await parsed(app, code=component, filePath="View.ts")
    assert as_ts["errors"]


async def test_a_file_is_opened_as_read_file_opens_it(app: App, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.ts").write_text("export const a = 1;")
    outcome = await app.invoke("parse_typescript", {"filePath": "src/a.ts"})
    assert outcome.output["exports"] == ["a"]
    assert outcome.metrics.resources_used == ("src/a.ts",)
    (tmp_path / "out.ts").symlink_to("/etc/passwd")
    failed(await app.invoke("parse_typescript", {"filePath": "out.ts"}), "SECURITY_VIOLATION")
    failed(await app.invoke("parse_typescript", {"filePath": "../x.ts"}), "SECURITY_VIOLATION")
    failed(await app.invoke("parse_typescript", {"filePath": "src/none.ts"}), "INVALID_INPUT")
    (tmp_path / "bytes.ts").write_bytes(b"\xff\xfe")
    assert "UTF-8" in failed(await app.invoke("parse_typescript", {"filePath": "bytes.ts"}), "INVALID_INPUT")
    (tmp_path / "big.ts").write_bytes(b" " * 1_000_001)
    assert "bytes" in failed(await app.invoke("parse_typescript", {"filePath": "big.ts"}), "INVALID_INPUT")


async def test_nothing_to_parse_is_said(app: App) -> None:
    assert "nothing to parse" in failed(await app.invoke("parse_typescript", {}), "INVALID_INPUT")
    assert (await parsed(app, code=""))["ast"] == []


@pytest.mark.parametrize(
    "piece",
    ["(", "{", "a<", "`${", "a?b:", "(a)=>", "<a>", "class A {", "async (a, ", "\0", "}", "/*", "a.", "a||", "namespace A{",
     "keyof typeof infer ", "'a", "{a:", "import {a as b, ", "\ud800"],
)  # fmt: skip
@pytest.mark.sample(4)
async def test_hostile_nesting_ends_in_time_with_an_outcome(app: App, piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.tools.typescript.PARSE_SECONDS", 1.5)
    code = piece * (60_000 // len(piece))
    outcome = await app.invoke("parse_typescript", {"code": code})
    if outcome.error is not None:
        assert outcome.error.code in ("SANDBOX_ERROR", "TIMEOUT", "VALIDATION_ERROR"), outcome.error
        return
    assert len(outcome.output["errors"]) <= 50
    assert len(str(outcome.output)) < 2_000_000


async def test_many_declarations_are_cut_and_said_so(app: App) -> None:
    found = await parsed(app, code="export const a = 1;\n" * 5_000)
    assert found["truncated"] is True
    assert len(found["ast"]) <= 2_000


async def test_a_parser_that_dies_fails_the_call_only(app: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from toolgate.tools import typescript

    (tmp_path / "dying.py").write_text(
        "import os, signal, sys, time\n"
        "def crash(_): os.kill(os.getpid(), signal.SIGSEGV)\n"
        "def flood(_):\n    while True: sys.stdout.write('x' * 10_000)\n"
        "def hog(_): return 'x' * 900_000_000\n"
        "def hang(_):\n    while True: pass\n"
    )
    monkeypatch.setattr("toolgate.sandbox.helper_process.OURS", tmp_path)
    for name in ("crash", "flood", "hog"):
        monkeypatch.setattr(typescript, "PARSER", f"dying:{name}")
        failed(await app.invoke("parse_typescript", {"code": "let a"}), "SANDBOX_ERROR")
    monkeypatch.setattr(typescript, "PARSER", "dying:hang")
    monkeypatch.setattr(typescript, "PARSE_SECONDS", 0.3)
    failed(await app.invoke("parse_typescript", {"code": "let a"}), "TIMEOUT")


async def test_without_the_extra_the_call_says_what_to_install(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.extras.is_installed", lambda extra: extra != "code")
    outcome = await app.invoke("parse_typescript", {"code": "let a"})
    assert outcome.error is not None
    assert "toolgate[code]" in outcome.error.message
