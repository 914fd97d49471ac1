"""The way to a model's server: one request, streamed or not, repeated where that is safe, its answer read within bounds.

`spent` is told of the tokens of every answer that the server is paid for, also of one that can't be used, and of the part
that came before a stream broke off.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from toolgate.errors import CallError, Failed, NotReached, TimedOut, ToolError, plural
from toolgate.llm.completion import Collector, Completion, Dialect, ErrorEvent, Malformed, ModelRequest, estimate_tokens
from toolgate.llm.dialects import DIALECTS
from toolgate.llm.retries import wait_before
from toolgate.llm.service_errors import Refused
from toolgate.network.http_client import HttpClient, HttpStream
from toolgate.network.http_response import HttpResponse
from toolgate.network.service_answers import told
from toolgate.network.sse import EventTooLong, SseParser
from toolgate.settings.model import ModelChoice

MAX_ANSWER_BYTES = 5_000_000
MAX_STREAM_BYTES = 64_000_000
STREAM_BYTES_A_TOKEN = 1_000
"""Of a token that is streamed on its own, with all that stands around it."""
MAX_EVENT_BYTES = 1_000_000
MAX_CORRECTIONS = 2
SSE = "text/event-stream"

Spent = Callable[[int, int], None]
OnText = Callable[[str], None]


class ModelClient:
    """Asks servers in their dialects."""

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self._lacking: dict[tuple[str, str | None], frozenset[str]] = {}
        """By address and model, the fields of a request that were refused there."""

    async def ask(
        self,
        choice: ModelChoice,
        key: str | None,
        asked: ModelRequest,
        *,
        spent: Spent,
        on_text: OnText | None = None,
        log: Callable[[str], None],
    ) -> Completion:
        """The answer of a model. Raises a CallError or ToolError for whatever is none."""
        left, attempts = choice.retry_seconds, 0
        while True:
            attempts += 1
            try:
                return await self._corrected(choice, key, asked, spent, on_text)
            except (Refused, NotReached) as failure:
                wait = None
                if attempts <= choice.retries and (isinstance(failure, NotReached) or failure.is_repeatable):
                    wait = wait_before(attempts, getattr(failure, "headers", {}), left)
                if wait is None:
                    raise (failure if isinstance(failure, NotReached) else failure.error(choice)) from None
                log(f"The model's server answered with {failure}: asked again in {wait:.3g} s.")
                left -= wait
                await asyncio.sleep(wait)

    async def _corrected(
        self, choice: ModelChoice, key: str | None, asked: ModelRequest, spent: Spent, on_text: OnText | None
    ) -> Completion:
        """Asks, and once more without the fields that a server refuses: servers know different ones."""
        dialect, where = DIALECTS[choice.provider], (choice.address, choice.name)
        for _ in range(MAX_CORRECTIONS):
            known = self._lacking.get(where, frozenset())
            try:
                return await self._once(dialect, choice, key, asked._replace(lacking=known), spent, on_text)
            except Refused as refused:
                more = dialect.unknown_fields(refused.words) if refused.status in (400, 422) else frozenset()
                if more <= known:
                    raise
                self._lacking[where] = known | more
        return await self._once(dialect, choice, key, asked._replace(lacking=self._lacking[where]), spent, on_text)

    async def _once(
        self,
        dialect: Dialect,
        choice: ModelChoice,
        key: str | None,
        asked: ModelRequest,
        spent: Spent,
        on_text: OnText | None,
    ) -> Completion:
        url, headers, body = f"{choice.address}{dialect.path}", dialect.headers(key), dialect.body(choice, asked)
        if on_text is None:
            response = await self._http.request(
                "POST", url, headers=headers, json=body, timeout=choice.timeout, max_bytes=MAX_ANSWER_BYTES,
                redirects=0, trusted=True,
            )  # fmt: skip
            return _read_whole(dialect, choice, response, asked, spent)
        answer = StreamedAnswer(dialect, choice, asked, spent, on_text)
        most = min(MAX_STREAM_BYTES, MAX_EVENT_BYTES + STREAM_BYTES_A_TOKEN * asked.max_tokens)
        opening = self._http.stream(
            "POST", url, headers={**headers, "Accept": SSE}, json=body, timeout=choice.timeout,
            idle=choice.idle_timeout, max_bytes=most, trusted=True,
        )  # fmt: skip
        try:
            async with opening as stream:
                whole = await answer.read(stream)
        except BaseException as error:
            failure = answer.broken_off(error)
            if failure is error:
                raise
            if failure is not None:
                raise failure from None
            whole = None
        return answer.completion() if whole is None else whole


class StreamedAnswer:
    """One answer while it is streamed."""

    def __init__(self, dialect: Dialect, choice: ModelChoice, asked: ModelRequest, spent: Spent, on_text: OnText) -> None:
        self._dialect, self._choice, self._asked, self._spent = dialect, choice, asked, spent
        self._on_text = on_text
        self._collector: Collector = dialect.collector()
        self._begun = self._has_events = False
        self._chars = 0
        """Characters that were given out."""

    async def read(self, stream: HttpStream) -> Completion | None:
        """Reads to the end of the answer; gives it if the server does not stream. Raises Refused."""
        if stream.status != 200:
            raise Refused(stream.status, stream.headers, _body(await stream.read()))
        if stream.headers.get("content-type", "").startswith("application/json"):
            completion = _read_whole(self._dialect, self._choice, await stream.read(), self._asked, self._spent)
            self._on_text(completion.text)
            return completion
        self._begun = True
        parser = SseParser(MAX_EVENT_BYTES)
        async for part in stream:
            self._take(parser, part)
            if self._collector.is_closed:
                return None
        self._take(parser, b"\n\n")  # a last event may lack its end
        if not self._collector.is_over:
            kind = told(stream.headers.get("content-type")) or "of no media type"
            if not self._has_events and not kind.startswith(SSE):  # the page of a proxy, or of another service
                raise Malformed(f"it is neither JSON nor a stream of events, but {kind}")
            raise Failed("CONNECTION_ERROR", "the server closed the connection")
        return None

    def _take(self, parser: SseParser, part: bytes) -> None:
        for event in parser.feed(part):
            self._has_events = True
            text = self._collector.take(event)
            if text:
                self._chars += len(text)
                self._on_text(text)
            if self._collector.is_closed:
                return

    def completion(self) -> Completion:
        try:
            completion = self._dialect.read(self._collector.answer(), self._asked)
        except Malformed as error:
            self._count()
            raise _unreadable(error, self._choice) from None
        self._spent(completion.input_tokens, completion.output_tokens)
        return completion

    def broken_off(self, error: BaseException) -> BaseException | None:
        """The error to raise for one that ended the stream, once what came is counted; None: the answer was over."""
        if not self._begun or isinstance(error, Refused):
            return error
        if self._collector.is_over and isinstance(error, Failed | TimedOut):
            return None
        if isinstance(error, ErrorEvent) and not self._chars:
            return Refused(error.status, {}, error.answer)
        self._count()
        if isinstance(error, ErrorEvent):
            failure = Refused(error.status, {}, error.answer).error(self._choice)
            failure.charged = True
            return failure
        if isinstance(error, Malformed | EventTooLong):
            return _unreadable(error, self._choice)
        return self._cut(error) if isinstance(error, Failed | TimedOut) else error

    def _cut(self, error: CallError) -> CallError:
        came = f"after {plural(self._chars, 'character')}" if self._chars else "before it said anything"
        return type(error)(
            error.code,
            f"The answer of the model's server broke off {came}: {error.message.rstrip('.')}.",
            retryable=not self._chars,
            suggestion="Ask again." if not self._chars else "Ask again: what came is not used.",
            details={"characters": self._chars},
        )

    def _count(self) -> None:
        answer = self._collector.answer()
        read, written = self._dialect.usage(answer, self._asked, "")
        self._spent(read, max(written, estimate_tokens(" " * self._chars)))


def _read_whole(
    dialect: Dialect, choice: ModelChoice, response: HttpResponse, asked: ModelRequest, spent: Spent
) -> Completion:
    """The completion in an answer that is not streamed. Raises Refused, or ToolError."""
    if response.status != 200:
        raise Refused(response.status, response.headers, _body(response))
    answer = response.json()
    try:
        completion = dialect.read(answer, asked)
    except Malformed as error:
        if isinstance(answer, dict) and isinstance(answer.get("usage"), dict):
            spent(*dialect.usage(answer, asked, ""))
        raise _unreadable(error, choice) from None
    spent(completion.input_tokens, completion.output_tokens)
    return completion


def _body(response: HttpResponse) -> Any:
    """The body of an error, which may be no JSON: a proxy may have written it."""
    try:
        return response.json()
    except ToolError:
        return None


def _unreadable(error: Exception, choice: ModelChoice) -> ToolError:
    return ToolError(
        f"The answer of the model's server cannot be read: {error}.",
        code="OUTPUT_INVALID",
        suggestion=f"Check that it speaks the dialect {choice.provider}: the settings model.base_url and model.provider.",
    )
