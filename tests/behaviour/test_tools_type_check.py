"""`type_check`: TypeScript by Deno and Python by pyrefly, in the sandbox, on a copy of the sources alone."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.loopback import Asked, Said, site
from toolgate import Actor, App, Outcome
from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.results import unavailable
from toolgate.sandbox.workspaces import Workspaces
from toolgate.tools.typescript_check import TypeScriptReport

QUICK = {
    "test_both_languages_are_checked_with_places_and_codes",
    "test_nothing_outside_is_read",
    "test_what_cannot_be_checked_is_said",
    "test_without_a_jail_or_the_program_nothing_is_checked",
    "test_a_report_is_read_whatever_the_sources_quote",
}

pytestmark = [pytest.mark.requirement("BUILTIN-3"), pytest.mark.needs("bubblewrap")]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
async def app(tmp_path: Path, work: Path) -> AsyncIterator[App]:
    async with App.open(os.devnull, home=tmp_path / "home") as app:
        app.provide(Workspaces, Workspaces(tmp_path / "home", work))
        yield app


def put(work: Path, **files: str) -> None:
    for name, text in files.items():
        path = work / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def checked(app: App, **arguments: Any) -> dict[str, Any]:
    outcome = await app.invoke("type_check", arguments)
    assert outcome.status == "success", outcome.error
    found: dict[str, Any] = outcome.output
    return found


def failed(outcome: Outcome, code: str) -> str:
    assert outcome.error is not None, outcome
    assert outcome.error.code == code, outcome.error
    return outcome.error.message


def told(faults: list[dict[str, Any]]) -> list[tuple[str, int, int, str]]:
    return [(fault["file"], fault["line"], fault["column"], fault["code"]) for fault in faults]


async def test_both_languages_are_checked_with_places_and_codes(app: App, work: Path) -> None:
    put(work, src__a_dot_ts='import { b } from "./b";\nconst n: string = b; function f(a) { return a; }\n',
        src__b_dot_ts="export const b = 1;\n",
        src__c_dot_py="from d import f\nf('x')\n", src__d_dot_py="def f(x: int) -> int:\n    return x\n")  # fmt: skip
    found = await checked(app, projectPath="src")
    assert found["success"] is False
    assert told(found["errors"]) == [
        ("src/a.ts", 2, 7, "TS2322"), ("src/a.ts", 2, 33, "TS7006"), ("src/c.py", 2, 3, "bad-argument-type"),
    ]  # fmt: skip
    assert found["errors"][0]["message"] == "Type 'number' is not assignable to type 'string'."
    assert (found["warnings"], found["filesChecked"], found["complete"]) == ([], 4, True)
    only = await checked(app, projectPath="src", language="python")
    assert [fault["file"] for fault in only["errors"]] == ["src/c.py"]


async def test_a_file_is_checked_with_what_it_imports(app: App, work: Path) -> None:
    put(work, lib__b_dot_ts="export const b: number = 1;\n", **{"app__[id]_dot_tsx":
        'import { b } from "../lib/b";\nexport const View = () => <div title={1}>{b.length}</div>;\n'})  # fmt: skip
    found = await checked(app, projectPath="app/[id].tsx")
    assert told(found["errors"]) == [("app/[id].tsx", 2, 45, "TS2339")]
    assert found["filesChecked"] == 1


async def test_strict_is_the_callers_choice(app: App, work: Path) -> None:
    put(work, a_dot_ts="export function f(a) { return a; }\n")
    assert (await checked(app, projectPath="a.ts", strict=False))["success"] is True


async def test_what_is_not_here_is_a_warning_and_nothing_is_asked_for(app: App, work: Path) -> None:
    async def answer(_: Asked) -> Said:
        return Said(body="export const a = 1;")

    async with site(answer) as server:
        put(work, a_dot_ts=f'import {{ a }} from "{server.url}/a.ts";\nimport x from "react";\n'
            'import y from "npm:chalk@5";\nimport z from "jsr:@std/assert";\nimport "./style.css";\nimport fs from "fs";\n'
            "export const n: number = a + x + y + z;\nfs.readFileSync(n, process.cwd() as BufferEncoding);\n",
            b_dot_py="import requests\nx: int = requests.get(1)\n")  # fmt: skip
        found = await checked(app)
        assert server.connections == 0
    assert found["success"] is True, found["errors"]
    told_of = {(fault["file"], fault["line"]): fault["message"].split(" is ")[0] for fault in found["warnings"]}
    assert told_of.keys() == {("a.ts", 1), ("a.ts", 2), ("a.ts", 3), ("a.ts", 4), ("a.ts", 5), ("b.py", 1)}
    assert (told_of["a.ts", 2], told_of["a.ts", 3], told_of["a.ts", 5]) == ("react", "npm/chalk@5", "style.css")


async def test_no_configuration_of_the_folder_counts(app: App, work: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    put(work, a_dot_ts='import { b } from "mapped";\nexport const n: string = 1;\n', b_dot_py="x: int = 'a'\n",
        deno_dot_json=json.dumps({"imports": {"mapped": "file:///etc/passwd"}, "compilerOptions": {"noEmit": False},
                                  "exclude": ["a.ts"], "tasks": {"check": f"touch {marker}"}}),
        package_dot_json='{"dependencies": {"mapped": "1"}, "scripts": {"preinstall": "touch marker"}}',
        tsconfig_dot_json='{"extends": "/etc/x.json", "compilerOptions": {"strict": false, "plugins": [{"name": "x"}]}}',
        pyrefly_dot_toml=f'python-interpreter-path = "{work}/evil"\nproject-excludes = ["**"]\n[errors]\n'
        "bad-assignment = false\n",
        pyproject_dot_toml="[tool.pyrefly]\npreset = 'off'\n", evil=f"#!/bin/sh\ntouch {marker}\n")  # fmt: skip
    (work / "evil").chmod(0o755)
    before = {path: path.stat().st_mtime_ns for path in work.rglob("*")}
    found = await checked(app)
    assert told(found["errors"]) == [("a.ts", 2, 14, "TS2322"), ("b.py", 1, 10, "bad-assignment")]
    assert [fault["message"].split()[0] for fault in found["warnings"]] == ["mapped"]
    assert not marker.exists()
    assert {path: path.stat().st_mtime_ns for path in work.rglob("*")} == before
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob("toolgate-check-*/work/evil"))


async def test_nothing_outside_is_read(app: App, work: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.ts").write_text('export const key: number = "SECRETVALUE";')
    (tmp_path / "secret.py").write_text("key: int = 'SECRETVALUE'")
    (work / "link.ts").symlink_to(tmp_path / "secret.ts")
    (work / "up").symlink_to(tmp_path)
    uri = (tmp_path / "secret.ts").as_uri()
    put(work, a_dot_ts=f'/// <reference path="{tmp_path}/secret.ts" />\nimport {{ key }} from "{uri}";\n'
        f'import {{ key as k }} from "../secret";\nimport l from "./link";\nexport const n: string = [key, k, l];\n',
        b_dot_py="from ..secret import key\nfrom up.secret import key\n")  # fmt: skip
    found = await checked(app)
    assert "SECRETVALUE" not in json.dumps(found)
    assert str(tmp_path) not in json.dumps(found["warnings"])
    assert all(fault["file"] in ("a.ts", "b.py") for fault in found["errors"] + found["warnings"])
    for path in ("..", "../secret.ts", "link.ts", "up", "/etc"):
        failed(await app.invoke("type_check", {"projectPath": path}), "SECURITY_VIOLATION")


async def test_a_syntax_error_is_an_error_and_the_check_not_complete(app: App, work: Path) -> None:
    put(work, a_dot_ts="let x = ;\n", b_dot_py="def f(:\n")
    found = await checked(app)
    assert [(fault["file"], fault["line"]) for fault in found["errors"]][:2] == [("a.ts", 1), ("b.py", 1)]
    assert found["complete"] is False
    assert found["errors"][0]["code"] == "syntax"


async def test_what_cannot_be_checked_is_said(app: App, work: Path) -> None:
    put(work, a_dot_txt="x", node_modules__m_dot_ts="let a: number = '';")
    assert "nothing to check" in failed(await app.invoke("type_check", {}), "INVALID_INPUT")
    assert "neither" in failed(await app.invoke("type_check", {"projectPath": "a.txt"}), "INVALID_INPUT")
    failed(await app.invoke("type_check", {"projectPath": "none"}), "INVALID_INPUT")


async def test_another_tenant_has_another_folder(tmp_path: Path) -> None:
    async with App.open(os.devnull, home=tmp_path / "home") as app:
        acme, globex = (Actor(tenant, user="u") for tenant in ("acme", "globex"))
        app.approvals.add_approver(lambda _: True)
        await app.invoke("write_file", {"path": "a.py", "content": "x: int = ''\n"}, actor=acme, session="s")
        outcome = await app.invoke("type_check", {}, actor=acme, session="s")
        assert told(outcome.output["errors"]) == [("a.py", 1, 10, "bad-assignment")]
        failed(await app.invoke("type_check", {}, actor=globex, session="s"), "INVALID_INPUT")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "x = " + "(" * 50_000), ("a.py", "x = " + "[" * 20_000 + "]" * 20_000), ("a.py", "-" * 100_000 + "1"),
        ("a.ts", "const x = " + "[" * 20_000 + "]" * 20_000),
        ("a.ts", "type A<T> = A<A<T>>; let a: A<1> = 1 as any as A<2>;"),
        ("a.py", "\0"), ("a.ts", "\0"), ("a.py", "def f():\n" + " " * 100_000 + "x"),
    ],
)  # fmt: skip
async def test_hostile_sources_cost_the_call_alone(app: App, work: Path, name: str, text: str) -> None:
    (work / name).write_text(text)
    outcome = await app.invoke("type_check", {"projectPath": name})
    if outcome.error is not None:
        assert outcome.error.code in ("INVOCATION_ERROR", "SANDBOX_ERROR", "TIMEOUT"), outcome.error
        assert "/tmp" not in f"{outcome.error.message}{outcome.error.details}"


async def test_without_a_jail_or_the_program_nothing_is_checked(
    app: App, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(work, a_dot_py="x = 1\n")
    monkeypatch.setattr("toolgate.tools.type_check.program_of", lambda _: None)
    assert "toolgate[code]" in failed(await app.invoke("type_check", {}), "SANDBOX_UNAVAILABLE")
    monkeypatch.undo()

    async def none(_: Sandbox) -> Any:
        raise unavailable("nothing holds it")

    monkeypatch.setattr(Sandbox, "server_jail", none)
    assert "nothing holds it" in failed(await app.invoke("type_check", {}), "SANDBOX_UNAVAILABLE")


def test_a_report_is_read_whatever_the_sources_quote(tmp_path: Path) -> None:
    report = TypeScriptReport(
        f"TS2322 [ERROR]: Type 'A' is not assignable to type 'B'.\n  Type 'x' is wrong.\n"
        f"const a = 1; // TS1 [ERROR]: no\n      ~~~\n    at {tmp_path.as_uri()}/a%20b.ts:3:7\n\n"
        f"    The expected type comes from here\n    let x;\n        ^\n        at {tmp_path.as_uri()}/c.ts:1:1\n\n"
        "Found 1 error.\n\nerror: Type checking failed.\n", tmp_path,
    )  # fmt: skip
    assert report.errors == [
        {"file": "a b.ts", "line": 3, "column": 7, "code": "TS2322",
         "message": "Type 'A' is not assignable to type 'B'. Type 'x' is wrong."}
    ]  # fmt: skip
    assert not report.stopped_early


@pytest.mark.parametrize("limit", ["MAX_SOURCE_FILES", "MAX_WALKED_ENTRIES", "MAX_COPIED_BYTES", "MAX_SOURCE_BYTES"])
async def test_what_is_more_than_is_copied_is_not_complete(
    app: App, work: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    put(work, a_dot_py="x = 1\n", b__c_dot_py=f"y: int = ''\n{'#' * 50}\n")
    monkeypatch.setattr(
        f"toolgate.tools.source_copy.{limit}", 40 if limit.endswith("BYTES") else 2 if "WALKED" in limit else 1
    )
    found = await checked(app)
    assert (found["success"], found["filesChecked"], found["complete"]) == (True, 1, False)
