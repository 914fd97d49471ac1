"""The text of an answer on its way to whoever reads along, without the secrets that the call was given: a server knows its
key, and could write it into an answer."""

from collections.abc import Callable

from toolgate.errors import described
from toolgate.pipeline.context import InvokeContext
from toolgate.screening.secret_patterns import masker


class MaskedStream:
    """Gives text on as it comes, but for an end that may be the beginning of a secret. A reader that fails is given no more:
    the answer is paid for, and is not lost for it."""

    def __init__(self, ctx: InvokeContext, on_text: Callable[[str], None]) -> None:
        self._ctx, self._on_text = ctx, on_text
        self._held = ""
        self._failed = False

    def take(self, text: str) -> None:
        text = self._held + text
        keep = max((_overlap(text, secret) for secret in self._ctx.injected), default=0)
        self._held = text[len(text) - keep :]
        self._give(text[: len(text) - keep])

    def end(self) -> None:
        self._give(self._held)
        self._held = ""

    def _give(self, text: str) -> None:
        if self._failed or not text:
            return
        known = self._ctx.injected
        try:
            self._on_text(masker(known).text(text, on_loop=True) if known else text)
        except Exception as error:  # noqa: BLE001 - whatever shows it
            self._failed = True
            self._ctx.log(f"The answer could not be shown while it came: {described(error)}", "warn")


def _overlap(text: str, secret: str) -> int:
    """The length of the longest end of a text with which a secret begins, short of the whole of it."""
    end = text[-len(secret) + 1 :] if len(secret) > 1 else ""
    return next((len(end) - at for at in range(len(end)) if secret.startswith(end[at:])), 0)
