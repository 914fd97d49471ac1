"""MCP over stdin and stdout: one client, which started this process.

The two streams are reserved for the protocol: what a tool or its programs print goes to stderr, and they read nothing. Input
is bounded and may be anything; an invalid message is answered with a protocol error, where the SDK would keep silent. When
the client closes its end, running calls are still answered.
"""

import asyncio
import os
import queue
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from toolgate.mcp.server.envelope import INVALID_REQUEST, EnvelopeFault, find_envelope_fault
from toolgate.mcp.server.gateway import Gateway
from toolgate.mcp.server.identity import Credential
from toolgate.model import Actor, new_id
from toolgate.pipeline.hooks import caller_is_cancelled

if TYPE_CHECKING:
    from toolgate.app.app import App

READ_BYTES = 65_536
LISTEN_METHOD = "subscriptions/listen"
"""The request that is not answered until its client is gone."""


class StdioDescriptors(NamedTuple):
    incoming: int
    outgoing: int


@contextmanager
def claim_stdio() -> Iterator[StdioDescriptors]:
    """Takes stdin and stdout: others who read them meanwhile get nothing, and what they write goes to stderr."""
    ends = StdioDescriptors(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):  # what is printed would else be kept back, and come out as the protocol's
            yield ends
    finally:
        sys.stdout.flush()
        os.dup2(ends.incoming, 0)
        os.dup2(ends.outgoing, 1)


async def serve(
    app: "App",
    actor: Actor,
    ends: StdioDescriptors,
    workspace: Path | None = None,
    session: str | None = None,
    *,
    may_speak: bool = False,
) -> None:
    """Serves one client until it closes its end. Its user is the one at this machine, and may approve. `workspace`: the
    folder that all of its calls work in. `session`: the name of its session; without it, one of its own. `may_speak`: it may
    pass on what its user typed."""
    credential = Credential("stdio", actor, may_approve=True, may_speak=may_speak)

    async def recall(id: str) -> Credential | None:
        return credential if id == credential.id else None

    session = session or f"mcp-{new_id()}"
    gateway = Gateway(app, lambda _ctx: credential, recall=recall, session=session, workspace=workspace)
    async with gateway as server:
        to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](0)
        pipe = StdioPipe(ends, app.settings.serve.body_bytes, app.settings.shutdown_seconds)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(pipe.read(to_server))
            writing = tasks.create_task(pipe.write(from_server))
            try:
                await server.run(incoming, outgoing, server.create_initialization_options())
            except BaseExceptionGroup as broken:
                if caller_is_cancelled() and broken.split(anyio.BrokenResourceError)[1] is None:
                    raise asyncio.CancelledError from None  # the SDK relayed into its closed stream
                raise
            reading.cancel()
            await writing


class StdioPipe:
    def __init__(self, ends: StdioDescriptors, longest: int, patience: float) -> None:
        self._ends = ends
        self._longest = longest
        self._patience = patience
        self._unanswered: set[types.RequestId] = set()
        self._answered = asyncio.Event()
        self._writer = StdoutWriter(ends.outgoing)

    async def read(self, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        async with to_server:
            with suppress(OSError):  # of what is answered here: nobody reads any more
                async for line in lines(self._ends.incoming, self._longest):
                    message = await self._understood(line)
                    if message is not None:
                        self._count(message)
                        await to_server.send(SessionMessage(message))
            await self._let_answers_out()

    def _count(self, message: types.JSONRPCMessage) -> None:
        """Tracks which requests wait for a response. A cancelled one gets none."""
        if isinstance(message, types.JSONRPCRequest) and message.method != LISTEN_METHOD:
            self._unanswered.add(message.id)
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            given_up = (message.params or {}).get("requestId")
            if isinstance(given_up, str | int):
                self._unanswered.discard(given_up)

    async def _let_answers_out(self) -> None:
        try:
            async with asyncio.timeout(self._patience):
                while self._unanswered:
                    self._answered.clear()
                    await self._answered.wait()
        except TimeoutError:
            return

    async def write(self, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        try:
            async with from_server:
                async for sent in from_server:
                    message = sent.message
                    await self._writer.write(message.model_dump_json(by_alias=True, exclude_unset=True).encode())
                    if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and message.id is not None:
                        self._unanswered.discard(message.id)
                        self._answered.set()
        except OSError:
            return  # nobody reads any more; the other end of stdin is closed as well, or soon will be

    async def _understood(self, line: bytes | None) -> types.JSONRPCMessage | None:
        """Parses the message on a line. An invalid one is answered here."""
        if line is None:
            fault = EnvelopeFault(INVALID_REQUEST, f"The message is longer than {self._longest:,} bytes")
        elif not line.strip():
            return None
        elif (found := find_envelope_fault(line)) is not None:
            fault = found
        else:
            try:
                return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValidationError:
                fault = EnvelopeFault(INVALID_REQUEST, "Invalid Request")
        await self._writer.write(fault.body())
        return None


async def lines(descriptor: int, longest: int) -> AsyncIterator[bytes | None]:
    """The lines of a stream, None for one that is too long. Read in a thread, because stdin can be anything."""
    chunks: asyncio.Queue[bytes] = asyncio.Queue(4)
    _in_background(descriptor, chunks)
    held, skipping = bytearray(), False
    while chunk := await chunks.get():
        first, *rest = chunk.split(b"\n")
        for index, piece in enumerate([first, *rest]):
            if index:  # a line has ended
                yield None if skipping else bytes(held)
                held.clear()
                skipping = False
            if not skipping:
                held += piece
                skipping = len(held) > longest
            if skipping:
                held.clear()
    if held or skipping:
        yield None if skipping else bytes(held)


def _in_background(descriptor: int, chunks: "asyncio.Queue[bytes]") -> None:
    """Reads in a daemon thread. An empty chunk is the end."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        chunk = b"."
        while chunk:
            try:
                chunk = os.read(descriptor, READ_BYTES)
            except OSError:
                chunk = b""
            try:
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            except (RuntimeError, asyncio.CancelledError):  # the loop has ended: nobody wants it any more
                return

    threading.Thread(target=read, name="toolgate-stdin", daemon=True).start()


class StdoutWriter:
    """Writes lines in a thread: a client that does not read blocks nobody but itself, not even the exit."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._waiting: queue.SimpleQueue[tuple[bytes, Callable[[OSError | None], None]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="toolgate-stdout", daemon=True).start()

    async def write(self, line: bytes) -> None:
        """Writes a line; it is out when this returns. Raises OSError when nobody can read it any more."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[OSError | None] = loop.create_future()

        def settle(error: OSError | None) -> None:
            if not done.done():
                done.set_result(error)

        def tell(error: OSError | None) -> None:
            with suppress(RuntimeError):  # the loop has ended: nobody waits any more
                loop.call_soon_threadsafe(settle, error)

        self._waiting.put((line + b"\n", tell))
        error = await done
        if error is not None:
            raise error

    def _run(self) -> None:
        while True:
            line, tell = self._waiting.get()
            rest = memoryview(line)
            try:
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError as error:
                tell(error)
            else:
                tell(None)
