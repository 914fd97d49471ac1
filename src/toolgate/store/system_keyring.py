"""The keyring of the operating system, asked with a limit on time: it may wait for a person to unlock it."""

from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from toolgate.errors import StoreError
from toolgate.extras import install_command

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

T = TypeVar("T")
ANSWER_SECONDS = 10.0
"""A keyring that takes longer waits for a person, who may not be there."""


def ask_keyring(question: "Callable[[KeyringBackend], T]", suggestion: str) -> T:
    """Puts a question to the keyring, in a thread of its own. Raises StoreError, with the suggestion, without an answer."""
    try:
        import keyring
    except ImportError:
        message = f"The keyring is not available: the package keyring is not installed ({install_command('keyring')})."
        raise StoreError(message, suggestion=suggestion) from None
    backend = keyring.get_keyring()
    answers: list[T] = []
    troubles: list[str] = []

    def ask() -> None:
        try:
            answers.append(question(backend))
        except Exception as error:  # whatever a backend raises; its words might hold the value
            troubles.append(type(error).__name__)

    thread = Thread(target=ask, name="toolgate-keyring", daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if answers:
        return answers[0]
    why = troubles[0] if troubles else "it does not answer"
    raise StoreError(f"The keyring ({type(backend).__name__}) did not do it: {why}.", suggestion=suggestion)
