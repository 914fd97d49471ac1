"""The errors of a model's server in Toolgate's codes. Its words are quoted, shortened; the pipeline masks them."""

import re
from collections.abc import Mapping
from typing import Any

from toolgate.errors import CallError, InvalidInput, ToolError, call_error, span_words
from toolgate.llm.retries import REPEATABLE, hint
from toolgate.network.service_answers import DEFAULT_RETRY_AFTER_SECONDS, MAX_RETRY_AFTER_SECONDS, told
from toolgate.settings.model import ModelChoice

TOO_LONG = re.compile(
    r"context[ _]length|context window|prompt is too long|too many tokens|maximum context|request_too_large|too long", re.I
)
OUT_OF_CREDIT = re.compile(r"insufficient_quota|enforced_spend_limit|billing|credit balance|insufficient balance", re.I)


class Refused(Exception):
    """An answer whose status is not 200."""

    def __init__(self, status: int, headers: Mapping[str, str], answer: Any) -> None:
        super().__init__(f"status {status}")
        self.status, self.headers = status, headers
        self.answer = answer

    @property
    def is_repeatable(self) -> bool:
        """True if the same request may be answered soon, and has cost nothing."""
        return self.status in REPEATABLE and not OUT_OF_CREDIT.search(_said(self.answer)[1])

    @property
    def words(self) -> str:
        return _said(self.answer)[0]

    def error(self, choice: ModelChoice) -> CallError | ToolError:
        return error_of(self.status, self.headers, self.answer, choice)


def error_of(status: int, headers: Mapping[str, str], answer: Any, choice: ModelChoice) -> CallError | ToolError:
    """The error for an answer whose status is not 200. None of them is paid for: servers charge for answers."""
    words, kinds = _said(answer)
    quote = "." if not words else f": {words}" if words[-1] in ".!?…" else f": {words}."
    if status in (401, 403):
        return _refused_key(choice, quote)
    if status == 402 or OUT_OF_CREDIT.search(kinds):
        return ToolError(
            f"The account at the model's server has no credit left{quote}",
            retryable=False,
            suggestion="Whoever pays for it can add some.",
            charged=False,
        )
    if status == 429:
        return _rate_limited(headers, quote)
    if status == 413 or (status in (400, 422) and TOO_LONG.search(f"{kinds} {words}")):
        return InvalidInput(
            "The text is too long for the model.", suggestion="Give less of it, or split it.", details={"too_long": True}
        )
    if status in (400, 422):
        return InvalidInput(f"The model's server refused the request{quote}", suggestion="Change what is asked.")
    if status == 404:
        return ToolError(
            f"The model's server has no model {choice.name!r} at this address{quote}",
            retryable=False,
            suggestion="Correct the settings model.name and model.base_url.",
            charged=False,
        )
    return _unwell(status, headers, quote)


def _refused_key(choice: ModelChoice, quote: str) -> CallError:
    if choice.secret is None:
        message, advice = f"The model's server wants a key{quote}", "Name the secret that holds it in model.secret."
    else:
        message = f"The model's server refused the key in the secret {choice.secret}{quote}"
        advice = f"`toolgate secrets set {choice.secret}` sets another."
    error = call_error("MISSING_AUTH", message, suggestion=advice, details={"missing": choice.secret or "model.secret"})
    error.charged = False
    return error


def _rate_limited(headers: Mapping[str, str], quote: str) -> CallError:
    seconds = _retry_after(headers)
    error = call_error(
        "RATE_LIMITED",
        f"The model's server has had too many requests{quote}",
        suggestion=f"Try again in {span_words(seconds)}.",
        details={"retry_after": seconds},
    )
    error.charged = False
    return error


def _unwell(status: int, headers: Mapping[str, str], quote: str) -> CallError:
    details = {"status": status} if status < 500 else {"status": status, "retry_after": _retry_after(headers)}
    error = call_error(
        "CONNECTION_ERROR",
        f"The model's server failed with status {status}{quote}",
        retryable=status >= 500,
        suggestion="Try again later." if status >= 500 else "Check the setting model.base_url.",
        details=details,
    )
    error.charged = False
    return error


def _retry_after(headers: Mapping[str, str]) -> float:
    wait = hint(headers)
    return wait if wait is not None and wait <= MAX_RETRY_AFTER_SECONDS else DEFAULT_RETRY_AFTER_SECONDS


def _said(answer: Any) -> tuple[str, str]:
    """The message of an error, and the names of its kind: both dialects have them at the same place."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return told(error) or "", ""
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else None
    kinds = [told(kind) for kind in (error.get("type"), error.get("code"), code)]
    return told(error.get("message")) or "", " ".join(kind for kind in kinds if kind)
