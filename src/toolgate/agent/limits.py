"""The limits that end a run before it has answered, and those that keep its messages within the model's context."""

from collections.abc import Sequence
from hashlib import sha256
from math import isfinite

import msgspec
import orjson

from toolgate.agent.journal import JournalEntry, Leg, answers_of, results_of
from toolgate.agent.run import RunLimits
from toolgate.errors import Failed
from toolgate.llm.completion import Message, ToolRequest, estimate_tokens
from toolgate.model import NANO
from toolgate.settings.agent import AgentSettings
from toolgate.store.agent_runs import RunRow

WINDOW = 4
"""Of the last calls, so many times `same_call` are looked at for the same one."""
SHORT_CHARS = 200
"""Characters that are left of a result that is shortened."""
TOKENS_A_MESSAGE = 8


def exhausted(row: RunRow, leg: Leg, limits: RunLimits, seconds: float) -> str | None:
    """The reason why a run may not ask the model again; None: it may. `seconds`: that it has worked."""
    if row.turns - leg.turns >= limits.turns:
        return f"It has asked the model {limits.turns} times without coming to an answer, which is its limit of turns."
    if seconds - leg.seconds >= limits.seconds:
        return f"It has worked for {limits.seconds:g} s without coming to an answer, which is its limit of time."
    if row.cost - leg.cost >= int(limits.cost_usd * NANO) > 0:
        return f"It has cost ${(row.cost - leg.cost) / NANO:g}, and may cost ${limits.cost_usd}."
    return None


def repeated(entries: Sequence[JournalEntry], request: ToolRequest, limits: RunLimits) -> bool:
    """Tells whether a call was made as often, with the same result each time, as it may be among the last ones."""
    results = results_of(entries)
    made: list[tuple[str, str]] = []
    for entry in answers_of(entries):
        for seq, one in enumerate(() if entry.answer is None else entry.answer.requests, entry.seq + 1):
            if seq in results:
                made.append((_digest(one), results[seq].message.text))
    wanted = _digest(request)
    found = [result for call, result in made[-WINDOW * limits.same_call :] if call == wanted]
    return len(found) >= limits.same_call and len(set(found[-limits.same_call :])) == 1


def _digest(request: ToolRequest) -> str:
    given = request.text if request.arguments is None else orjson.dumps(request.arguments, option=orjson.OPT_SORT_KEYS)
    return sha256(f"{request.name}\n".encode() + (given if isinstance(given, bytes) else given.encode())).hexdigest()


def unusable_in_a_row(entries: Sequence[JournalEntry]) -> int:
    """The number of last answers that could not be used."""
    count = 0
    for entry in reversed(answers_of(entries)):
        if entry.answer is None or not is_unusable(entry):
            break
        count += 1
    return count


def is_unusable(entry: JournalEntry) -> bool:
    """True of an answer from which nothing follows: it is empty, or none of its calls can be read."""
    answer = entry.answer
    if answer is None:
        return False
    if answer.problem is not None:
        return True
    if answer.requests:
        return all(request.arguments is None for request in answer.requests)
    return not (answer.text or "").strip()


# -- the model's context


def tokens_of(message: Message) -> int:
    """Roughly the tokens of a message."""
    requests = sum(estimate_tokens(f"{one.name}{one.text}{one.arguments or ''}") for one in message.requests)
    return estimate_tokens(message.text) + requests + TOKENS_A_MESSAGE


def fitted(entries: Sequence[JournalEntry], more: int, most: int) -> tuple[list[Message], int]:
    """Messages so that with `more` tokens they have about as many as they may: the oldest results of tools are shortened
    first, and nothing but results. Gives how many were."""
    messages = [entry.message for entry in entries]
    over = sum(map(tokens_of, messages)) + more - most
    shortened = 0
    for index, entry in enumerate(entries):
        if over <= 0:
            break
        if entry.kind == "tool" and len(entry.message.text) > 2 * SHORT_CHARS:
            short = msgspec.structs.replace(entry.message, text=shorter(entry.message.text, SHORT_CHARS))
            over -= tokens_of(entry.message) - tokens_of(short)
            messages[index] = short
            shortened += 1
    return messages, shortened


def shorter(text: str, chars: int) -> str:
    """The beginning of a text, and how much was left out."""
    return text if len(text) <= chars else f"{text[:chars]}\n[{len(text) - chars:,} characters left out here]"


def too_many(most: int) -> Failed:
    """Words for a user who has as many runs as one may have."""
    return Failed(
        "CAPACITY_EXCEEDED",
        f"{most} runs of this user are under way or wait already, and there may be no more.",
        suggestion="Wait until one has ended, or cancel one. The setting agent.live_runs is the limit.",
    )


def checked(wanted: RunLimits | None, settings: AgentSettings) -> RunLimits:
    """The limits of a run. Raises ValueError for one that is above the settings', or is no number of its kind."""
    most = RunLimits(settings.turns, settings.seconds, settings.cost_usd, settings.same_call)
    if wanted is None:
        return most
    wanted = msgspec.convert(msgspec.to_builtins(wanted), RunLimits)  # whose ValidationError is a ValueError
    for name in RunLimits.__struct_fields__:
        given, top = getattr(wanted, name), getattr(most, name)
        least = 0 if name == "cost_usd" else 1 if name != "seconds" else 0.001
        if not isfinite(given) or given < least:
            raise ValueError(f"{name} must be at least {least}, not {given}")
        if given > top:
            raise ValueError(f"{name} is {given}, and may be {top} (setting agent.{name})")
    return wanted
