"""A server on bare pipes: `python -I -S server.py [HOW]`. HOW it starts or lives badly; tools that do one bad thing each.

It needs nothing but the standard library, so that it starts at once in any jail.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

HOW = sys.argv[1] if len(sys.argv) > 1 else "well"
VERSION = "2025-11-25"
LOCK = threading.Lock()
CALLED: list[str] = []
CANCELLED: list[Any] = []
SUBSCRIBED: list[str] = []
ANSWERS: dict[Any, threading.Event] = {}
STATE: dict[str, Any] = {"tools": ["echo", "die", "never", "slow"], "answer": None, "last": None, "level": None}


def say(message: Any) -> None:
    """On a line of its own; bytes as they are."""
    data = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
    with LOCK:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(1, rest) :]


def result(id: Any, value: Any) -> dict[str, Any]:
    """An answer."""
    return {"jsonrpc": "2.0", "id": id, "result": value}


def text(id: Any, words: str) -> dict[str, Any]:
    """The answer of a tool."""
    return result(id, {"content": [{"type": "text", "text": words}]})


def error(id: Any, code: int, message: str) -> dict[str, Any]:
    """A protocol error."""
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}


def notice(method: str, **params: Any) -> dict[str, Any]:
    """A notification."""
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


# -- tools: each gives what it has to say


Said = Iterable[Any]


def die(_: Any, arguments: dict[str, Any], __: Any) -> Said:
    """Ends in the middle of a call."""
    os.write(2, b"the disk is on fire\n")
    os._exit(int(arguments.get("code", 3)))


def slow(id: Any, arguments: dict[str, Any], _: Any) -> Said:
    """Answers late, while others are answered."""

    def later() -> None:
        time.sleep(arguments.get("seconds", 0))
        say(text(id, str(arguments.get("say", "late"))))

    threading.Thread(target=later, daemon=True).start()
    return ()


def busy(id: Any, arguments: dict[str, Any], _: Any) -> Said:
    """Answers late, and nobody else meanwhile, as servers do that have one thread."""
    time.sleep(arguments["seconds"])
    return [text(id, "done")]


def change(id: Any, arguments: dict[str, Any], _: Any) -> Said:
    """Other tools than before, said in the middle of the call."""
    STATE["tools"] = list(arguments["tools"])
    return [*(notice("tools/list_changed") for _ in range(int(arguments.get("times", 1)))), text(id, "changed")]


def steps(id: Any, arguments: dict[str, Any], meta: dict[str, Any]) -> Said:
    """Says how far it has got; also of calls that there are not."""
    token = meta.get("progressToken")
    for number in range(int(arguments["steps"])):
        yield notice("progress", progressToken=token, progress=number, total=10, message="on")
        yield notice("progress", progressToken=4711, progress=99)
        yield notice("progress", progressToken=token, progress="not a number")
    yield text(id, "there")


def logs(id: Any, arguments: dict[str, Any], _: Any) -> Said:
    """Says things, of which one has no level that there is."""
    for level in ("debug", "warning", "nonsense"):
        yield notice("message", level=level, logger="bad", data={"level": level, "who": arguments.get("who")})
    yield text(id, "logged")


def ask(id: Any, arguments: dict[str, Any], _: Any) -> Said:
    """Asks back, and tells what it was answered."""
    number = f"q{id}"
    ANSWERS[number] = threading.Event()

    def later() -> None:
        ANSWERS[number].wait(20)
        say(text(id, json.dumps(STATE["answer"])))

    threading.Thread(target=later, daemon=True).start()
    return [{"jsonrpc": "2.0", "id": number, "method": arguments["method"], "params": arguments.get("params", {})}]


def spawn(id: Any, _: Any, __: Any) -> Said:
    """Starts processes that mean to outlive it: with and without a parent, in its session and in one of their own."""
    for own_session in (False, True):
        if os.fork() == 0:
            if own_session:
                os.setsid()
            if os.fork() and own_session:
                os._exit(0)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.closerange(0, 3)
            time.sleep(600)
            os._exit(0)
    time.sleep(0.2)
    return [text(id, "spawned")]


def pester(id: Any, arguments: dict[str, Any], _: Any) -> Said:
    """Asks very often, and does not wait for answers."""
    for number in range(int(arguments["times"])):
        yield {"jsonrpc": "2.0", "id": f"p{number}", "method": "elicitation/create", "params": {"message": "well?"}}
    yield from slow(id, {"seconds": 0.3, "say": "pestered"}, None)


def flood(id: Any, arguments: dict[str, Any], _: Any) -> Said:
    """The same again and again, as fast as it is read, while others are answered."""
    line = arguments["line"].encode() + b"\n"
    say(text(id, "flooding"))

    def on() -> None:
        end = time.monotonic() + arguments["seconds"]
        while time.monotonic() < end:
            say(line * (65_536 // len(line) + 1))

    threading.Thread(target=on, daemon=True).start()
    return ()


def late(id: Any, arguments: dict[str, Any], _: Any) -> Said:
    """Goes on after it was told to stop, and asks about it then."""

    def on() -> None:
        while id not in CANCELLED:
            time.sleep(0.01)
        say({"jsonrpc": "2.0", "id": f"late{id}", "method": "elicitation/create", "params": {"message": arguments["words"]}})
        say(notice("message", level="error", data=arguments["words"]))
        if arguments.get("answers"):
            say(text(id, "late"))
        STATE["late"] = True

    threading.Thread(target=on, daemon=True).start()
    return ()


def close_output(*_: Any) -> Said:
    """Lives on, and can't say so."""
    os.close(1)
    return ()


def replay(id: Any, _: Any, __: Any) -> Said:
    """Answers the last call again, and this one twice."""
    last, STATE["last"] = STATE["last"], id
    return [text(last, "replayed"), text(id, "first"), text(id, "second")]


def stderr(id: Any, arguments: dict[str, Any], _: Any) -> Said:
    """Much noise."""
    os.write(2, b"noise\n" * int(arguments["lines"]))
    return [text(id, "quiet")]


TOOLS: dict[str, Callable[[Any, dict[str, Any], dict[str, Any]], Said]] = {
    "echo": lambda id, arguments, _: [text(id, str(arguments.get("say")))],
    "pid": lambda id, *_: [text(id, str(os.getpid()))],
    "environment": lambda id, *_: [text(id, json.dumps(dict(os.environ)))],
    "called": lambda id, *_: [text(id, json.dumps(CALLED))],
    "cancelled": lambda id, *_: [text(id, json.dumps(CANCELLED))],
    "subscribed": lambda id, *_: [text(id, json.dumps(SUBSCRIBED))],
    "level": lambda id, *_: [text(id, str(STATE["level"]))],
    "touch": lambda id, arguments, _: [notice("resources/updated", uri=arguments["uri"]), text(id, "touched")],
    "huge": lambda id, arguments, _: [text(id, "x" * int(arguments["bytes"]))],
    "endless": lambda _, arguments, __: [b"x" * int(arguments["bytes"])],
    "garbage": lambda id, *_: [b'{"id": %d, "resu\n\xff\xfe{[\nnull\n17\n[]\n' % id, text(id, "at last")],
    "wrong_id": lambda id, *_: [text(999_999, "not yours"), text(None, "no"), text([id], "a list"), text(id, "yours")],
    "text_id": lambda id, *_: [text(str(id), "as text")],
    "no_content": lambda id, *_: [result(id, {"text": "just so"})],
    "only_structured": lambda id, *_: [result(id, {"structuredContent": {"n": 1}})],
    "odd_content": lambda id, *_: [result(id, {"content": [{"type": "hologram", "data": 1}], "extra": True})],
    "no_object": lambda id, *_: [result(id, "just text")],
    "odd_error": lambda id, *_: [{"jsonrpc": "2.0", "id": id, "error": {"code": "E_BAD", "reason": "no message"}}],
    "error": lambda id, *_: [error(id, -32602, "not like this\x1b[31m")],
    "several": lambda id, *_: [[notice("tools/list_changed"), result(id, {"content": []})]],
    "never": lambda *_: (),
    "line": lambda id, arguments, _: [arguments["line"].replace("ID", str(id)).encode() + b"\n"],
    "is_late": lambda id, *_: [text(id, str(STATE.get("late", False)))],
    "dies_of": lambda _, arguments, __: [os.write(2, arguments["words"].encode() + b"\n"), os._exit(1)],
    "die": die, "slow": slow, "busy": busy, "change": change, "steps": steps, "logs": logs, "ask": ask, "spawn": spawn,
    "replay": replay, "stderr": stderr, "pester": pester, "close_output": close_output, "flood": flood, "late": late,
}  # fmt: skip


# -- the protocol


def tools(id: Any, params: dict[str, Any]) -> Said:
    """Its tools, in the way that it was told to list them."""
    first = int(params.get("cursor", 0)) if HOW == "pages" else 0
    names = {
        "pages": [f"tool_{number}" for number in range(first, first + 100)],
        "many": [f"tool_{number}" for number in range(12_000)],
    }.get(HOW, STATE["tools"])
    listed: Any = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    more = {"pages": str(first + 100) if first < 900 else None, "endless pages": "again"}.get(HOW)
    return [result(id, {"tools": "echo" if HOW == "no list" else listed, **({"nextCursor": more} if more else {})})]


def initialize(id: Any, _: Any) -> Said:
    """In the way that it was told."""
    if HOW == "hangs":
        os.write(2, b"waiting for Godot\n")
        return
    if HOW == "refuses":
        yield error(id, -32603, "no licence")
        return
    about: dict[str, Any] = {
        "protocolVersion": "1999-12-31" if HOW == "old" else VERSION,
        "capabilities": {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}},
        "serverInfo": {"name": "bad", "version": "1"},
    }
    if HOW == "sloppy":  # what the SDK would not let pass
        about |= {"capabilities": {"tools": True, "x": None}, "serverInfo": "bad", "instructions": 7}
    yield result(id, about)
    if HOW == "short":
        time.sleep(0.05)
        os._exit(4)


def discover(id: Any, _: Any) -> Said:
    """It does not speak the new protocol."""
    if HOW == "dies on discover":
        os._exit(9)
    return () if HOW == "deaf to discover" else [error(id, -32601, "Method not found")]


def call(id: Any, params: dict[str, Any]) -> Said:
    """One of its tools."""
    CALLED.append(params["name"])
    return TOOLS[params["name"]](id, params.get("arguments") or {}, params.get("_meta") or {})


def subscribe(id: Any, params: dict[str, Any]) -> Said:
    """Noted."""
    SUBSCRIBED.append(params["uri"])
    return [result(id, {})]


def unsubscribe(id: Any, params: dict[str, Any]) -> Said:
    """Noted."""
    SUBSCRIBED.remove(params["uri"])
    return [result(id, {})]


def set_level(id: Any, params: dict[str, Any]) -> Said:
    """Noted."""
    STATE["level"] = params["level"]
    return [result(id, {})]


def cancelled(_: Any, params: dict[str, Any]) -> Said:
    """Noted."""
    CANCELLED.append(params.get("requestId"))
    return ()


METHODS: dict[str, Callable[[Any, dict[str, Any]], Said]] = {
    "initialize": initialize,
    "server/discover": discover,
    "ping": lambda id, _: () if HOW == "silent" else [result(id, {})],
    "tools/list": tools,
    "tools/call": call,
    "resources/subscribe": subscribe,
    "resources/unsubscribe": unsubscribe,
    "logging/setLevel": set_level,
    "notifications/cancelled": cancelled,
    "notifications/initialized": lambda *_: (),
}


def take(message: dict[str, Any]) -> None:
    """One message."""
    id, method = message.get("id"), message.get("method")
    if method is None:
        STATE["answer"] = message.get("result", message.get("error"))
        if id in ANSWERS:
            ANSWERS[id].set()
    elif method in METHODS:
        for one in METHODS[method](id, message.get("params") or {}):
            say(one)
    else:
        say(error(id, -32601, "Method not found"))


def begin() -> None:
    """In the way that it was told."""
    if HOW == "exits":
        sys.exit("no such database")
    if HOW == "tells":
        sys.exit(f"can't log in with {os.environ['KEY']}")
    if HOW == "banner":
        say(b"Welcome to the server!\n\n*** starting ***\n{}\n")
    if HOW == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if HOW == "noisy":
        threading.Thread(target=lambda: [os.write(2, b"noise " * 10_000) for _ in iter(int, 1)], daemon=True).start()
    if HOW == "does not read":
        time.sleep(600)
    while HOW == "rubbish":
        say(b"all work and no play makes a dull server\n" * 1_000)


def main() -> None:
    """Until its input ends."""
    begin()
    buffer = b""
    while piece := os.read(0, 65_536):
        *lines, buffer = (buffer + piece).split(b"\n")
        for line in lines:
            take(json.loads(line))
    if HOW == "stubborn":
        time.sleep(600)


if __name__ == "__main__":
    main()
