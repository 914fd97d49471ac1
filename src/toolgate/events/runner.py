"""Sends calls out: a call of a tool with `route: events` is published as a request, and its result awaited.

It has passed every gate before. Its arguments go out as they were checked, with references to secrets and not with secrets:
whoever takes the request has its own. A result counts only if the key that signed the request signed it, and only while
its call waits; a late one, a forged one and one for another call are passed over.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from toolgate.errors import UNSURE, CallError, Failed, NotReached, ToolgateError, call_error, timed_out
from toolgate.events.messages import REQUEST_ID, CallResult, read_result, request_body
from toolgate.events.signatures import SIGNATURE, BadSignature, SigningKeys
from toolgate.events.stream import Consumer, DeliveredEvent, EventMessage, EventStream, StreamError
from toolgate.model import Entry, Outcome
from toolgate.pipeline.context import InvokeContext
from toolgate.settings.events import EventSettings

logger = logging.getLogger("toolgate.events")


class EventRunner:
    """Runs tools by way of the event stream."""

    def __init__(self, settings: EventSettings, keys: SigningKeys, stream: Callable[[], EventStream]) -> None:
        self._settings, self._keys, self._stream = settings, keys, stream
        self._waiting: dict[str, asyncio.Future[CallResult]] = {}
        self._follower: Consumer | None = None
        self._one_at_a_time = asyncio.Lock()

    async def run(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> Any:  # noqa: ARG002 - with secrets
        """Publishes the call and gives the output that its result has, within the time of the call."""
        stream, key = await self._ready(entry)
        id, seconds = f"{ctx.call.id}.{ctx.attempts}", ctx.time_limit
        message = self._request(ctx, entry, key, id, seconds)
        result = self._waiting[id] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds) as limit:
                try:
                    await stream.publish(self._settings.requests, message)
                except StreamError as error:  # the stream may have it all the same
                    raise _unknown(error) from error
                return _output((await result).outcome)
        except TimeoutError:
            if not limit.expired():
                raise
            raise timed_out(seconds, suggestion="Is there a worker that takes requests from the event stream?") from None
        finally:
            del self._waiting[id]

    async def close(self) -> list[str]:
        follower, self._follower = self._follower, None
        if follower is not None:
            await follower.stop(0)
        return []

    async def _ready(self, entry: Entry) -> tuple[EventStream, str]:
        """The stream, with its results followed, and the key that signs."""
        settings = self._settings
        if settings.url is None or settings.sign_with is None:
            missing = "events.url" if settings.url is None else "events.sign_with"
            words = f"{entry.name} is run by way of the event stream, and the setting {missing} is not set."
            raise NotReached("UNKNOWN_TOOL_TYPE", words)
        try:
            stream = self._stream()
            async with self._one_at_a_time:
                if self._follower is None:
                    self._follower = await stream.follow(settings.results, self._take)
        except ToolgateError as error:
            logger.warning("a call cannot be sent out: %s", error.message)
            words = "The event stream that runs this tool cannot be reached; nothing was run."
            raise NotReached("CONNECTION_ERROR", words, reason=error.message) from error
        return stream, settings.sign_with

    def _request(self, ctx: InvokeContext, entry: Entry, key: str, id: str, seconds: float) -> EventMessage:
        actor = ctx.call.actor
        fields = {
            "id": id, "tenant": actor.tenant, "persona": actor.persona, "user": actor.user, "session": ctx.call.session,
            "tool": entry.name, "deadline": time.time() + seconds, "scopes": actor.scopes,
        }  # fmt: skip
        body = request_body(fields, ctx.canonical)
        if len(body) > self._settings.message_bytes:
            words = f"The call has {len(body):,} bytes, more than the event stream takes; nothing was run."
            raise NotReached("VALIDATION_ERROR", words, suggestion="Give it less, or raise events.message_bytes.")
        try:
            headers = {SIGNATURE: self._keys.sign(key, "request", body)}
        except BadSignature as error:
            raise NotReached("MISSING_AUTH", "The key that signs calls is not set.", reason=error.message) from error
        order = id if ctx.call.session is None else f"{actor.tenant}/{ctx.call.session}"
        return EventMessage(body, order, headers, id)

    async def _take(self, delivery: DeliveredEvent) -> None:
        """Takes a result, if a call waits for it and it is signed with the key of its request."""
        message = delivery.message
        waiting = self._waiting.get(message.headers.get(REQUEST_ID, ""))
        if waiting is None or waiting.done() or len(message.body) > self._settings.message_bytes:
            return
        try:
            key = self._keys.verify(message.headers.get(SIGNATURE), "result", message.body)
        except BadSignature as error:
            logger.warning("a result is passed over: %s", error.message)
            return
        result = read_result(message.body) if key == self._settings.sign_with else None
        if result is None or self._waiting.get(result.id) is not waiting:
            logger.warning("a result is passed over: it is not signed with the key of its request, or for another one")
        elif result.final:
            waiting.set_result(result)


def _output(outcome: Outcome) -> Any:
    """The output of a call that was run elsewhere; raises the error that it ended with."""
    if outcome.ok:
        return outcome.output
    error = outcome.error
    if error is None or outcome.status == "pending":
        raise Failed("OUTCOME_UNKNOWN", "The result of the call does not say what came of it.")
    rest: dict[str, Any] = {"retryable": error.retryable, "suggestion": error.suggestion, "details": error.details}
    try:
        made: CallError = call_error(error.code, error.message, **rest)
    except KeyError:  # of a newer Toolgate
        made = Failed("INVOCATION_ERROR", error.message, **rest)
    not_run = outcome.metrics.attempts == 0 and not outcome.metrics.cached and error.code not in UNSURE
    raise NotReached(made.code, made.message, **rest) if not_run else made


def _unknown(error: StreamError) -> Failed:
    return Failed(
        "OUTCOME_UNKNOWN",
        "The event stream did not confirm that it has the call, so it may be run or not.",
        suggestion="Find out whether it had its effect before you call again.",
        reason=error.message,
    )
