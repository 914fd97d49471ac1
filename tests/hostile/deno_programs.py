"""Hostile programs for the TypeScript lane.

Most try several ways to the same thing: `tries` makes a program of expressions, each of which gives what it got, or fails. A
program that runs into a limit says nothing more.
"""

# ruff: noqa: E501 - programs of another language, a line each

from tests.hostile.battery import Hostile
from toolgate.sandbox.jail import Feature

ADD = 'import { join } from "node:path";\nif (join("a", "b") === "a/b") console.log("control ok")'
DATA_IMPORT = 'const { default: it } = await import("data:application/json,7", { with: { type: "json" } }); if (it === 7) console.log("control ok")'
OWN_EVENT = (
    'const t = new EventTarget(); t.addEventListener("x", () => console.log("control ok")); t.dispatchEvent(new Event("x"))'
)
OWN_DATA = 'if (await (await fetch("data:,here")).text() === "here") console.log("control ok")'
OWN_ENVIRONMENT = 'process.env.MINE = "here"; if (process.env.MINE === "here") console.log("control ok")'
OWN_PROCESS = 'if (process.pid > 0 && process.version.startsWith("v")) console.log("control ok")'
TIMER = 'const t = performance.now(); await new Promise((r) => setTimeout(r, 30)); if (performance.now() - t > 25) console.log("control ok")'
LOOP = 'let n = 0; for (let i = 0; i < 1e7; i++) n += i % 3; if (n > 0) console.log("control ok")'
WASM = """const add = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 7, 1, 96, 2, 127, 127, 1, 127, 3, 2, 1, 0, 7, 7, 1, 3, 97, 100, 100, 0,
  0, 10, 9, 1, 7, 0, 32, 0, 32, 1, 106, 11]);
const made = await WebAssembly.instantiate(add); if ((made.instance.exports.add as any)(2, 3) === 5) console.log("control ok")"""
PRINTS = 'console.log("x".repeat(100_000)); console.log("control ok")'


def buffers(make: str, megabytes: int) -> str:
    """Allocate and touch memory outside of the heap, a megabyte at a time."""
    return f"""const kept: unknown[] = [];
    for (let i = 0; i < {megabytes}; i++) {{ const b = {make}; new Uint8Array((b as any).buffer ?? b).fill(i + 1); kept.push(b) }}"""


def allocates(name: str, code: str, control: str) -> Hostile:
    """Take 300 MB where 256 are allowed; its control takes 100."""
    return Hostile(
        name,
        "memory",
        f'try {{ {code}\n console.log("ESCAPED took 300 MB") }} catch {{ console.log("held") }}',
        f'{control}\nconsole.log("control ok")',
        seconds=10.0,
    )


def tries(name: str, feature: Feature, control: str, *ways: str, before: str = "", seconds: float = 5.0) -> Hostile:
    """A program that tries each way, for a second at most; a way that gives something has succeeded."""
    attempts = ",\n".join(f"  async () => {way}" for way in ways)
    code = f"""{before}
const late = () => new Promise((_, no) => setTimeout(() => no(new Error("late")), 1000));
let got: unknown[] = [];
for (const way of [
{attempts}
] as (() => Promise<unknown>)[]) {{
  try {{
    const it = await Promise.race([way(), late()]);
    if (it) got.push(it);
  }} catch {{}}
}}
for (const it of got) console.log("ESCAPED " + String(it).slice(0, 300));
if (got.length === 0) console.log("held");
await new Promise((r) => setTimeout(r, 20));
process.exit(0);
"""
    return Hostile(name, feature, code, control, seconds)


def once(name: str, feature: Feature, before: str, way: str) -> Hostile:
    """A program that tries one way, and is ended by its failure: Deno's refusal comes from nowhere, as a rejection."""
    return Hostile(name, feature, f'{before}\nconsole.log("held"); console.log("ESCAPED " + await {way})', ADD)


FILES = [
    tries(
        "import_file_as_text", "files", DATA_IMPORT,
        '(await import("file://{secret_file}", { with: { type: "text" } })).default',
        '(await import("{secret_file}", { with: { type: "text" } })).default',
        '(await import("file:///etc/passwd", { with: { type: "text" } })).default',
        '(await import("file://localhost{secret_file}", { with: { type: "text" } })).default',
        '(await import("file://{secret_file}", { with: { type: "bytes" } })).default',
    ),
    tries(
        "import_file_as_module", "files", DATA_IMPORT,
        '(await import("file:///etc/machine-id", { with: { type: "json" } })).default',
        'await import("file://{secret_file}?x")',
        'await import("file:///proc/self/environ")',
        'await import("file:///usr/lib/os-release")',
    ),
    tries(
        "static_import_in_data_module", "files", DATA_IMPORT,
        """(await import("data:text/javascript," + encodeURIComponent(
          'import t from "file://{secret_file}" with {type: "text"}; export default t'))).default""",
        """(await import("data:application/typescript," + encodeURIComponent(
          'import t from "file:///etc/passwd" with {type: "text"}; export default t'))).default""",
        """(await import("data:text/javascript," + encodeURIComponent(
          'export { default } from "file:///etc/passwd" with {type: "text"}'))).default""",
    ),
    tries(
        "static_import_in_blob_module", "files", DATA_IMPORT,
        """(await import(URL.createObjectURL(new Blob([
          'import t from "file://{secret_file}" with {type: "text"}; export default t'], {type: "text/javascript"})))).default""",
        """(await import(URL.createObjectURL(new Blob([
          'import t from "file:///etc/passwd" with {type: "text"}; export default t'], {type: "application/typescript"})))).default""",
    ),
    tries(
        "node_fs_reads", "files", ADD,
        'fs.readFileSync("{secret_file}", "utf8")', 'await promises.readFile("{secret_file}", "utf8")', 'fs.openSync("{secret_file}", "r")',
        'fs.readdirSync("/etc")', 'fs.statSync("{secret_file}").size', 'fs.existsSync("{secret_file}")', 'fs.readlinkSync("/proc/self/exe")',
        'fs.realpathSync("/proc/self/root")', 'fs.accessSync("{secret_file}") ?? "accessible"',
        'await new Promise((yes, no) => fs.createReadStream("{secret_file}").on("data", yes).on("error", no))',
        'fs.globSync("/etc/*")[0]', 'fs.opendirSync("/").readSync()?.name', 'await fs.openAsBlob("{secret_file}").then((b) => b.text())',
        before='import fs, { promises } from "node:fs";',
    ),
    tries(
        "node_fs_writes", "files", ADD,
        'fs.writeFileSync("{outside}/mark", "x") ?? "wrote"', 'fs.mkdirSync("{outside}/folder") ?? "made"', 'fs.rmSync("{outside}/keep") ?? "removed"',
        'fs.copyFileSync("{secret_file}", "copy") ?? "copied"', 'fs.symlinkSync("{secret_file}", "link") ?? "linked"', 'fs.linkSync("{secret_file}", "hard") ?? "linked"',
        'fs.renameSync("{outside}/keep", "{outside}/kept") ?? "renamed"', 'fs.chmodSync("{secret_file}", 0o777) ?? "changed"', 'fs.mkdtempSync("{outside}/t")',
        'fs.truncateSync("{secret_file}") ?? "cut"', 'fs.utimesSync("{secret_file}", 1, 1) ?? "touched"', 'fs.cpSync("{secret_file}", "{outside}/c") ?? "copied"',
        before='import fs from "node:fs";',
    ),
    tries(
        "proc_and_descriptors", "files", ADD,
        *(f'fs.readFileSync("{path}", "utf8")' for path in ("/proc/self/environ", "/proc/1/root{secret_file}", "/proc/self/maps", "/proc/{host_pid}/environ", "/proc/self/cmdline")),
        *(f"(() => {{ const b = Buffer.alloc(64); return fs.readSync({number}, b, 0, 64, 0) && b.toString() }})()" for number in range(3, 20)),
        *(f'fs.writeSync({number}, "x") && "wrote {number}"' for number in range(4, 12)),
        before='import fs from "node:fs";',
    ),
    tries(
        "paths_that_change", "files", ADD,
        '(() => { let n = 0; return fs.readFileSync({ toString: () => (n++ ? "{secret_file}" : "/dev/null") } as any, "utf8") })()',
        'fs.readFileSync(new URL("file://{secret_file}"), "utf8")', 'fs.readFileSync(Buffer.from("{secret_file}"), "utf8")', 'fs.readFileSync("//{secret_file}", "utf8")',
        '(() => { const u = new URL("file:///dev/null"); Object.defineProperty(u, "href", { get: () => "file://{secret_file}" }); return fs.readFileSync(u, "utf8") })()',
        'fs.readFileSync("/dev/null/../..{secret_file}", "utf8")',
        before='import fs from "node:fs";',
    ),
    tries(
        "bindings_of_node", "files", OWN_PROCESS,
        '(process as any).binding("fs").readFileUtf8("{secret_file}", 0)', '(process as any).binding("fs").open("{secret_file}", 0, 0)',
        'Object.keys((process as any).binding("natives") ?? {})[0]', '(process as any)._linkedBinding("fs").open("{secret_file}")', '(process as any).binding("spawn_sync").spawn({})',
    ),
    tries(
        "require_files", "files", ADD,
        'createRequire("file:///x.js")("{secret_file}")', 'createRequire("file:///x.js")("/etc/machine-id")', 'createRequire("file:///x.js").resolve("{secret_file}")',
        '(Module as any)._load("{secret_file}", null, true)', '(Module as any)._findPath("passwd", ["/etc"])',
        '(() => { const m: any = new (Module as any)("x"); (Module as any)._extensions[".js"](m, "{secret_file}"); return m.exports })()',
        '(() => { const m: any = new (Module as any)("x"); (Module as any)._extensions[".json"](m, "/etc/machine-id"); return m.exports })()',
        before='import Module, { createRequire } from "node:module";',
    ),
    tries(
        "module_hooks", "files", ADD,
        """(() => { (Module as any).registerHooks({ load: (url: string, c: any, next: any) => next("file://{secret_file}", { ...c, format: "commonjs" }) });
          return import("data:text/javascript,export default 1").then((m) => m.default === 1 ? null : m.default) })()""",
        """(() => { (Module as any).registerHooks({ resolve: () => ({ url: "file://{secret_file}", shortCircuit: true, format: "json" }) });
          return import("some-thing", { with: { type: "text" } }).then((m) => m.default) })()""",
        '(Module as any).register("file://{secret_file}")', '(Module as any).findPackageJSON("file://{secret_file}")',
        before='import Module from "node:module";',
    ),
    tries(
        "fetch_a_file", "files", OWN_DATA,
        'await (await fetch("file://{secret_file}")).text()', 'await (await fetch(new URL("file:///etc/passwd"))).text()',
        'await (await fetch(new Request("file://{secret_file}"))).text()', 'await (await fetch("blob:file://{secret_file}")).text()',
    ),
    tries(
        "deno_by_constructors", "files", ADD,
        *(f"{way}?.readTextFileSync?.('{{secret_file}}')" for way in (
            'new Function("return Deno")()', '(async () => {}).constructor("return Deno")().then((d: any) => d)', '(0, eval)("Deno")', "(globalThis as any).Deno",
            "(globalThis as any).window?.Deno", "(self as any).Deno", "(Deno as any).__proto__", "(Deno as any).core", '(Deno as any)[Symbol.for("Deno.internal")]',
            "Object.getPrototypeOf(Deno.errors.NotFound).Deno", "(globalThis as any).__bootstrap", "(globalThis as any).Deno.internal",
        )),
        '(Deno as any).core?.ops ?? (Deno as any).internal',
        'await import("ext:core/ops" as string)', 'await import("ext:runtime/98_global_scope_window.js" as string)', 'await import("node:internal/fs" as string)',
    ),
    tries(
        "deno_by_walking_every_object", "files", ADD, "found.join() || null",
        before="""
import { builtinModules } from "node:module";
const seen = new Set<unknown>(), found: string[] = [];
const queue: [string, any][] = [["globalThis", globalThis], ["meta", import.meta]];
for (const name of builtinModules) try { queue.push([name, process.getBuiltinModule(name)]) } catch {}
while (queue.length > 0) {
  const [path, value] = queue.shift()!;
  if (value === null || !["object", "function"].includes(typeof value) || seen.has(value) || path.length > 400) continue;
  seen.add(value);
  try {
    for (const key of Reflect.ownKeys(value)) {
      const name = String(key);
      if (name.startsWith("op_") || ["ops", "readTextFileSync", "UnsafePointer", "openKv", "Command"].includes(name)) found.push(path + "." + name);
      const described = Reflect.getOwnPropertyDescriptor(value, key)!;
      let inner = described.value;
      if (described.get) { queue.push([path + ".get " + name, described.get]); try { inner = value[key] } catch {} }
      if (inner instanceof Promise) inner.catch(() => {});
      queue.push([path + "." + name, inner]);
    }
    queue.push([path + ".__proto__", Object.getPrototypeOf(value)]);
  } catch {}
}
if (seen.size < 2000) found.push("walked only " + seen.size);
""",
    ),
    tries(
        "deno_by_stack_frames", "files", OWN_EVENT,
        """await new Promise((yes) => { Error.prepareStackTrace = (_e, sites) => sites;
          const look = () => { for (const s of new Error().stack as any) { const f = s.getFunction?.(), t = s.getThis?.();
            if (t?.readTextFileSync || t?.core || /readStdin|writeStdout/.test(String(f ?? ""))) return String(f ?? t) } return null };
          const first = look(); setTimeout(() => yes(first ?? look()), 5) })""",
        '(function f(): any { return (f as any).caller?.caller })()', "(arguments as any).callee.caller",
    ),
    tries(
        "deno_by_other_contexts", "files", ADD,
        'vm.runInNewContext("Deno.readTextFileSync(\'{secret_file}\')")', 'vm.runInThisContext("Deno.core.ops ? 1 : null")', 'vm.runInNewContext("this.constructor.constructor(\'return Deno.core\')()")',
        'await vm.runInThisContext("import(\'file:///etc/passwd\', {with: {type: \'text\'}})", { importModuleDynamically: (vm as any).constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER }).then((m: any) => m.default)',
        'new (globalThis as any).ShadowRealm().evaluate("Deno.core")', 'vm.compileFunction("return Deno.readTextFileSync(\'{secret_file}\')")()',
        'await new (vm as any).SourceTextModule("import t from \'file:///etc/passwd\' with {type: \'text\'}; globalThis.t = t").link(() => null)',
        before='import vm from "node:vm";',
    ),
    tries(
        "deno_by_hooking_built_ins", "files", ADD,
        """await new Promise((yes) => { const take = (it: any) => { if (it && (it.readTextFileSync || it.core?.ops)) yes("Deno") };
          for (const p of [Promise.prototype, Function.prototype, Array.prototype, Object] as any[])
            for (const k of ["then", "bind", "map", "push", "keys"]) { const was = p[k]; if (was) p[k] = function (...a: any[]) { take(this); a.forEach(take); return was.apply(this, a) } }
          console.log("x"); setTimeout(() => yes(null), 20) })""",
    ),
    tries(
        "sqlite_on_disk", "files", ADD,
        'new (process.getBuiltinModule("node:sqlite") as any).DatabaseSync("{outside}/base.db") && "opened"',
        """(() => { const d = new (process.getBuiltinModule("node:sqlite") as any).DatabaseSync(":memory:");
          d.exec("ATTACH '{outside}/other.db' AS other; CREATE TABLE other.t (x)"); return "attached" })()""",
        """(() => { const d = new (process.getBuiltinModule("node:sqlite") as any).DatabaseSync(":memory:", { allowExtension: true });
          d.enableLoadExtension(true); d.loadExtension("{secret_file}"); return "loaded" })()""",
    ),
    tries(
        "wasi_with_a_folder", "files", WASM,
        """(() => { const { WASI } = process.getBuiltinModule("node:wasi") as any;
          const w = new WASI({ version: "preview1", preopens: { "/": "/" } }); return w.wasiImport.path_open ? null : null })()""",
        '(process.getBuiltinModule("node:wasi") as any) && new (process.getBuiltinModule("node:wasi") as any).WASI({ version: "preview1", preopens: { "/": "/etc" } }) && "a folder"',
    ),
    tries(
        "snapshots_and_reports", "files", ADD,
        'v8.writeHeapSnapshot("{outside}/heap") && "wrote"', '(process as any).report.writeReport("{outside}/report") && "wrote"', 'v8.setHeapSnapshotNearHeapLimit(1) ?? null',
        '(process as any).loadEnvFile("{secret_file}") ?? process.env.marker', '(v8 as any).startupSnapshot?.isBuildingSnapshot() || null',
        before='import v8 from "node:v8";',
    ),
    tries(
        "flags_of_the_engine", "files", ADD,
        '(v8.setFlagsFromString("--max-old-space-size=4000"), v8.getHeapStatistics().heap_size_limit > 300e6)', '(v8.setFlagsFromString("--allow-natives-syntax"), vm.runInNewContext("%SystemBreak() || 1"))',
        '(v8.setFlagsFromString("--expose-memory-corruption-api"), vm.runInNewContext("typeof Sandbox") !== "undefined")', '(v8.setFlagsFromString("--logfile={outside}/log"), v8.setFlagsFromString("--log-all"), vm.runInNewContext("null"))',
        '(v8.setFlagsFromString("--prof"), v8.setFlagsFromString("--redirect-code-traces-to={outside}/t"), vm.runInNewContext("null"))',
        before='import v8 from "node:v8"; import vm from "node:vm";',
    ),
]  # fmt: skip

ENVIRONMENT = [
    tries(
        "environment_of_the_process", "environment", OWN_ENVIRONMENT,
        'process.env["{secret_env}"]', '(Deno as any).env.get("{secret_env}")', "process.env.PATH", "process.env.HOME", "Object.keys(process.env)[0]",
        'structuredClone({ ...process.env })["{secret_env}"]', '"{secret_env}" in process.env', "(process.getBuiltinModule('node:os') as any).userInfo().homedir",
    ),
    tries(
        "environment_by_reports", "environment", OWN_PROCESS,
        '(process as any).report.getReport().environmentVariables["{secret_env}"]', 'Object.keys((process as any).report.getReport().environmentVariables ?? {})[0]',
        'process.argv.concat(process.execArgv).find((word) => word.includes("{secret_env}"))', "(process as any).config?.variables?.secret",
        'process.getBuiltinModule("node:worker_threads").workerData', 'process.getBuiltinModule("node:child_process").execSync("env").toString()',
    ),
    tries(
        "about_the_host", "environment", OWN_PROCESS,
        "Object.values(os.networkInterfaces()).flat().find((i: any) => !i.internal)?.address", "process.ppid > 1 && process.kill(process.ppid, 0)",
        before='import os from "node:os";',
    ),
]  # fmt: skip

NETWORK = [
    tries(
        "fetch_loopback", "network", OWN_DATA,
        *(f'(await fetch("{url}")).status' for url in (
            "http://127.0.0.1:{host_port}/", "http://localhost:{host_port}/", "http://[::1]:{host_port}/", "http://0.0.0.0:{host_port}/", "http://2130706433:{host_port}/", "https://127.0.0.1:{host_port}/",
        )),
        'await (await fetch("http://1.1.1.1/")).text()', '(await (globalThis as any).caches.open("x"))',
    ),
    tries(
        "web_sockets", "network", OWN_EVENT,
        'await new Promise((yes, no) => { const w = new WebSocket("ws://127.0.0.1:{host_port}/"); w.onopen = () => yes("open"); w.onerror = no })',
        'await new Promise((yes, no) => { const w = new EventSource("http://127.0.0.1:{host_port}/"); w.onopen = () => yes("open"); w.onerror = no })',
        'await new (globalThis as any).WebTransport("https://127.0.0.1:{host_port}/").ready', 'new (globalThis as any).WebSocketStream("ws://127.0.0.1:{host_port}/").opened',
    ),
    *(
        tries(
            f"node_net_{name}", "network", ADD,
            f'await new Promise((yes, no) => {{ const s = net.connect({where}); s.on("connect", () => yes("connected")); s.on("error", no) }})',
            f'await new Promise((yes, no) => {{ const s = new net.Socket(); s.on("error", no); s.connect({where}, () => yes("connected")) }})',
            before='import net from "node:net";',
        )
        for name, where in (
            ("tcp", '{ host: "127.0.0.1", port: {host_port} }'), ("tcp6", '{ host: "::1", port: {host_port} }'), ("unix", '{ path: "{host_socket}" }'),
            ("abstract", '{ path: "\\0{host_abstract}" }'),
        )
    ),
    once("node_udp_send", "network", 'import dgram from "node:dgram";',
        'new Promise((yes, no) => { const s = dgram.createSocket("udp4"); s.on("error", no); s.send("x", {host_port}, "127.0.0.1", (e) => e ? no(e) : yes("sent")) })'),
    once("node_udp_bind", "network", 'import dgram from "node:dgram";',
        'new Promise((yes, no) => { const s = dgram.createSocket("udp4"); s.on("error", no); s.bind(0, () => yes("bound")) })'),
    tries(
        "node_http", "network", ADD,
        'await new Promise((yes, no) => http.get("http://127.0.0.1:{host_port}/", yes).on("error", no))',
        'await new Promise((yes, no) => http.request({ socketPath: "{host_socket}" }, yes).on("error", no).end())',
        'await new Promise((yes, no) => { const s = https.get("https://127.0.0.1:{host_port}/", yes); s.on("error", no); s.on("socket", (t: any) => t.on("connect", () => yes("connected"))) })',
        'await new Promise((yes, no) => { const c = http2.connect("http://127.0.0.1:{host_port}"); c.on("connect", () => yes("connected")); c.on("error", no) })',
        'await new Promise((yes, no) => { const c = tls.connect({host_port}, "127.0.0.1"); c.on("connect", () => yes("connected")); c.on("error", no) })',
        before='import http from "node:http"; import https from "node:https"; import http2 from "node:http2"; import tls from "node:tls";',
    ),
    once("listen_tcp", "network", 'import net from "node:net";', 'new Promise((yes, no) => net.createServer().on("error", no).listen(0, () => yes("listening")))'),
    once("listen_unix", "network", 'import net from "node:net";', 'new Promise((yes, no) => net.createServer().on("error", no).listen("own.sock", () => yes("listening")))'),
    once("listen_http", "network", 'import http from "node:http";', 'new Promise((yes, no) => http.createServer().on("error", no).listen(0, "127.0.0.1", () => yes("listening")))'),
    tries(
        "names", "network", ADD,
        '(await dns.promises.lookup("example.com")).address', 'await dns.promises.resolve4("example.com")',
        '(() => { const r = new dns.promises.Resolver(); r.setServers(["127.0.0.1:{host_port}"]); return r.resolve4("example.com") })()',
        before='import dns from "node:dns";',
    ),
    tries(
        "imports_from_the_net", "network", DATA_IMPORT,
        *(f'Object.keys(await import("{where}" as string)).join() || "imported"' for where in (
            "https://deno.land/std/version.ts", "http://127.0.0.1:{host_port}/x.js", "http://localhost:{host_port}/x.js", "npm:left-pad", "npm:/left-pad@1", "jsr:@std/path", "jsr:/@std/path@1/",
        )),
        """(await import("data:text/javascript," + encodeURIComponent('import "http://127.0.0.1:{host_port}/y.js"; export default 1'))).default""",
        'import.meta.resolve("npm:left-pad") && await import(import.meta.resolve("npm:left-pad"))',
        '(await import("data:text/javascript,%23!x%0Aexport default 1//%23 sourceMappingURL=http://127.0.0.1:{host_port}/m")).default === 2',
    ),
    tries(
        "inspector", "network", ADD,
        'inspector.open(0, "127.0.0.1") ?? inspector.url()', 'inspector.url()', '(process as any)._debugProcess({host_pid}) ?? "asked"', '(inspector as any).waitForDebugger() ?? "waited"',
        before='import inspector from "node:inspector";', seconds=2.0,
    ),
]  # fmt: skip

PROCESSES = [
    tries(
        "graphics_drivers", "processes", OWN_EVENT,
        "await (navigator as any).gpu.requestAdapter()", "await (globalThis as any).GPU.prototype.requestAdapter.call(navigator)", 'new OffscreenCanvas(8, 8).getContext("webgpu")',
        "await (Object.getOwnPropertyDescriptor(Object.getPrototypeOf(navigator), 'gpu') as any).get.call(navigator).requestAdapter()",
    ),
    tries(
        "child_processes", "processes", OWN_PROCESS,
        'cp.execSync("id").toString()', 'cp.spawnSync("/bin/sh", ["-c", "id"]).stdout.toString()', 'cp.execFileSync("/bin/cat", ["{secret_file}"]).toString()',
        'cp.spawnSync("/bin/true", [], { env: {} }).status === 0', 'cp.spawnSync("/proc/self/exe", ["--version"], { env: {} }).status === 0',
        before='import cp from "node:child_process";',
    ),
    *(
        once(f"child_by_{name}", "processes", 'import cp from "node:child_process"; import cluster from "node:cluster";', f"new Promise((yes, no) => {{ const c: any = {way}; c.on('error', no); c.on('spawn', () => yes('a child')); c.on('exit', (n: number) => n === 0 && yes('a child ended')) }})")
        for name, way in (
            ("spawn", 'cp.spawn("/bin/true", [], { env: {} })'), ("detaching", 'cp.spawn("/bin/sleep", ["60"], { detached: true, stdio: "ignore", env: {} })'), ("exec", 'cp.exec("true", { env: {} })'),
            ("fork", 'cp.fork("x.js", [], { env: {} })'), ("cluster", "cluster.fork().process"),
        )
    ),
    tries(
        "becoming_another_program", "processes", OWN_PROCESS,
        '(process as any).execve("/bin/echo", ["echo", "ESCAPED execve"], {}) ?? "done"', "process.setuid!(0) ?? 'root'", "process.setgid!(0) ?? 'root'", "process.setgroups!([0]) ?? 'root'",
        "process.chdir('/etc') ?? process.cwd()", "process.umask(0) === null",
    ),
    tries(
        "native_code", "processes", OWN_PROCESS,
        *(f'(process as any).dlopen({{ exports: {{}} }}, "{path}") ?? "loaded"' for path in ("/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/libc.so.6", "libc.so.6", "{secret_file}")),
        'createRequire("file:///x.js")("/tmp/x.node")', '(process.getBuiltinModule("node:ffi") as any).dlopen("libc.so.6", {})', '(await import("node:ffi" as string)).dlopen("libc.so.6", {})',
        '(Deno as any).dlopen("libc.so.6", { getpid: { parameters: [], result: "i32" } }).symbols.getpid()', 'new (Deno as any).UnsafePointer(1)', '(Module as any)._extensions[".node"]({}, "libc.so.6") ?? "loaded"',
        '(process as any).binding("ffi")', '(process.getBuiltinModule("node:process") as any).dlopen({ exports: {} }, "libc.so.6", 2) ?? "loaded"',
        before='import Module, { createRequire } from "node:module";',
    ),
    Hostile(
        "worker_of_node", "processes",
        """import { Worker } from "node:worker_threads";
        const w = new Worker("require('node:worker_threads').parentPort.postMessage(require('node:fs').readFileSync('{secret_file}', 'utf8'))", { eval: true });
        w.on("message", (got) => console.log("ESCAPED " + got)); w.on("error", () => console.log("held"));""",
        OWN_EVENT,
    ),
    Hostile(
        "worker_of_the_web", "processes",
        """const { constructor: C } = Object.getPrototypeOf(globalThis); const W = (globalThis as any).Worker ?? (C as any).Worker;
        try { const w = new W("data:text/javascript,postMessage(typeof Deno.readTextFileSync('{secret_file}'))", { type: "module", deno: { permissions: "inherit" } });
          w.onmessage = (e: any) => console.log("ESCAPED " + e.data); w.onerror = (e: any) => { e.preventDefault(); console.log("held") } } catch { console.log("held") }""",
        OWN_EVENT,
    ),
    Hostile(
        "worker_bomb", "processes",
        """import { Worker } from "node:worker_threads"; let running = 0;
        for (let i = 0; i < 200; i++) { const w = new Worker("require('node:worker_threads').parentPort.postMessage(1); for (;;);", { eval: true });
          w.on("message", () => { if (++running > 64) console.log("ESCAPED " + running + " workers") }); w.on("error", () => {}) }
        setTimeout(() => { console.log("held"); process.exit(0) }, 1500)""",
        OWN_EVENT,
    ),
    Hostile(
        "threads_by_digests", "processes",
        """const big = new Uint8Array(1 << 20); const all: Promise<unknown>[] = [];
        for (let i = 0; i < 3000; i++) all.push(crypto.subtle.digest("SHA-512", big));
        await Promise.allSettled(all); console.log("held")""",
        'if ((await crypto.subtle.digest("SHA-256", new Uint8Array(3))).byteLength === 32) console.log("control ok")', 10.0,
    ),
    once("tests_of_node", "processes", 'import test from "node:test";', 'test.run({ files: ["x"], isolation: "process" } as any).toArray().then((all: any[]) => { const ran = all.find((e) => e.type === "test:pass"); if (!ran) throw new Error("none"); return ran })'),
    Hostile("outliving_its_end", "processes", 'setInterval(() => {}, 10); process.on("exit", () => { for (;;); }); console.log("held"); return 1', TIMER),
]  # fmt: skip

MEMORY = [
    allocates("array_buffers", buffers("new ArrayBuffer(1 << 20)", 300), buffers("new ArrayBuffer(1 << 20)", 100)),
    allocates("one_array_buffer", "new Uint8Array(300 << 20).fill(1)", "new Uint8Array(100 << 20).fill(1)"),
    allocates("shared_buffers", buffers("new SharedArrayBuffer(1 << 20)", 300), buffers("new SharedArrayBuffer(1 << 20)", 100)),
    allocates("node_buffers", buffers("Buffer.allocUnsafeSlow(1 << 20)", 300), buffers("Buffer.allocUnsafeSlow(1 << 20)", 100)),
    allocates(
        "growing_buffer",
        "const b = new ArrayBuffer(0, { maxByteLength: 1 << 30 }); for (let i = 1; i <= 300; i++) { b.resize(i << 20); new Uint8Array(b, (i - 1) << 20).fill(1) }",
        "const b = new ArrayBuffer(0, { maxByteLength: 1 << 30 }); for (let i = 1; i <= 100; i++) { b.resize(i << 20); new Uint8Array(b, (i - 1) << 20).fill(1) }",
    ),
    allocates(
        "growing_shared_buffer",
        "const b = new SharedArrayBuffer(0, { maxByteLength: 1 << 30 }); for (let i = 1; i <= 300; i++) { b.grow(i << 20); new Uint8Array(b, (i - 1) << 20).fill(1) }",
        "const b = new SharedArrayBuffer(0, { maxByteLength: 1 << 30 }); for (let i = 1; i <= 100; i++) { b.grow(i << 20); new Uint8Array(b, (i - 1) << 20).fill(1) }",
    ),
    allocates(
        "wasm_memory",
        "const m = new WebAssembly.Memory({ initial: 16, maximum: 65536 }); for (let i = 1; i < 300; i++) m.grow(16); new Uint8Array(m.buffer).fill(1)",
        "const m = new WebAssembly.Memory({ initial: 16, maximum: 65536 }); for (let i = 1; i < 100; i++) m.grow(16); new Uint8Array(m.buffer).fill(1)",
    ),
    allocates(
        "shared_wasm_memory",
        "const m = new WebAssembly.Memory({ initial: 4800, maximum: 65536, shared: true }); new Uint8Array(m.buffer).fill(1)",
        "const m = new WebAssembly.Memory({ initial: 1600, maximum: 65536, shared: true }); new Uint8Array(m.buffer).fill(1)",
    ),
    allocates(
        "many_wasm_memories",
        "const k = []; for (let i = 0; i < 300; i++) { const m = new WebAssembly.Memory({ initial: 16 }); new Uint8Array(m.buffer).fill(1); k.push(m) }",
        "const k = []; for (let i = 0; i < 50; i++) { const m = new WebAssembly.Memory({ initial: 16 }); new Uint8Array(m.buffer).fill(1); k.push(m) }",
    ),
    allocates(
        "blobs",
        "const k = []; for (let i = 0; i < 300; i++) k.push(new Blob([new Uint8Array(1 << 20).fill(i)]))",
        "const k = []; for (let i = 0; i < 100; i++) k.push(new Blob([new Uint8Array(1 << 20).fill(i)]))",
    ),
    Hostile(
        "objects", "memory", 'const k: unknown[] = []; for (let i = 0; i < 5e6; i++) k.push({ x: i, y: i + 0.5, z: [i] });\nconsole.log("ESCAPED " + k.length)',
        'const k: unknown[] = []; while (process.memoryUsage().heapUsed < 150 * 1024 * 1024) for (let i = 0; i < 1000; i++) k.push({ x: i, y: [i] });\nconsole.log("control ok")', 15.0,
    ),
    Hostile(
        "strings", "memory", 'const k: string[] = []; for (let i = 0; i < 300; i++) k.push(Buffer.alloc(1 << 20, 97 + (i % 20)).toString("latin1"));\nconsole.log("ESCAPED " + k.length)',
        'const k: string[] = []; for (let i = 0; i < 100; i++) k.push(Buffer.alloc(1 << 20, 97 + (i % 20)).toString("latin1"));\nconsole.log("control ok")', 10.0,
    ),
    Hostile(
        "promises", "memory", 'const k: unknown[] = []; for (let i = 0; i < 2e7; i++) k.push(new Promise((r) => setTimeout(r, 1e6)));\nconsole.log("ESCAPED")',
        'const k: unknown[] = []; for (let i = 0; i < 1e5; i++) k.push(new Promise(() => {}));\nconsole.log("control ok")', 10.0,
    ),
    Hostile(
        "recursion", "memory", 'let n = 0; function f(): number { n++; return f() + 1 }\ntry { f(); console.log("ESCAPED") } catch { console.log(n > 100 ? "held" : "ESCAPED") }',
        'function f(n: number): number { return n === 0 ? 0 : f(n - 1) + 1 }\nif (f(2000) === 2000) console.log("control ok")',
    ),
    Hostile(
        "inflated", "memory",
        """import { gunzipSync, gzipSync } from "node:zlib"; const bomb = gzipSync(Buffer.alloc(50 << 20)); const k: unknown[] = [];
        try { for (let i = 0; i < 6; i++) k.push(gunzipSync(bomb)); console.log("ESCAPED " + k.length) } catch { console.log("held") }""",
        'import { gunzipSync, gzipSync } from "node:zlib";\nif (gunzipSync(gzipSync(Buffer.alloc(10 << 20))).length === 10 << 20) console.log("control ok")', 10.0,
    ),
    Hostile(
        "wasm_code", "memory",
        """const leb = (n: number) => { const o = []; do { let b = n & 127; n >>= 7; if (n) b |= 128; o.push(b) } while (n); return o };
        const body = [0]; for (let i = 0; i < 60000; i++) body.push(0x41, 1, 0x1a); body.push(0x0b);
        const one = [...leb(body.length), ...body]; let all: number[] = [...leb(20)]; for (let i = 0; i < 20; i++) all = all.concat(one);
        const code = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 3, 21, 20, ...Array(20).fill(0), 10, ...leb(all.length), ...all]);
        const kept: unknown[] = []; try { for (let i = 0; i < 400; i++) { code[code.length - 3] = i & 63; kept.push(new WebAssembly.Module(code.slice())) } console.log("ESCAPED") } catch { console.log("held") }""",
        WASM, 10.0,
    ),
]  # fmt: skip

TIME = [
    Hostile("endless_loop", "time", 'console.log("begun"); for (;;);', LOOP, 1.0),
    Hostile("endless_microtasks", "time", "const f = (): Promise<void> => Promise.resolve().then(f); await f()", TIMER, 1.0),
    Hostile("endless_timers", "time", "setInterval(() => {}, 1); await new Promise(() => {})", TIMER, 1.0),
    Hostile("endless_match", "time", '/^(a+)+$/.test("a".repeat(60) + "!"); console.log("ESCAPED")', 'if (/^(a+)+$/.test("aaa")) console.log("control ok")', 1.0),
    Hostile("endless_wait", "time", "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)", TIMER, 1.0),
    Hostile("endless_arithmetic", "time", 'let n = 3n; for (;;) n = n * n; console.log("ESCAPED", n)', 'if (3n ** 100n > 1n) console.log("control ok")', 2.0),
    Hostile("endless_end", "time", 'globalThis.addEventListener("unload", () => { for (;;); }); process.on("exit", () => { for (;;); }); console.log("held")', TIMER, 1.0),
    Hostile("deaf_to_signals", "time", 'try { process.on("SIGTERM", () => {}); process.on("SIGINT", () => {}) } catch {} for (;;);', LOOP, 1.0),
    Hostile("endless_getter", "time", "return { get x() { for (;;); } }", LOOP, 1.0),
    Hostile("endless_thenable", "time", "return { then() { for (;;); } }", LOOP, 1.0),
]  # fmt: skip

CPU = [
    tries(
        "priority", "cpu", LOOP, "(os.setPriority(0, -20), os.getPriority(0) < 0)", "os.setPriority({host_pid}, 19) ?? 'changed the host'", "os.setPriority(1, 19) ?? 'changed the first'",
        before='import os from "node:os";',
    ),
    Hostile(
        "many_threads_of_work", "cpu",
        """const before = process.cpuUsage(), begun = performance.now(); const key = await crypto.subtle.importKey("raw", new Uint8Array(8), "PBKDF2", false, ["deriveBits"]);
        await Promise.all(Array.from({ length: 8 }, () => crypto.subtle.deriveBits({ name: "PBKDF2", hash: "SHA-512", salt: new Uint8Array(8), iterations: 60000 }, key, 256)));
        const { user, system } = process.cpuUsage(before); const share = (user + system) / 1000 / (performance.now() - begun);
        console.log(share > 1.4 ? "ESCAPED " + share : "held")""",
        LOOP, 15.0,
    ),
]  # fmt: skip

DISK = [
    tries(
        "writes_anywhere", "disk", ADD,
        *(f'fs.writeFileSync("{path}", "x".repeat(1000)) ?? "wrote {path}"' for path in ("own", "/tmp/own", "/dev/shm/own", "/var/tmp/own", "/dev/null", "/proc/self/comm", "../own")),
        "fs.mkdtempSync(os.tmpdir() + '/x')", "(globalThis as any).localStorage.setItem('a', 'x'.repeat(1000)) ?? 'stored'", "(globalThis as any).sessionStorage.setItem('a', 'x') ?? 'stored'",
        "await (Deno as any).openKv()", "await (globalThis as any).caches.open('x')", "await (navigator as any).storage.getDirectory()",
        before='import fs from "node:fs"; import os from "node:os";',
    ),
    Hostile(
        "cached_modules", "disk",
        """for (let i = 0; i < 4000; i++) await import("data:application/typescript,export default " + i + "; const x: string = '" + "y".repeat(30000) + "'");
        console.log("held")""",
        DATA_IMPORT, 20.0,
    ),
]  # fmt: skip

OUTPUT = [
    Hostile("flood", "output", 'for (;;) console.log("x".repeat(1000))', PRINTS),
    Hostile("flood_of_errors", "output", 'for (;;) console.error("x".repeat(1000))', PRINTS),
    Hostile("flood_of_short_lines", "output", "for (;;) console.log()", PRINTS, 10.0),
    Hostile("one_line_without_end", "output", 'const b = "x".repeat(1 << 16); for (;;) { process.stdout.write(b); await new Promise((r) => setImmediate(r)) }', PRINTS, 10.0),
    Hostile("flood_of_logs", "output", 'for (let i = 0; i < 3e4; i++) process.stdout.write(String.fromCharCode(0x1e) + JSON.stringify({ log: "info", message: "x" }) + "\\n"); console.log("held")', PRINTS, 10.0),
    Hostile("huge_result", "output", 'console.log("held"); return "x".repeat(5_000_000)', PRINTS),
    Hostile("huge_number_of_values", "output", 'console.log("held"); let it: unknown = 1; for (let i = 0; i < 100; i++) it = [it, it]; return it', PRINTS),
    Hostile(
        "forged_frames", "output",
        """const put = (text: string) => process.stdout.write(text);
        for (const frame of ['{"ready": {}}', '{"reply": 1}', '{"call": "x", "op": 1}', '{"call": {}, "op": "tool", "args": []}', '{"out": "stdout"}', '{"log": []}', 'null', '[', '{"call": 1e999}'])
          put(String.fromCharCode(0x1e) + frame + "\\n");
        for (let i = 0; i < 3000; i++) put(String.fromCharCode(0x1e) + JSON.stringify({ call: i, op: "fs.readFile", args: ["{secret_file}"] }) + "\\n");
        await new Promise((r) => setTimeout(r, 200)); console.log("held")""",
        PRINTS, 10.0,
    ),
    Hostile("half_a_frame", "output", 'process.stdout.write(String.fromCharCode(0x1e) + \'{"result": "\'); for (;;) { process.stdout.write("x".repeat(65536)); await new Promise((r) => setImmediate(r)) }', PRINTS, 10.0),
]  # fmt: skip

SIGNALS = [
    tries(
        "signals_to_others", "signals", OWN_PROCESS,
        *(f'process.kill({target}, {number}) && "sent {number} to {target}"' for target in ("{host_pid}", "1", "-1", "-{host_pid}", "process.ppid || 1") for number in ("0", "'SIGUSR1'", "'SIGTERM'")),
        "(process as any)._kill({host_pid}, 9) === 0", "(process as any)._debugProcess({host_pid}) ?? 'sent'", "(process.getBuiltinModule('node:child_process') as any).spawnSync('kill', ['-9', '{host_pid}']).pid",
    ),
    Hostile("abort", "signals", "process.abort()", OWN_PROCESS),
    Hostile("stop_itself", "signals", 'try { process.kill(process.pid, "SIGSTOP") } catch { console.log("held") }', OWN_PROCESS, 1.0),
    Hostile("kill_its_group", "signals", 'try { process.kill(0, "SIGKILL") } catch { console.log("held") }', OWN_PROCESS),
]  # fmt: skip

PROGRAMS = [*FILES, *ENVIRONMENT, *NETWORK, *PROCESSES, *MEMORY, *TIME, *CPU, *DISK, *OUTPUT, *SIGNALS]
