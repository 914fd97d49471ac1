// Runs untrusted TypeScript and JavaScript inside the jail, one job, then ends. Talks to the host by lines of JSON: see
// `talk.py`. Deno gives this process no permission at all; what the code wants of the world it asks the host for.
//
// The code shares an isolate with this file and may change every built-in object. So whatever is needed after the code has
// begun is taken hold of here first, and used through that: it can fool itself, but not make the runner say what is not so.
// What it could forge is worth nothing: the host takes all that comes out for data.

const { build, cpuUsage, cwd, errors, exit, inspect, memoryUsage, pid, stdin, stdout, version } = Deno;
const { Console, core, inspectArgs } = Deno[Deno.internal];
const { immediateRefCount, kRefed, queueImmediate } = core;
const { bind, call: callOf } = Function.prototype;
const uncurry = bind.bind(callOf); // method -> function whose first argument is `this`

const { parse, stringify } = JSON;
const { assign, create, defineProperty, freeze, getOwnPropertyDescriptor, hasOwn, keys, setPrototypeOf } = Object;
const { isArray } = Array;
const { isFinite: isFiniteNumber } = Number;
const { ownKeys } = Reflect;
const { max } = Math;
const { isError } = Error;
const { isView } = ArrayBuffer;
const RangeErrorOf = RangeError, TypeErrorOf = TypeError, PromiseOf = Promise, ProxyOf = Proxy, SetOf = Set, BytesOf = Uint8Array;
const then = uncurry(Promise.prototype.then);
const toBase64 = uncurry(Uint8Array.prototype.toBase64);
const encode = TextEncoder.prototype.encode.bind(new TextEncoder());
const decode = TextDecoder.prototype.decode.bind(new TextDecoder());
const readStdin = stdin.read.bind(stdin);
const writeStdout = stdout.writeSync.bind(stdout);
const listen = addEventListener.bind(globalThis);
const preventDefault = uncurry(Event.prototype.preventDefault);
const stopImmediatePropagation = uncurry(Event.prototype.stopImmediatePropagation);
const setHas = uncurry(Set.prototype.has);
const setAdd = uncurry(Set.prototype.add);
const setDelete = uncurry(Set.prototype.delete);
const slice = uncurry(String.prototype.slice);
const indexOf = uncurry(String.prototype.indexOf);
const lastIndexOf = uncurry(String.prototype.lastIndexOf);
const startsWith = uncurry(String.prototype.startsWith);
const endsWith = uncurry(String.prototype.endsWith);
const trim = uncurry(String.prototype.trim);
const toWellFormed = uncurry(String.prototype.toWellFormed);
const charCodeAt = uncurry(String.prototype.charCodeAt);
// Kinds that JSON would turn into {} without a word.
const LOST = [[Map, "Map"], [Set, "Set"], [WeakMap, "WeakMap"], [WeakSet, "WeakSet"], [Promise, "Promise"], [Error, "Error"],
  [RegExp, "RegExp"], [ArrayBuffer, "ArrayBuffer"], [SharedArrayBuffer, "SharedArrayBuffer"], [Number, "Number object"],
  [String, "String object"], [Boolean, "Boolean object"]];
const isInstance = uncurry(Function.prototype[Symbol.hasInstance]);

const AT_ONCE = 50; // so many prints are sent as they come; later ones together
const TOGETHER = 8192;
const DEEPEST = 200;
const LONGEST = 4000; // of a message, in characters
const LONGEST_STACK = 2000;
const BODY = "export default async function () { "; // a script is the body of a function, so that it may return
const BODY_END = "\n}";
const TOOL_END = '\nexport const __toolgate = typeof execute === "undefined" ? undefined : execute;';
const GUARD = 'import "data:text/javascript,throw null"; '; // a module that begins with it is compiled and linked, never run

let most = 1048576; // bytes of each stream, of the result, of a question
let ended = false;
let mayEnd = false; // a script may end by exit(0); a tool has to give a result

// ---- writing

function write(text) {
  const bytes = encode(text);
  const length = bytes.length;
  let done = 0;
  try {
    while (done < length) done += writeStdout(done === 0 ? bytes : new BytesOf(bytes.buffer, done));
  } catch {
    exit(1); // nobody listens any more
  }
  return length;
}

function send(frame) {
  setPrototypeOf(frame, null);
  return write(`\x1e${stringify(frame)}\n`);
}

let held = ""; // printed, not sent
let heldFor = "stdout";
let prints = 0;
const sent = { __proto__: null, stdout: 0, stderr: 0 };

function print(stream, text) {
  if (stream !== heldFor) flush();
  heldFor = stream;
  const room = most + TOGETHER - sent[stream] - held.length; // the host ends whoever goes over `most`; beyond that nothing is kept
  if (room > 0) held += text.length > room ? slice(text, 0, room) : text;
  prints += 1;
  if (prints <= AT_ONCE || held.length >= TOGETHER) flush();
}

function flush() {
  if (held === "") return;
  const text = toWellFormed(held);
  held = "";
  sent[heldFor] += send({ out: heldFor, text });
}

function log(level, values) {
  flush();
  send({ log: level, message: cut(inspectArgs(values), LONGEST) });
}

const cut = (text, length) => toWellFormed(text.length > length ? `${slice(text, 0, length)}…` : text);

// ---- values that go out

class NotJson extends TypeError {
  constructor(reason) {
    super(reason);
    defineProperty(this, "where", { __proto__: null, value: "", writable: true }); // the path to it, found on the way back
  }
}

// A copy that JSON text can be made of whatever the code has done to the prototypes. Throws NotJson where a value would be
// lost, changed or too big.
function plain(value) {
  const room = { __proto__: null, left: most };
  try {
    return copy(value, "", new SetOf(), 0, room);
  } catch (thrown) {
    if (thrown instanceof RangeErrorOf) throw new NotJson("the value is nested too deep");
    if (!(thrown instanceof NotJson)) throw thrown;
    throw new NotJson(`the value${thrown.where} ${thrown.message}`);
  }
}

function copy(value, key, above, depth, room) {
  if (value !== null && (typeof value === "object" || typeof value === "function") && typeof value.toJSON === "function") {
    value = value.toJSON(key);
  }
  room.left -= 1;
  switch (typeof value) {
    case "string":
      room.left -= value.length;
      if (room.left < 0) throw tooBig();
      return toWellFormed(value);
    case "number":
      if (!isFiniteNumber(value)) throw new NotJson(`is ${value}, which JSON does not have`);
      return value;
    case "boolean":
      return value;
    case "undefined":
      return null;
    case "object":
      break;
    case "bigint":
      throw new NotJson("is a BigInt, which JSON does not have: make it a number or a string");
    default:
      throw new NotJson(`is a ${typeof value}, which JSON does not have`);
  }
  if (value === null) return null;
  if (room.left < 0) throw tooBig();
  if (depth >= DEEPEST) throw new NotJson(`is nested deeper than ${DEEPEST} levels`);
  if (setHas(above, value)) throw new NotJson("contains itself");
  refuseLost(value);
  setAdd(above, value);
  const made = isArray(value) ? copyArray(value, above, depth + 1, room) : copyObject(value, above, depth + 1, room);
  setDelete(above, value);
  return made;
}

function copyArray(value, above, depth, room) {
  const made = setPrototypeOf([], null); // no prototype, so that setting an item can't be somebody's setter
  const length = value.length;
  if (length > room.left) throw tooBig();
  let i = 0;
  try {
    for (; i < length; i++) made[i] = copy(value[i], i, above, depth, room);
  } catch (thrown) {
    throw on(thrown, `[${i}]`);
  }
  return made;
}

function copyObject(value, above, depth, room) {
  const made = create(null);
  const names = keys(value);
  let i = 0;
  try {
    for (; i < names.length; i++) {
      const inner = value[names[i]];
      if (inner === undefined) continue; // as JSON does
      room.left -= names[i].length;
      made[toWellFormed(names[i])] = copy(inner, names[i], above, depth, room);
    }
  } catch (thrown) {
    throw on(thrown, `.${cut(names[i], 80)}`);
  }
  return made;
}

function on(thrown, step) {
  if (thrown instanceof NotJson && thrown.where.length < 400) thrown.where = step + thrown.where;
  return thrown;
}

function refuseLost(value) {
  if (isView(value)) throw new NotJson("is made of bytes, which JSON does not have: make it a string or an array");
  for (let i = 0; i < LOST.length; i++) {
    if (isInstance(LOST[i][0], value)) {
      throw new NotJson(`is a ${LOST[i][1]}, which JSON does not have${LOST[i][1] === "Promise" ? ": await it" : ""}`);
    }
  }
}

const tooBig = () => new NotJson(`is bigger than ${most} bytes`);

// ---- failures

class ToolError extends Error {
  constructor(code, message) {
    super(message);
    defineProperty(this, "name", { __proto__: null, value: "ToolError", configurable: true });
    defineProperty(this, "code", { __proto__: null, value: code, enumerable: true, configurable: true });
  }
}

let source = null; // the module that the code became: {url, shift: columns before the first line, lines, name}

function text(value, otherwise) {
  return typeof value === "string" ? value : otherwise;
}

// What went wrong, whatever was thrown, even if it resists being looked at.
function failureOf(thrown) {
  try {
    if (!isError(thrown)) return thrownValue(thrown);
    const name = cut(text(thrown.name, "Error"), 200);
    const message = text(thrown.message, "");
    const early = compileFailure(name, message);
    if (early !== null) return early;
    const lost = thrown instanceof NotJson;
    const frames = framesOf(stackOf(thrown));
    return failure(
      lost ? "value" : "raised", lost ? "TypeError" : name, message || `${name} without a message`,
      frames.line, frames.column, frames.text,
    );
  } catch {
    return failure("raised", "Error", "Something was thrown that cannot be looked at.");
  }
}

function failure(kind, name, message, line = null, column = null, stack = "") {
  const advice = indexOf(message, ", run again with the --allow-"); // Deno's, to somebody who could
  if (advice >= 0) message = `${slice(message, 0, advice)}: code in the sandbox has none`;
  return { __proto__: null, kind, name, message: cut(message, LONGEST), line, column, stack };
}

function thrownValue(thrown) {
  const message = typeof thrown === "string" && thrown !== "" ? thrown : `${inspectArgs([thrown])} was thrown, which is no Error`;
  return failure("raised", "NonError", message);
}

function stackOf(thrown) {
  try {
    return text(thrown.stack, ""); // may be the code's own function
  } catch {
    return "";
  }
}

// Faults that were found before the code was run carry its address in their message: "…message at data:…:2:9".
function compileFailure(name, message) {
  if (source === null) return null;
  const at = lastIndexOf(message, `at ${source.url}:`);
  if (at < 0) return null;
  const place = placeIn(message, at + 3);
  let words = trim(slice(message, 0, at));
  let kind = name === "SyntaxError" ? "syntax" : "raised";
  if (startsWith(words, "SyntaxError: ")) {
    kind = "syntax";
    words = slice(words, 13);
  }
  const end = indexOf(words, "\n"); // what follows is an excerpt of the code
  if (end >= 0) words = slice(words, 0, end);
  return failure(kind, kind === "syntax" ? "SyntaxError" : name, words, place?.line ?? null, place?.column ?? null);
}

// Only the code's own lines of a stack: "    at f (data:…:3:22)".
function framesOf(stack) {
  const found = { __proto__: null, line: null, column: null, text: "" };
  if (source === null) return found;
  let from = 0;
  while (from < stack.length && found.text.length < LONGEST_STACK) {
    let end = indexOf(stack, "\n", from);
    if (end < 0) end = stack.length;
    const line = slice(stack, from, end);
    from = end + 1;
    const at = indexOf(line, source.head);
    if (at < 0 || !startsWith(trim(line), "at ")) continue;
    const place = placeIn(line, at);
    if (place === null) continue;
    if (found.line === null) {
      found.line = place.line;
      found.column = place.column;
    }
    let who = trim(slice(line, 0, at));
    if (endsWith(who, "(")) who = slice(who, 0, -1);
    found.text += `${who === "at" || who === "at default " ? "at " : who}${source.name}:${place.line}:${place.column}\n`;
  }
  found.text = cut(found.text, LONGEST_STACK);
  return found;
}

// The line and column at the end of an address, in the code as it was given.
function placeIn(where, from) {
  let end = indexOf(where, "\n", from);
  if (end < 0) end = where.length;
  if (charCodeAt(where, end - 1) === 41) end -= 1; // ")"
  const second = lastIndexOf(where, ":", end);
  const first = lastIndexOf(where, ":", second - 1);
  let line = +slice(where, first + 1, second);
  let column = +slice(where, second + 1, end);
  if (first < from || !(line > 0) || !(column > 0)) return null;
  if (line === 1) column = max(1, column - source.shift);
  if (line > source.lines) { // in what the runner put behind the code: it ends too early
    line = source.lines;
    column = source.width + 1;
  }
  return { __proto__: null, line, column };
}

// ---- the end

function finish(frame) {
  if (ended) return;
  ended = true;
  flush();
  send(frame);
  exit(0);
}

const fail = (thrown) => finish({ failure: failureOf(thrown) });

function succeed(value) {
  try {
    const made = plain(value);
    if (encode(stringify(made)).length > most) throw new NotJson(`the value is bigger than ${most} bytes`);
    finish({ result: made });
  } catch (thrown) {
    fail(thrown);
  }
}

listen("unhandledrejection", (event) => {
  preventDefault(event);
  stopImmediatePropagation(event);
  fail(event.reason);
});
listen("error", (event) => {
  preventDefault(event);
  stopImmediatePropagation(event);
  fail(event.error);
});

let due = null; // what is to be done with what the code gave
let settled = false; // the code is through and gave nothing back: what it started may still go on

listen("beforeunload", (event) => { // nothing is left that could ever happen
  stopImmediatePropagation(event);
  if (due !== null) due();
  if (settled) return finish({ result: null });
  finish({ failure: failure("raised", "Error", "The code waits for something that can never happen.") });
});
listen("unload", (event) => {
  stopImmediatePropagation(event);
  endedItself();
});

function endedItself(code) {
  if (mayEnd && (code === undefined || code === 0)) finish({ result: null });
  finish({ failure: failure("raised", "Exit", `The code ended itself (exit code ${+code || 0}) instead of giving a result.`) });
}

// ---- questions to the host

let asked = 0;
let open = 0;
const waiting = create(null);

function ask(op, args) {
  return new PromiseOf((resolve, reject) => {
    const made = plain(args); // the code is told here if it can't be sent
    asked += 1;
    open += 1;
    waiting[asked] = { __proto__: null, resolve, reject };
    flush();
    send({ call: asked, op, args: made });
    listenToHost();
  });
}

function answered(message) {
  const number = message.reply;
  const waiter = waiting[number];
  if (waiter === undefined) return;
  delete waiting[number];
  open -= 1;
  if (hasOwn(message, "error")) waiter.reject(new ToolError(message.error.code, message.error.message));
  else waiter.resolve(message.value);
}

// The host is read only while something is asked of it: otherwise Deno would never find that nothing is left to do.
const buffer = new BytesOf(65536);
const STREAMED = { __proto__: null, stream: true };
let unread = "";
let reading = false;
let heed = begin; // what is done with the next line

function listenToHost() {
  if (reading || (open === 0 && heed === answered)) return;
  reading = true;
  onward(readStdin(buffer), (count) => {
    reading = false;
    if (count === null) exit(1); // the host is gone
    unread += decode(new BytesOf(buffer.buffer, 0, count), STREAMED);
    let end;
    while ((end = indexOf(unread, "\n")) >= 0) {
      const line = slice(unread, 0, end);
      unread = slice(unread, end + 1);
      heed(parse(line));
    }
    listenToHost();
  }, fail);
}

// `promise.then` that no change to Promise.prototype gets in the way of.
function onward(promise, resolved, rejected) {
  defineProperty(promise, "constructor", { __proto__: null, value: undefined });
  then(promise, resolved, rejected);
}

// ---- what the code is given

function toolsFor(names) {
  const known = new SetOf();
  for (let i = 0; i < names.length; i++) setAdd(known, names[i]);
  const callTool = (name, args) => ask("tool", [name, args === undefined ? {} : args]);
  const made = create(null);
  return new ProxyOf(made, {
    __proto__: null,
    get(_target, name) {
      if (name === "call") return callTool;
      // A promise is known by its `then`: there is none here unless a tool is called so.
      if (typeof name !== "string" || (name === "then" && !setHas(known, name))) return undefined;
      return (args) => callTool(name, args);
    },
    has: (_target, name) => setHas(known, name),
    ownKeys: () => names,
    getOwnPropertyDescriptor: (_target, name) =>
      setHas(known, name)
        ? { value: (args) => callTool(name, args), enumerable: true, configurable: true, writable: true }
        : undefined,
    set: () => false,
    defineProperty: () => false,
    deleteProperty: () => false,
  });
}

function contextFor(given) {
  const asks = (op) => (...args) => ask(op, args);
  const readdir = asks("fs.readdir");
  const check = asks("permissions.check");
  const context = {
    config: given.config ?? {},
    conversation: given.conversation ?? undefined,
    platform: {
      fs: {
        readFile: asks("fs.readFile"), writeFile: asks("fs.writeFile"), exists: asks("fs.exists"), readdir,
        listDirectory: readdir, stat: asks("fs.stat"), mkdir: asks("fs.mkdir"),
      },
      executor: { execute: asks("executor.execute") },
    },
    permissions: { check, checkPermission: check },
    checkPermission: check,
    logger: {
      debug: (...values) => log("debug", values), info: (...values) => log("info", values),
      warn: (...values) => log("warn", values), error: (...values) => log("error", values),
    },
  };
  if (given.docker) context.platform.docker = { run: asks("docker.run") };
  if (given.llm) context.llm = { complete: asks("llm.complete") };
  return context;
}

function give(name, value) {
  defineProperty(globalThis, name, { __proto__: null, value, writable: true, configurable: true, enumerable: false });
}

// What plain JavaScript of Node's kind expects; built-in modules only.
function giveNodeNames() {
  const module = { exports: {} };
  give("module", module);
  give("exports", module.exports);
  give("require", (name) => {
    const found = process.getBuiltinModule(name);
    if (found === undefined) throw new TypeErrorOf(`There is no module ${name} here: only Node's own modules can be required.`);
    return found;
  });
  return module;
}

// ---- running

const PLAIN = "data:text/javascript;base64,";
const TYPED = "data:application/typescript;base64,";

// The code as a module; remembers where it is, for messages.
function address(job, before, after) {
  const { code } = job;
  const last = lastIndexOf(code, "\n");
  let lines = 1;
  for (let at = indexOf(code, "\n"); at >= 0; at = indexOf(code, "\n", at + 1)) lines += 1;
  const scheme = job.language === "typescript" ? TYPED : PLAIN;
  const url = scheme + toBase64(encode(before + code + after));
  // A long address is shortened in stacks: its first part tells it well enough from others.
  source = { __proto__: null, url, head: slice(url, 0, scheme.length + 16), shift: before.length, lines, width: code.length - last - 1, name: job.name };
  return url;
}

function laterOf(first, second) {
  if ((first.line ?? 0) !== (second.line ?? 0)) return (first.line ?? 0) > (second.line ?? 0) ? first : second;
  return (first.column ?? 0) > (second.column ?? 0) ? first : second;
}

// Import the code in the first of its possible forms that compiles, then go on with the module's namespace.
function load(job, forms, at, loaded, earlier) {
  onward(import(address(job, forms[at][0], forms[at][1])), loaded, (thrown) => {
    let fault = failureOf(thrown);
    if (fault.kind === "syntax" && earlier) fault = laterOf(earlier, fault); // the form that was meant is the one that got further
    if (fault.kind === "syntax" && at + 1 < forms.length) load(job, forms, at + 1, loaded, fault);
    else finish({ failure: fault });
  });
}

function runTool(job) {
  const module = job.language === "javascript" ? giveNodeNames() : null;
  load(job, [["", TOOL_END]], 0, (space) => {
    const execute = executeOf(space, module);
    if (execute === undefined) return finish({ failure: missing() });
    outcome(() => execute(job.arguments, contextFor(job.context)), succeed);
  });
}

function missing() {
  return failure("missing", "Error", "The code has no function `execute(args, context)`: export one.");
}

function executeOf(space, module) {
  const places = [space.execute, space.__toolgate, space.default, space.default?.execute, module?.exports?.execute, module?.exports];
  for (let i = 0; i < places.length; i++) if (typeof places[i] === "function") return places[i];
  return undefined;
}

const SCRIPT_FORMS = [[BODY, BODY_END], ["", ""]];

function runScript(job) {
  mayEnd = true;
  give("args", job.arguments);
  give("ToolError", ToolError);
  if (job.mode === "program") give("tools", toolsFor(job.tools ?? []));
  if (job.language === "javascript") giveNodeNames();
  load(job, SCRIPT_FORMS, 0, (space) => {
    const value = space.default;
    outcome(() => (typeof value === "function" ? value() : value), (given) => {
      if (given !== undefined) return succeed(given);
      settled = true; // like any script it is done when nothing is left to do
    });
  });
}

// Later, when all that is due now has been done. This is what setImmediate does, without the 30 ms that it takes to load.
function nextTurn(resume) {
  due = resume;
  immediateRefCount(true);
  queueImmediate({
    __proto__: null, _idleNext: null, _idlePrev: null, _onImmediate: resume, _argv: undefined, _destroyed: false, [kRefed]: true,
  });
}

// What a function gives in the end. One turn later: a rejection that nobody handled must not be lost to a result.
function outcome(run, done) {
  let value;
  try {
    value = run();
  } catch (thrown) {
    return fail(thrown);
  }
  onward(new PromiseOf((resolve) => resolve(value)), (given) => nextTurn(() => done(given)), fail);
}

// ---- compiling only

const TOOL_CHECK = [[GUARD, ""]];
const SCRIPT_CHECK = [[GUARD + BODY, BODY_END], [GUARD, ""]];

function runCheck(job) {
  const forms = job.wants_execute ? TOOL_CHECK : SCRIPT_CHECK;
  tryCompile(job, forms, 0, null, () => (job.wants_execute ? checkExecute(job) : strip(job)), (fault) => finish({ failure: fault }));
}

// Every form begins with GUARD. It is all that is run of the module, and its null says that the rest was found good.
function tryCompile(job, forms, at, earlier, passed, failed) {
  const refused = (thrown) => {
    if (thrown === null) return passed();
    let fault = failureOf(thrown);
    if (earlier) fault = laterOf(earlier, fault);
    if (at + 1 < forms.length) tryCompile(job, forms, at + 1, fault, passed, failed);
    else failed(fault);
  };
  onward(import(address(job, forms[at][0], forms[at][1])), passed, refused);
}

function checkExecute(job) {
  const found = () => strip(job);
  const otherwise = () => { // exported under that name, or as the default, or in Node's way
    const url = address(job, GUARD, "");
    const links = (wanted, not) => {
      const asking = PLAIN + toBase64(encode(`${GUARD}import ${wanted} from "${url}";`));
      onward(import(asking), found, (thrown) => (thrown === null ? found() : not()));
    };
    const isNode = job.language === "javascript" && indexOf(job.code, "exports") >= 0;
    links("{ execute }", () => links("only", isNode ? found : () => finish({ failure: missing() })));
  };
  tryCompile(job, [[GUARD, "\nexport { execute as __toolgate };"]], 0, null, found, otherwise);
}

// The same code without its types, every line and column as it was; null if that can't be had by blanking alone.
function strip(job) {
  if (job.language !== "typescript") return finish({ result: true });
  onward(import("node:module"), ({ default: { stripTypeScriptTypes } }) => {
    let compiled;
    try {
      compiled = stripTypeScriptTypes(job.code);
    } catch {
      return finish({ result: true });
    }
    // An import that was only a type's is left in by blanking: then the code stays as it is.
    const forms = job.wants_execute ? TOOL_CHECK : SCRIPT_CHECK;
    const done = () => finish({ result: true, compiled });
    tryCompile({ code: compiled, language: "javascript", name: job.name }, forms, 0, null, done, () => finish({ result: true }));
  }, fail);
}

// ---- beginning

function begin(message) {
  heed = answered;
  const job = message.run;
  most = job.output ?? most;
  if (typeof job.compiled === "string") {
    job.code = job.compiled;
    job.language = "javascript";
  }
  if (job.mode === "tool") runTool(job);
  else if (job.mode === "check") runCheck(job);
  else runScript(job);
}

// Everything that gives more of this process than a program needs. What is left of the kind (node:fs, fetch …) asks Deno for
// a permission, and there is none.
function takeAway() {
  const names = ["Deno", "Worker", "BroadcastChannel", "localStorage", "sessionStorage", "caches", "alert", "confirm", "prompt", "close",
    "OffscreenCanvas"];
  for (let i = 0; i < names.length; i++) delete globalThis[names[i]];
  const globals = ownKeys(globalThis);
  for (let i = 0; i < globals.length; i++) {
    if (typeof globals[i] === "string" && startsWith(globals[i], "GPU")) delete globalThis[globals[i]];
  }
  delete Navigator.prototype.gpu; // drivers are a great deal of code, and ask for no permission
  give("Deno", harmlessDeno());
  const ours = new Console((line, level) => print(level > 1 ? "stderr" : "stdout", line));
  const all = ownKeys(ours);
  for (let i = 0; i < all.length; i++) {
    const described = getOwnPropertyDescriptor(ours, all[i]);
    if (typeof all[i] === "string" && described.writable !== false) console[all[i]] = ours[all[i]];
  }
}

// Node's modules, as Deno has them, look for a few things in `Deno`. These are they, with an environment that is empty.
function harmlessDeno() {
  const variables = create(null);
  const env = {
    get: (name) => variables[name],
    set: (name, value) => { variables[name] = `${value}`; },
    has: (name) => hasOwn(variables, name),
    delete: (name) => { delete variables[name]; },
    toObject: () => assign({}, variables),
  };
  return freeze({
    build: freeze(assign({}, build)), version: freeze(assign({}, version)), errors: freeze(assign({}, errors)),
    env: freeze(env), inspect, cpuUsage, memoryUsage, args: freeze([]),
    noColor: true, cwd, pid, ppid: 0, execPath: () => "deno", exit: endedItself,
  });
}

// Timers, `process` and `Buffer` are Node's, which Deno loads when they are first named: 30 ms. A worker that waits for its
// job has the time; one that is wanted at once does not.
function loadNode() {
  const idle = Atomics.waitAsync(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20);
  onward(idle.value, () => {
    if (heed === begin) return [process.version, Buffer.name, setTimeout.name];
  });
}

takeAway();
// Whatever is done for the first time takes longer than it does again: a rehearsal, of which nothing is kept.
await import("data:text/javascript,export default 1");
const rehearsed = await import(address({ code: "return 1 as number", language: "typescript", name: "" }, BODY, BODY_END));
await new PromiseOf((resolve) => outcome(rehearsed.default, resolve));
plain({ list: [1, "two", null] });
source = null;
due = null;
send({ ready: { deno: version.deno, v8: version.v8, typescript: version.typescript } });
listenToHost();
loadNode();
