"""What Deno gives away unless it is held: each trap in the real jail, beside something like it that must work.

Where a measure of ours is what holds, the same is tried without it, to see that there is a trap at all.
"""

# ruff: noqa: E501 - programs of another language, a line each

import asyncio
import json
import os
import re
import resource
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from toolgate.sandbox.engine import Sandbox
from toolgate.sandbox.jail import MB, ResourceLimits
from toolgate.sandbox.results import CodeResult
from toolgate.sandbox.runtimes import deno
from toolgate.settings import SandboxSettings

pytestmark = pytest.mark.requirement("SBX-2", "SBX-3")

DENO = deno.find_deno(None)


class Trap(NamedTuple):
    """Code that must fail with these words, or be ended; and code of the same kind that gives `ok`."""

    name: str
    code: str
    words: str
    """What the failure says; "died": it says nothing, the process was ended."""
    control: str
    language: str = "typescript"


DATA = "import ok from 'data:text/javascript,export default \"ok\"'; export default ok"
JSON = "import it from 'data:application/json,\"ok\"' with { type: 'json' }; export default it"
BLOB = "return (await import(URL.createObjectURL(new Blob(['export default \"ok\"'], { type: 'text/javascript' })))).default"
NODE = "import { join } from 'node:path'; export default join('ok')"
REQUIRE = "return require('node:path').join('ok')"
EVENT = "return await new Promise((yes) => { const t = new EventTarget(); t.addEventListener('x', () => yes('ok')); t.dispatchEvent(new Event('x')) })"

TRAPS = [
    Trap("static_text", "import t from 'file:///etc/passwd' with { type: 'text' }; export default t", "Requires read access", JSON),
    Trap("static_text_by_path", "import t from '/etc/passwd' with { type: 'text' }; export default t", "invalid URL", JSON),
    Trap("static_json", "import t from 'file:///etc/machine-id' with { type: 'json' }; export default t", "Requires read access", JSON),
    Trap("static_module", "import t from 'file:///etc/passwd'; export default t", "Requires read access", DATA),
    Trap("dynamic_text", "return (await import('file:///etc/passwd', { with: { type: 'text' } })).default", "Requires read access", BLOB),
    Trap("relative", "import t from '../../etc/passwd'; export default t", "invalid URL", DATA),
    Trap("npm", "import t from 'npm:left-pad'; export default t", "--no-npm", NODE),
    Trap("jsr", "import t from 'jsr:@std/path'; export default t", "Requires import access", NODE),
    Trap("https", "import t from 'https://deno.land/x'; export default t", "Requires import access", DATA),
    Trap("http", "import t from 'http://127.0.0.1:PORT/x.js'; export default t", "Requires import access", DATA),
    Trap(
        "text_through_data", "import t from 'data:text/javascript,export {default} from \"file:///etc/passwd\" with {type: \"text\"}'; export default t",
        "Requires read access", DATA,
    ),
    Trap(
        "text_through_blob",
        "return (await import(URL.createObjectURL(new Blob(['export {default} from \"file:///etc/passwd\" with {type: \"text\"}'], { type: 'text/javascript' })))).default",
        "Requires read access", BLOB,
    ),
    Trap("node_fs", "import fs from 'node:fs'; export default fs.readFileSync('/etc/passwd', 'utf8')", "Requires read access", NODE),
    Trap("node_fs_required", "return require('fs').readFileSync('/etc/passwd', 'utf8')", "Requires read access", REQUIRE, "javascript"),
    Trap("require_a_file", "return require('/etc/passwd')", "only Node's own modules", REQUIRE, "javascript"),
    Trap("node_child_process", "import c from 'node:child_process'; export default c.execSync('id').toString()", "", NODE),
    Trap("node_net", "import n from 'node:net'; await new Promise((y, no) => n.connect(PORT, '127.0.0.1', y).on('error', no)); export default 1", "Requires net access", NODE),
    Trap("node_http", "import h from 'node:http'; await new Promise((y, no) => h.get('http://127.0.0.1:PORT/', y).on('error', no)); export default 1", "Requires net access", NODE),
    Trap("node_vm", "import vm from 'node:vm'; export default vm.runInNewContext('Deno.readTextFileSync(\"/etc/passwd\")')", "Deno is not defined", "import vm from 'node:vm'; export default vm.runInNewContext('\"ok\"')"),
    Trap("node_dlopen", "process.dlopen({ exports: {} }, 'libc.so.6'); return 'loaded'", "", "return process.pid > 0 && 'ok'"),
    Trap("node_ffi", "return (await import('node:ffi')).dlopen('libc.so.6', {})", "", NODE),
    Trap("deno_ffi", "return Deno.dlopen('libc.so.6', {})", "not a function", "return Deno.version.deno && 'ok'"),
    Trap("deno_files", "return Deno.readTextFileSync('/etc/passwd')", "not a function", "return Deno.build.os && 'ok'"),
    Trap("deno_kv", "return await Deno.openKv()", "not a function", "return Deno.version.v8 && 'ok'"),
    Trap("constructor", "return (async () => {}).constructor('return Deno.readTextFileSync(\"/etc/passwd\")')()", "not a function", "return new Function('return \"ok\"')()"),
    Trap("web_worker", "return new Worker('data:text/javascript,1', { type: 'module' })", "Worker is not defined", EVENT),
    Trap("node_worker", "import { Worker } from 'node:worker_threads'; new Worker('1', { eval: true }); await new Promise(() => setTimeout(() => {}, 5000))", "died", EVENT),
    Trap("fetch", "return (await fetch('http://127.0.0.1:PORT/')).status", "Requires net access", "return await (await fetch('data:,ok')).text()"),
    Trap("web_socket", "await new Promise((y, no) => { const w = new WebSocket('ws://127.0.0.1:PORT/'); w.onopen = y; w.onerror = no })", "Requires net access", EVENT),
    Trap("local_storage", "return localStorage.setItem('a', 'b')", "localStorage is not defined", EVENT),
    Trap("caches", "return await caches.open('x')", "caches is not defined", EVENT),
    Trap("broadcast", "return new BroadcastChannel('x')", "BroadcastChannel is not defined", "const c = new MessageChannel(); c.port1.close(); return 'ok'"),
    Trap("web_gpu", "return (await navigator.gpu.requestAdapter()) ?? 'none'", "requestAdapter", "return navigator.userAgent && 'ok'"),
    Trap("prompt", "return prompt('password?')", "prompt is not defined", EVENT),
    Trap("wasm_memory", "const m = new WebAssembly.Memory({ initial: 5000, maximum: 65536 }); new Uint8Array(m.buffer).fill(1); return 1", "could not allocate memory", "const m = new WebAssembly.Memory({ initial: 1600 }); new Uint8Array(m.buffer).fill(1); return 'ok'"),
    Trap("array_buffer", "return new Uint8Array(300 << 20).fill(1).length", "allocation failed", "return new Uint8Array(150 << 20).fill(1).length && 'ok'"),
    Trap("shared_array_buffer", "return new Uint8Array(new SharedArrayBuffer(300 << 20)).fill(1).length", "", "return new Uint8Array(new SharedArrayBuffer(150 << 20)).fill(1).length && 'ok'"),
    Trap(
        "objects", "const k = []; for (;;) k.push({ x: k.length, y: [k.length] })", "died",
        "const k = []; while (process.memoryUsage().heapUsed < 150 * 1048576) for (let i = 0; i < 1000; i++) k.push({ x: i, y: [i] }); return 'ok'",
    ),
    Trap(
        "after_the_end", "setTimeout(() => console.log('LATE'), 50); queueMicrotask(() => setTimeout(() => console.log('LATE'), 0)); process.on('exit', () => console.log('LATE')); throw new Error('first')",
        "first", "setTimeout(() => console.log('LATE'), 50); return 'ok'",
    ),
    Trap(
        "deaf_runner", "for (const s of Object.getOwnPropertySymbols(globalThis)) if (globalThis[s]?.listeners) globalThis[s].listeners = {}; setTimeout(() => { throw 1 }); await new Promise(() => {})", "died",
        "for (const s of Object.getOwnPropertySymbols(globalThis)) if (globalThis[s]?.listeners) globalThis[s].listeners = {}; return 'ok'",
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A port of the host that nobody may reach."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
        server.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.fixture(scope="module")
def ran(port: int) -> dict[str, tuple[CodeResult, CodeResult]]:
    """Every trap and its control, run in one sandbox."""

    async def both(sandbox: Sandbox, trap: Trap) -> tuple[CodeResult, CodeResult]:
        found = [
            await sandbox.run_code(trap.language, code.replace("PORT", str(port)), seconds=20)  # type: ignore[arg-type]
            for code in (trap.code, trap.control)
        ]
        return found[0], found[1]

    async def all_of_them() -> dict[str, tuple[CodeResult, CodeResult]]:
        sandbox = Sandbox(SandboxSettings(at_once=2, warm=2))
        try:
            found = await asyncio.gather(*(both(sandbox, trap) for trap in TRAPS))
        finally:
            await sandbox.close()
        return {trap.name: pair for trap, pair in zip(TRAPS, found, strict=True)}

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
@pytest.mark.sample(6)
def test_it_is_refused(trap: Trap, ran: dict[str, tuple[CodeResult, CodeResult]]) -> None:
    tried, control = ran[trap.name]
    assert (control.value, control.failure) == ("ok", None)
    assert "LATE" not in tried.stdout + control.stdout
    assert tried.failure is not None and tried.value is None, tried
    assert "root:" not in str(tried)
    if trap.words == "died":
        assert tried.failure.kind == "died", tried
    else:
        assert tried.failure.kind == "raised", tried
        assert trap.words in tried.failure.message


# -- without our measures there is a trap


def plain_deno(folder: Path, *words: str, data: int | None = None) -> subprocess.CompletedProcess[str]:
    """Deno with no permission, no runner, no jail."""

    def limited() -> None:
        if data is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (data, data))

    environment = {"HOME": str(folder), "NO_COLOR": "1"}
    return subprocess.run(
        [str(DENO), "run", *words], env=environment, capture_output=True, text=True, timeout=250, check=False,
        preexec_fn=limited,
    )  # fmt: skip


def test_a_main_module_reads_any_file_without_permission(tmp_path: Path) -> None:
    """Why the code is never Deno's main module."""
    main = tmp_path / "main.ts"
    main.write_text("import t from '/etc/passwd' with { type: 'text' }; console.log(t)")
    assert "root:" in plain_deno(tmp_path, *deno.DENO_FLAGS, str(main)).stdout


def test_a_worker_runs_where_its_code_range_fits(tmp_path: Path) -> None:
    """Why memory is bounded by RLIMIT_DATA with V8's compiler on: it leaves no room for a second engine."""
    main = tmp_path / "main.ts"
    main.write_text(
        "const w = new Worker('data:text/javascript,postMessage(1)', { type: 'module' }); w.onmessage = () => { console.log('ran'); w.terminate() }"
    )
    assert plain_deno(tmp_path, str(main)).stdout == "ran\n"
    held = plain_deno(tmp_path, str(main), data=(512 + 256) * MB)
    assert held.stdout == "" and held.returncode < 0


def test_the_heap_flag_alone_does_not_bound_buffers(tmp_path: Path) -> None:
    main = tmp_path / "main.ts"
    main.write_text("console.log(new Uint8Array(400 << 20).fill(1).length)")
    flag = "--v8-flags=--max-old-space-size=128"
    assert plain_deno(tmp_path, flag, str(main)).stdout == f"{400 << 20}\n"
    assert "RangeError" in plain_deno(tmp_path, flag, str(main), data=(512 + 256) * MB).stderr


# -- the jail holds even if Deno did not


BREAKOUT = """
const got = [], say = (...words) => got.push(words.join(" "));
const attempt = async (name, what) => { try { const it = await what(); if (it !== undefined && it !== false) say("ESCAPED", name, String(it).slice(0, 200)) } catch (e) { say("held", name, e.message) } };
const read = (path) => Deno.readTextFileSync(path);
Deno.writeTextFileSync("own", "mine");
if (read("own") === "mine" && Deno.env.get("HOME")) say("control ok");
for (const path of ["SECRET", "/etc/passwd", "/etc/shadow", "/proc/1/environ", "/proc/HOST/environ", "/proc/1/rootSECRET", "/root/.bashrc"]) await attempt(path, () => read(path));
// Where there is no node, Deno sets the last of these itself.
await attempt("environment", () => Object.keys(Deno.env.toObject()).filter((k) => !["HOME", "TMPDIR", "PATH", "LANG", "NO_COLOR", "DENO_NO_UPDATE_CHECK", "DENO_NODE_SHIM_ACTIVE"].includes(k)).join() || undefined);
for (const path of ["OUTSIDE/made", "/usr/made", "/etc/made", "/made", "/dev/made"]) await attempt(path, () => Deno.writeTextFileSync(path, "x") ?? "wrote");
await attempt("link", () => { Deno.symlinkSync("SECRET", "link"); return read("link") });
await attempt("tcp", async () => { (await Deno.connect({ port: PORT, hostname: "127.0.0.1" })).close(); return "connected" });
await attempt("unix", async () => { (await Deno.connect({ transport: "unix", path: "SOCKET" })).close(); return "connected" });
await attempt("udp", async () => await Deno.listenDatagram({ port: 0, transport: "udp" }).send(new Uint8Array(1), { transport: "udp", hostname: "127.0.0.1", port: PORT }));
await attempt("fetch", async () => (await fetch("http://127.0.0.1:PORT/")).status);
await attempt("command", () => new Deno.Command("/bin/true").outputSync().code === 0 && "ran");
await attempt("kill", () => { Deno.kill(HOST, "SIGUSR1"); return "sent" });
await attempt("native", async () => {
  const libc = Deno.dlopen("libc.so.6", { syscall: { parameters: ["i64", "i64", "i64", "i64", "i64"], result: "i64" }, fork: { parameters: [], result: "i32" } });
  const numbers = Deno.build.arch === "x86_64"
    ? { socket: [41, 2, 1, 0], fork: [57], vfork_clone: [56, 17, 0, 0], ptrace: [101, 16, HOST, 0], keyctl: [250, 0, -3, 0], bpf: [321, 0, 0, 0], io_uring: [425, 1, 0, 0], userfaultfd: [323, 0],
        memfd: [319, 0, 0], unshare: [272, 0x10000000], setns: [308, 0, 0], perf: [298, 0, 0, -1, -1], affinity: [203, 0, 8, 0], kill: [62, HOST, 10], mount: [165, 0, 0, 0, 0], personality: [135, 0x40000],
        process_vm: [310, HOST, 0, 0], shmget: [29, 0, 4096, 0x3b6], mq: [240, 0, 66, 384], pidfd_getfd: [438, 3, 0, 0], setuid: [105, 0] }
    : { socket: [198, 2, 1, 0], clone: [220, 17, 0, 0], ptrace: [117, 16, HOST, 0], keyctl: [219, 0, -3, 0], bpf: [280, 0, 0, 0], unshare: [97, 0x10000000], kill: [129, HOST, 10] };
  for (const [name, given] of Object.entries(numbers)) {
    const result = libc.symbols.syscall(...[...given, 0, 0, 0, 0, 0].slice(0, 5).map(BigInt));
    say(Number(result) >= 0 ? "ESCAPED" : "held", "syscall", name, result);
  }
  const child = libc.symbols.fork(); say(child >= 0 ? "ESCAPED" : "held", "fork", child);
});
console.log(got.join("\\n"));
"""


async def test_deno_with_every_permission_is_still_held_by_the_jail(tmp_path: Path) -> None:
    """As if all of Deno's own checks had been got round."""
    secret, outside, path = tmp_path / "secret", tmp_path / "outside", tmp_path / "socket"
    secret.write_text("marker")
    outside.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(path))
        unix.listen()
        words = {"SECRET": secret, "OUTSIDE": outside, "SOCKET": path, "HOST": os.getpid(), "PORT": tcp.getsockname()[1]}
        program = tmp_path / "readable" / "breakout.js"
        program.parent.mkdir()
        program.write_text(re.sub("|".join(words), lambda found: str(words[found[0]]), BREAKOUT))
        given = deno.spec(DENO, ResourceLimits())
        free = (given.argv[0], "run", "-A", given.argv[-2], str(program))
        sandbox = Sandbox()
        try:
            box = await (await sandbox.jail()).start(msgspec.structs.replace(given, argv=free, readable=(program,)))
            said, errors = await asyncio.wait_for(asyncio.gather(_all(box.read), _all(box.read_errors)), 120)
            await box.close()
        finally:
            await sandbox.close()
        for server in (tcp, unix):
            server.setblocking(False)
            with pytest.raises(BlockingIOError):
                server.accept()
    lines = said.splitlines()
    assert "control ok" in lines, said + errors
    assert [line for line in lines if line.startswith("ESCAPED")] == []
    assert len([line for line in lines if line.startswith("held")]) > 25, said
    assert "marker" not in said
    assert list(outside.iterdir()) == []


async def _all(read: Any) -> str:
    found = b""
    while chunk := await read(65_536):
        found += chunk
    return found.decode()


# -- what the code says to the host is not believed


async def test_a_forged_compilation_is_not_what_the_next_run_gets() -> None:
    """Code could write the frame in which a check hands over the compiled form, with what it saw of its caller in it."""
    code = """export async function execute(args: any) {
      process.stdout.write(String.fromCharCode(0x1e) + JSON.stringify({ compiled: "export const execute = () => 'SEEN " + args.secret + "'", result: 1 }) + "\\n");
      await new Promise((r) => setTimeout(r, 300)); return "honest" }"""
    sandbox = Sandbox(SandboxSettings(warm=0))
    try:
        assert await sandbox.check("typescript", code) is None
        first = await sandbox.run_code("typescript", code, mode="tool", arguments={"secret": "of the first"})
        again = await sandbox.run_code("typescript", code, mode="tool", arguments={"secret": "of the second"})
    finally:
        await sandbox.close()
    assert first.value == again.value == 1  # its own result, forged by itself
    assert "of the first" not in json.dumps([again.value, again.stdout, again.stderr])


async def test_output_that_begins_in_the_middle_of_a_line_does_not_hide_the_result() -> None:
    sandbox = Sandbox(SandboxSettings(warm=0))
    try:
        ran = await sandbox.run_code(
            "typescript", "process.stdout.write('no end of line'); await new Promise((r) => setTimeout(r, 50)); return 'ok'"
        )
    finally:
        await sandbox.close()
    assert (ran.value, ran.stdout) == ("ok", "no end of line")
