"""The TypeScript lane's runner, by what it says to its host. Deno runs here without a jail: the jail's part is in tests/hostile."""

# ruff: noqa: E501 - programs of another language, a line each

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import at_most
from toolgate.sandbox.jail import MB, ResourceLimits, Unavailable
from toolgate.sandbox.runtimes import deno

pytestmark = pytest.mark.requirement("SBX-1")

SPEC = deno.spec(deno.find_deno(None), ResourceLimits())
HOME = tempfile.TemporaryDirectory(prefix="toolgate-deno-")


@pytest.fixture(scope="module", autouse=True)
def _home() -> Iterator[None]:
    yield
    HOME.cleanup()


class Said:
    """All that the runner said about one job."""

    def __init__(self, frames: list[dict[str, Any]], raw: bytes, errors: bytes, code: int) -> None:
        self.frames, self.raw, self.errors, self.code = frames, raw, errors, code

    @property
    def last(self) -> dict[str, Any]:
        return self.frames[-1]

    @property
    def result(self) -> Any:
        assert "result" in self.last, self.frames
        return self.last["result"]

    @property
    def failure(self) -> dict[str, Any]:
        assert "failure" in self.last, self.frames
        failure: dict[str, Any] = self.last["failure"]
        return failure

    def printed(self, stream: str = "stdout") -> str:
        return "".join(frame["text"] for frame in self.frames if frame.get("out") == stream)

    def asked(self) -> list[list[Any]]:
        return [[frame["op"], *frame["args"]] for frame in self.frames if "call" in frame]


Answer = Callable[[str, list[Any]], dict[str, Any]]


def echo(_op: str, args: list[Any]) -> dict[str, Any]:
    return {"value": args}


def run(code: str, mode: str = "script", *, answer: Answer = echo, hold: int = 1, idle: float = 0.0, **job: Any) -> Said:
    """One job, given after the worker has waited for it. Answers are held back until `hold` questions are there, and then given
    last first."""
    given = {"mode": mode, "code": code, "name": "mine.ts", "language": "typescript", "arguments": {}, "context": {}}
    environment = dict(SPEC.environment) | {"HOME": HOME.name}
    with subprocess.Popen(SPEC.argv, stdin=-1, stdout=-1, stderr=-1, env=environment) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        try:
            assert b"ready" in process.stdout.readline()
            time.sleep(idle)
            process.stdin.write(json.dumps({"run": given | {"tools": None, "output": MB} | job}).encode() + b"\n")
            process.stdin.flush()
            frames, raw, held = [], b"", []
            for line in process.stdout:
                before, mark, frame = line.partition(b"\x1e")
                raw += before
                if not mark:
                    continue
                frames.append(json.loads(frame))
                if "call" in frames[-1]:
                    held.append(frames[-1])
                    if len(held) == hold:
                        for question in reversed(held):
                            reply = {"reply": question["call"]} | answer(question["op"], question["args"])
                            process.stdin.write(json.dumps(reply).encode() + b"\n")
                        process.stdin.flush()
                        held = []
            return Said(frames, raw, process.stderr.read(), process.wait(20))
        finally:
            process.kill()


# -- results


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("return 1 + 1 as number", 2),
        ("", None),
        ("// nothing", None),
        ("1 + 1", None),
        ("return undefined", None),
        ("return await Promise.resolve('x')", "x"),
        ("return [undefined, 1, null]", [None, 1, None]),
        ("return {a: undefined, b: {c: [true]}}", {"b": {"c": [True]}}),
        ("return new Date(0)", "1970-01-01T00:00:00.000Z"),
        ("return {toJSON: (key: string) => ({mine: key})}", {"mine": ""}),
        ("return {a: {toJSON: (key: string) => key}}", {"a": "a"}),
        (
            "class P { constructor(public x: number, private y = 2) {} get z() { return 3 } }\nreturn new P(1)",
            {"x": 1, "y": 2},
        ),
        ("const shared = [1]; return {a: shared, b: shared}", {"a": [1], "b": [1]}),
        (r"return '\ud800x'", "�x"),
        (r"return {'\ud800': 1}", {"�": 1}),
        ("return {__proto__: null, a: 1}", {"a": 1}),
        ("return JSON.parse('{\"__proto__\": 1}')", {"__proto__": 1}),
        ("return args.a + args.b", 5),
        ("const args = 7; const tools = 8; return args + tools", 15),
        ("enum Color { Red, Green = 5 }\nreturn [Color.Green, Color[0]]", [5, "Red"]),
        ("namespace N { export const q: number = 4 }\nexport default N.q", 4),
        ("interface A { x: number }\ntype B = A;\nconst b = {x: 1} satisfies B;\nreturn b!.x", 1),
        ("export default {a: 1}", {"a": 1}),
        ("export default async () => 9", 9),
        ("import path from 'node:path';\nexport default path.join('a', 'b')", "a/b"),
        (
            "import { createHash } from 'node:crypto';\nexport default createHash('md5').update('').digest('hex').slice(0, 6)",
            "d41d8c",
        ),
        ("return (await import('data:text/javascript,export default 5')).default", 5),
        ("return [process.env.HOME, process.env.PATH, Object.keys(process.env)]", [None, None, []]),
        ("process.env.MINE = 'set'; return process.env.MINE", "set"),
        ("console.log('no value'); process.exit(0)", None),
        ("return typeof require", "undefined"),
        ("return await (await new Response(new Blob(['z']).stream()).text())", "z"),
    ],
)
@pytest.mark.sample(5)
def test_a_script_gives_what_it_returns_or_exports(code: str, value: Any) -> None:
    assert run(code, arguments={"a": 2, "b": 3}).result == value


@pytest.mark.parametrize("idle", [0.0, 0.3])
def test_node_is_the_same_whether_or_not_it_was_loaded_while_idle(idle: float) -> None:
    code = """import { createHash } from "node:crypto"; import { EventEmitter } from "node:events"; import zlib from "node:zlib";
    const told = await new Promise((yes) => { const e = new EventEmitter(); e.on("x", yes); setTimeout(() => e.emit("x", "told"), 1) });
    export default [told, createHash("sha1").update("a").digest("hex").length, zlib.gunzipSync(zlib.gzipSync("z")).toString(),
      process.cwd() !== "", process.platform, Object.keys(process.env), Buffer.from("b").toString("base64")]"""
    assert run(code, idle=idle).result == ["told", 40, "z", True, sys.platform, [], "Yg=="]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("return NaN", "is NaN"),
        ("return {a: [1, -Infinity]}", "the value.a[1] is -Infinity"),
        ("return 10n", "BigInt"),
        ("return {f() {}}", "the value.f is a function"),
        ("return Symbol('x')", "is a symbol"),
        ("const a: any = {}; a.b = [a]; return a", "the value.b[0] contains itself"),
        ("return new Map([[1, 2]])", "is a Map"),
        ("return {p: Promise.resolve(1)}", "await it"),
        ("return new Uint8Array(3)", "made of bytes"),
        ("return [new Error('x')]", "is a Error"),
        ("let deep: any = 1; for (let i = 0; i < 300; i++) deep = [deep]; return deep", "deeper than 200"),
        ("let deep: any = 1; for (let i = 0; i < 100000; i++) deep = {d: deep}; return deep", "deeper than 200"),
        ("return 'x'.repeat(2000)", "bigger than 1000 bytes"),
        ("return 'é'.repeat(600)", "bigger than 1000 bytes"),
        ("return Array(1e9)", "bigger than 1000 bytes"),
        ("let dag: any = 1; for (let i = 0; i < 150; i++) dag = [dag, dag]; return dag", "bigger than 1000 bytes"),
        ("return {toJSON() { return 1n }}", "BigInt"),
    ],
)
@pytest.mark.sample(4)
def test_a_result_that_json_does_not_have_is_a_failure(code: str, words: str) -> None:
    failure = run(code, output=1000).failure
    assert (failure["kind"], failure["name"]) == ("value", "TypeError")
    assert words in failure["message"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e15, 1e15)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=30,
)  # fmt: skip


@given(JSON)
@at_most(25)
def test_what_is_given_comes_back_unchanged(value: Any) -> None:
    """In as an argument, out to the host and back as the reply of a tool, and out as the result."""
    code = "const [, back] = await tools.call('echo', args.value); return {back: back, own: args.value}"
    said = run(code, "program", arguments={"value": value}, tools=["echo"])
    assert said.result == {"back": value, "own": value}


# -- failures


@pytest.mark.parametrize(
    ("code", "kind", "name", "message", "line", "column"),
    [
        ("const a = 1;\nlet b = ;", "syntax", "SyntaxError", "Expression expected", 2, 9),
        ("x +", "syntax", "SyntaxError", "Expression expected", 1, 4),
        ("if (true) {\n  return 1", "syntax", "SyntaxError", "", 2, 11),
        ("const a = 1; const a = 2;", "syntax", "SyntaxError", "Identifier 'a' has already been declared", 1, 20),
        ("import p from 'node:path';\nlet x: = 3;", "syntax", "SyntaxError", "", 2, 8),
        ("export const y = 1;\nconst z = (;", "syntax", "SyntaxError", "", 2, 12),
        ("import p from 'node:path';\nreturn p", "syntax", "SyntaxError", "Illegal return", 2, 1),
        ("import { nothing } from 'node:path';\nexport default nothing", "syntax", "SyntaxError", "nothing", 1, 10),
        ("await (async () => {\n  throw new RangeError('far');\n})()", "raised", "RangeError", "far", 2, 9),
        ("throw new TypeError('first line')", "raised", "TypeError", "first line", 1, 7),
        ("type T = number;\n\nfunction f(a: T): T { return (null as any).x }\nf(1)", "raised", "TypeError", "null", 3, 44),
        ("enum A { X }\nnull.x", "raised", "TypeError", "null", 2, 6),
        ("JSON.parse('{')", "raised", "SyntaxError", "JSON", 1, 6),
        ("function f() { f() }\nf()", "raised", "RangeError", "call stack", 1, None),
        ("throw 'plain'", "raised", "NonError", "plain", None, None),
        ("throw null", "raised", "NonError", "null was thrown", None, None),
        ("throw {a: 1}", "raised", "NonError", "{ a: 1 } was thrown", None, None),
        ("throw undefined", "raised", "NonError", "undefined was thrown", None, None),
        ("await Promise.reject()", "raised", "NonError", "undefined was thrown", None, None),
        ("throw new Error()", "raised", "Error", "without a message", 1, 7),
        ("Promise.reject(new Error('nobody looks')); return 1", "raised", "Error", "nobody looks", 1, 16),
        ("setTimeout(() => { throw new Error('later') }, 1)", "raised", "Error", "later", 1, 26),
        ("queueMicrotask(() => { throw new Error('soon') }); return 1", "raised", "Error", "soon", 1, 30),
        ("await new Promise(() => {})", "raised", "Error", "can never happen", None, None),
        ("process.exit(3)", "raised", "Exit", "exit code 3", None, None),
        ("Deno.exit(4)", "raised", "Exit", "exit code 4", None, None),
        ("export default async () => { throw new Error('in a module') }", "raised", "Error", "in a module", 1, 36),
        ("import x from 'npm:left-pad'", "raised", "TypeError", "npm", 1, 15),
        ("import x from './other.ts'", "raised", "TypeError", "", 1, 15),
        ("throw Object.create(Error.prototype)", "raised", "NonError", "", None, None),
        ("throw new Proxy({}, {get() { throw 1 }})", "raised", "NonError", "", None, None),
        ("throw Object.assign(new Error('m'), {stack: {}})", "raised", "Error", "m", None, None),
        ("Error.prepareStackTrace = () => { throw 1 }; throw new Error('odd')", "raised", "Error", "odd", None, None),
        ("Error.stackTraceLimit = 0; throw new Error('bare')", "raised", "Error", "bare", None, None),
    ],
)  # fmt: skip
@pytest.mark.sample(5)
def test_a_failure_says_what_and_where(
    code: str, kind: str, name: str, message: str, line: int | None, column: int | None
) -> None:
    said = run(code)
    failure = said.failure
    assert (failure["kind"], failure["name"]) == (kind, name), failure
    assert message in failure["message"]
    assert "data:" not in failure["message"] + failure["stack"]
    if line is None or column is not None:
        assert (failure["line"], failure["column"]) == (line, column), failure
    assert said.errors == b""


def test_a_stack_names_the_code_and_only_the_code() -> None:
    stack = run(
        "function inner() {\n  throw new Error('x');\n}\nasync function outer() {\n  inner();\n}\nawait outer()"
    ).failure["stack"]
    assert stack.splitlines() == ["at inner mine.ts:2:9", "at outer mine.ts:5:3", "at mine.ts:7:7"]


def test_advice_to_give_deno_a_permission_is_left_out() -> None:
    failure = run("import { readFileSync } from 'node:fs';\nexport default readFileSync('/etc/passwd')").failure
    assert failure["message"] == 'Requires read access to "/etc/passwd": code in the sandbox has none'
    assert failure["line"] == 2


@given(st.integers(0, 400), st.integers(0, 60), st.booleans(), st.sampled_from(["typescript", "javascript"]), st.booleans())
@at_most(30)
def test_lines_and_columns_are_those_of_the_text(lines: int, spaces: int, module: bool, language: str, syntax: bool) -> None:
    typed = ": number" if language == "typescript" else ""
    before = "".join(f"const x{i}{typed} = {i};\n" for i in range(lines)) + ("export const y = 1;" if module else "")
    text = before + " " * spaces + ("let z = ;" if syntax else "throw new Error('here')")
    column = len(text) - text.rfind("\n") - (1 if syntax else 17)
    failure = run(text, language=language).failure
    assert (failure["line"], failure["column"]) == (lines + 1, column)


# -- what a program prints and logs


def test_what_is_printed_goes_to_its_stream_in_order() -> None:
    said = run(
        "console.log('a', {b: [1]}); console.error('e'); console.warn('w'); console.info('%s!', 'i'); console.table([{q: 1}])"
    )
    assert said.printed().startswith("a { b: [ 1 ] }\ni!\n") and "q" in said.printed()
    assert said.printed("stderr") == "e\nw\n"
    assert [frame.get("out") for frame in said.frames] == ["stdout", "stderr", "stderr", "stdout", "stdout", None]


def test_many_prints_travel_together_and_all_arrive() -> None:
    said = run("for (let i = 0; i < 5000; i++) console.log(i)")
    assert said.printed() == "".join(f"{i}\n" for i in range(5000))
    assert len(said.frames) < 100


def test_a_flood_is_sent_until_the_host_knows_and_no_further() -> None:
    said = run(
        "for (let i = 0; i < 300; i++) console.log('x'.repeat(1000)); console.log('y'.repeat(5e7)); return 1", output=10_000
    )
    assert 10_000 < len(said.printed()) < 40_000
    assert said.result == 1


def test_what_is_written_to_the_descriptor_itself_is_raw() -> None:
    said = run("process.stdout.write('no end of line'); await new Promise((r) => setTimeout(r, 20)); return 5")
    assert said.raw == b"no end of line"
    assert said.result == 5


def test_a_script_that_returns_nothing_runs_until_nothing_is_left_to_do() -> None:
    code = "async function main() { const [a] = await tools.one({}); await new Promise((r) => setTimeout(r, 5)); console.log(a) }\nmain()"
    said = run(code, "program", tools=["one"])
    assert (said.printed(), said.result) == ("one\n", None)


def test_a_value_ends_a_script_whatever_still_ticks() -> None:
    assert run("setInterval(() => {}, 1000); return 'done'").result == "done"


# -- tools


EXECUTES = [
    ("typescript", "export async function execute(args: {n: number}, context: unknown): Promise<number> { return args.n }"),
    ("typescript", "async function execute(args: any) { return args.n }"),
    ("typescript", "const execute = (args: any) => args.n"),
    ("typescript", "export default async function (args: any) { return args.n }"),
    ("typescript", "export default { execute: (args: any) => args.n }"),
    ("typescript", "const run = (args: any) => args.n;\nexport { run as execute }; // last words"),
    ("javascript", "export const execute = async ({ n }) => n"),
    ("javascript", "module.exports = async (args) => args.n"),
    ("javascript", "exports.execute = (args) => require('node:path').basename('/x/' + args.n) * 1"),
]


@pytest.mark.parametrize(("language", "code"), EXECUTES)
@pytest.mark.sample(4)
def test_a_tool_may_define_execute_in_any_usual_way(language: str, code: str) -> None:
    assert run(code, "tool", language=language, arguments={"n": 3}).result == 3
    said = run(code, "check", language=language, wants_execute=True)
    assert said.result is True


def test_a_tool_without_execute_is_told_so() -> None:
    assert run("const x = 1", "tool").failure["kind"] == "missing"
    assert run("const x = 1", "check", wants_execute=True).failure["kind"] == "missing"
    assert "execute" in run("export const execute = 5", "tool").failure["message"]


def test_a_tool_gets_the_whole_context() -> None:
    code = """
    export async function execute(args: any, context: any) {
      const { platform, logger, permissions } = context;
      logger.debug("d"); logger.info("i", {a: 1}); logger.warn("w"); logger.error(new Error("e").message);
      await platform.fs.readFile("a", "utf-8"); await platform.fs.writeFile("a", "text"); await platform.fs.exists("a");
      await platform.fs.readdir("."); await platform.fs.stat("a"); await platform.fs.mkdir("m");
      await platform.executor.execute("ls", ["-l"], {cwd: "x"}); await platform.executor.execute({command: "ls", args: []});
      await permissions.check("rm"); await context.checkPermission("mv");
      await platform.docker.run({image: "i"}); await context.llm.complete({prompt: "p"});
      return [context.config, context.conversation, args];
    }"""
    context = {"config": {"k": 1}, "conversation": {"id": "c", "workingDirectory": "/w"}, "docker": True, "llm": True}
    said = run(code, "tool", context=context, arguments={"n": 1})
    assert said.result == [{"k": 1}, {"id": "c", "workingDirectory": "/w"}, {"n": 1}]
    assert [(frame["log"], frame["message"]) for frame in said.frames if "log" in frame] == [
        ("debug", "d"), ("info", "i { a: 1 }"), ("warn", "w"), ("error", "e"),
    ]  # fmt: skip
    assert said.asked() == [
        ["fs.readFile", "a", "utf-8"], ["fs.writeFile", "a", "text"], ["fs.exists", "a"], ["fs.readdir", "."], ["fs.stat", "a"],
        ["fs.mkdir", "m"], ["executor.execute", "ls", ["-l"], {"cwd": "x"}], ["executor.execute", {"command": "ls", "args": []}],
        ["permissions.check", "rm"], ["permissions.check", "mv"], ["docker.run", {"image": "i"}], ["llm.complete", {"prompt": "p"}],
    ]  # fmt: skip


def test_docker_and_a_model_are_there_only_if_they_are() -> None:
    code = "export const execute = (args: any, c: any) => [typeof c.platform.docker, typeof c.llm, typeof c.conversation]"
    assert run(code, "tool", context={"conversation": None}).result == ["undefined"] * 3


def test_a_refusal_of_the_host_is_an_error_in_the_code() -> None:
    code = """try { await tools.remove({}) } catch (error) {
      return [error instanceof ToolError, error instanceof Error, error.name, error.code, error.message] }"""

    def refuse(_op: str, _args: list[Any]) -> dict[str, Any]:
        return {"error": {"code": "PERMISSION_DENIED", "message": "Not for you."}}

    said = run(code, "program", tools=["remove"], answer=refuse)
    assert said.result == [True, True, "ToolError", "PERMISSION_DENIED", "Not for you."]
    failure = run("await tools.remove({})", "program", tools=["remove"], answer=refuse).failure
    assert (failure["name"], failure["message"], failure["kind"]) == ("ToolError", "Not for you.", "raised")


def test_tools_are_called_at_once_and_answered_in_any_order() -> None:
    code = """const all = await Promise.all([1, 2, 3].map((n) => tools.add({ n })));
    const [odd] = await Promise.all([tools["odd-name"](), tools.call("also odd", {x: 1}), tools.add({ n: 4 })]);
    return [all, odd, Object.keys(tools), "add" in tools, await tools === tools];"""
    said = run(code, "program", tools=["add", "odd-name"], hold=3)
    expected = [["add", {"n": 1}], ["add", {"n": 2}], ["add", {"n": 3}]]
    assert said.result == [expected, ["odd-name", {}], ["add", "odd-name"], True, True]
    assert said.asked()[3:] == [["tool", "odd-name", {}], ["tool", "also odd", {"x": 1}], ["tool", "add", {"n": 4}]]


def test_a_question_that_json_does_not_have_fails_where_it_is_asked() -> None:
    said = run("try { await tools.add({ n: 1n }) } catch (error) { return error.message }", "program", tools=["add"])
    assert "BigInt" in said.result
    assert said.asked() == []


def test_a_script_has_no_tools() -> None:
    assert run("return typeof tools").result == "undefined"


# -- compiling


def test_a_check_compiles_and_runs_nothing() -> None:
    said = run(
        "console.log('ran');\nexport const execute = (a: number) => a as any;\nthrow new Error('ran')",
        "check",
        wants_execute=True,
    )
    assert said.result is True
    assert said.printed() == ""
    assert (
        said.last["compiled"]
        == "console.log('ran');\nexport const execute = (a        ) => a       ;\nthrow new Error('ran')"
    )


@pytest.mark.parametrize(
    ("code", "line", "column"),
    [("const a = 1;\nlet b = ;", 2, 9), ("let b: = 2", 1, 8), ("\n\nfunction (", 3, 10)],
)
@pytest.mark.parametrize("wants_execute", [True, False])
def test_a_check_says_where_code_does_not_compile(code: str, line: int, column: int, wants_execute: bool) -> None:
    failure = run(code, "check", wants_execute=wants_execute).failure
    assert (failure["kind"], failure["line"], failure["column"]) == ("syntax", line, column)


@pytest.mark.parametrize(
    "code",
    ["enum A { X }\nreturn A.X", "class P { constructor(readonly x: number) {} }\nreturn new P(0).x",
     "import { PathLike } from 'node:fs';\nconst s: PathLike | null = null;\nexport default s ?? 0"],
)  # fmt: skip
def test_code_that_needs_more_than_blanking_is_left_as_it_is(code: str) -> None:
    said = run(code, "check")
    assert said.result is True and "compiled" not in said.last
    assert run(code).result == 0


def test_compiled_code_is_what_runs_with_its_places_unchanged() -> None:
    code = "const x: number = 1;\nif (args.n) throw new Error('x' as string);\nreturn x + 1"
    compiled = run(code, "check").last["compiled"]
    assert run(code, compiled=compiled).result == 2
    assert run("not the code", compiled=compiled).result == 2
    known, fresh = run(code, compiled=compiled, arguments={"n": 1}).failure, run(code, arguments={"n": 1}).failure
    assert known == fresh
    assert (known["line"], known["column"]) == (2, 19)


# -- code that changes the ground it stands on


VANDALS = [
    "String.prototype.toJSON = Number.prototype.toJSON = () => 'fooled'",
    "JSON.stringify = () => 'fooled'; JSON.parse = () => { throw 1 }",
    "Array.prototype[Symbol.iterator] = function* () {}; Array.prototype.map = Array.prototype.push = Array.prototype.join = () => 0",
    "for (const k of ['slice', 'indexOf', 'lastIndexOf', 'startsWith', 'toWellFormed', 'charCodeAt']) String.prototype[k] = () => 'z'",
    "Object.keys = Object.create = Object.defineProperty = Object.setPrototypeOf = () => { throw 1 }; Reflect.ownKeys = () => []",
    "Object.defineProperty(Object.prototype, 'value', { get() { throw 1 }, set() { throw 1 }, configurable: true })",
    "Object.defineProperty(Object.prototype, 'get', { value: 1, configurable: true })",
    "Object.defineProperty(Array.prototype, '0', { get: () => 'fooled', set() {}, configurable: true })",
    "Object.prototype.error = {code: 'fooled', message: 'fooled'}; Object.prototype.failure = 'fooled'; Object.prototype.compiled = 'x'",
    "globalThis.Promise = class {}; globalThis.Error = globalThis.Set = globalThis.Uint8Array = globalThis.Proxy = undefined",
    "Set.prototype.has = () => true; Set.prototype.add = Map.prototype.get = () => { throw 1 }",
    "globalThis.console = null; globalThis.setImmediate = globalThis.setTimeout = globalThis.queueMicrotask = () => {}",
    "TextEncoder.prototype.encode = () => new Uint8Array(); TextDecoder.prototype.decode = () => ''; TextEncoder = null",
    "Uint8Array.prototype.toBase64 = () => ''; Object.getPrototypeOf(Uint8Array.prototype).subarray = () => []",
    "Function.prototype.call = Function.prototype.apply = Function.prototype.bind = () => { throw 1 }",
    "Event.prototype.preventDefault = () => { throw 1 }; globalThis.addEventListener('unload', () => { for (;;); })",
    "Error.isError = () => false; Error.captureStackTrace = () => { throw 1 }; Number.isFinite = () => false; Array.isArray = () => false",
    "Promise.prototype.then = function () { throw 1 }",
    "Object.defineProperty(Promise.prototype, 'constructor', { get() { throw 1 } })",
    "globalThis.onbeforeunload = globalThis.onunload = (e) => { e.preventDefault(); throw 1 }",
    "for (const s of Object.getOwnPropertySymbols(globalThis)) try { delete globalThis[s] } catch {}",
    "for (const name of Object.getOwnPropertyNames(globalThis)) try { delete globalThis[name] } catch {}",
]  # fmt: skip


@pytest.mark.parametrize("vandalism", VANDALS)
def test_code_that_breaks_the_built_in_objects_still_gives_its_own_result(vandalism: str) -> None:
    code = f"export const execute = (args) => {{ {vandalism}; return {{a: [1, 'two', {{b: args.n}}]}} }}"
    said = run(code, "tool", language="javascript", arguments={"n": None})
    assert said.result == {"a": [1, "two", {"b": None}]}
    assert said.frames == [{"result": {"a": [1, "two", {"b": None}]}}]


@pytest.mark.parametrize("vandalism", VANDALS)
def test_code_that_breaks_the_built_in_objects_still_fails_with_its_own_words(vandalism: str) -> None:
    code = f"const mine = new Error('mine');\nexport const execute = () => {{ {vandalism}; throw mine }}"
    failure = run(code, "tool", language="javascript").failure
    assert (failure["kind"], failure["message"]) == ("raised", "mine")


def test_words_of_the_runner_have_no_prototype_to_be_changed_by() -> None:
    code = "export const execute = () => { Object.prototype.toJSON = Array.prototype.toJSON = () => 'fooled'; throw new Error('mine') }"
    failure = run(code, "tool").failure
    assert (failure["kind"], failure["message"], failure["line"]) == ("raised", "mine", 1)


# -- finding Deno


def test_the_named_program_is_taken(tmp_path: Path) -> None:
    program = tmp_path / "deno"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(Unavailable, match=r"sandbox\.deno"):
        deno.find_deno(program)
    with pytest.raises(Unavailable, match=r"sandbox\.deno"):
        deno.find_deno(tmp_path)
    program.chmod(0o755)
    assert deno.find_deno(program) == program


def test_no_deno_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "deno", None)
    with pytest.raises(Unavailable, match=r"install the extra toolgate\[sandbox\]"):
        deno.find_deno(None)


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(Unavailable, match="at least 96 MB"):
        deno.spec(Path("/deno"), ResourceLimits(memory=64 * MB))


def test_nothing_is_permitted() -> None:
    words = deno.spec(Path("/deno"), ResourceLimits()).argv
    assert not [word for word in words if word.startswith("--allow") or word in ("-A", "-R", "-W", "-N", "-E")]
    assert words[-1].endswith("deno_runner.js") and words[-1] == str(deno.RUNNER)
