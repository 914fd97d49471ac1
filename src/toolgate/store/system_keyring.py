"""The keyring of the operating system, asked with a limit on time: it may wait for a person to unlock it.

The package `keyring` takes whatever backend is installed, among them some that write passwords into a file as they are. So
only backends that are known to encrypt are used, and the one that the operator names in `secrets.keyring_backend`.
"""

from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from toolgate.errors import StoreError
from toolgate.extras import install_command, is_installed

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

T = TypeVar("T")
ANSWER_SECONDS = 10.0
"""A keyring that takes longer waits for a person, who may not be there."""

ENCRYPTING_BACKENDS = frozenset(
    {
        "keyring.backends.SecretService.Keyring",
        "keyring.backends.libsecret.Keyring",
        "keyring.backends.kwallet.DBusKeyring",
        "keyring.backends.kwallet.DBusKeyringKWallet4",
        "keyring.backends.macOS.Keyring",
        "keyring.backends.Windows.WinVaultKeyring",
        "keyrings.alt.file.EncryptedKeyring",
        "keyrings.alt.Windows.EncryptedKeyring",
    }
)
"""Services of an operating system or desktop, and files that are encrypted."""
NO_BACKENDS = frozenset({"keyring.backends.fail.Keyring", "keyring.backends.null.Keyring"})
"""Backends that the package offers where there is no keyring: they keep nothing."""
CHAINER = "keyring.backends.chainer.ChainerBackend"


def refusal(accepted: str | None) -> str | None:
    """Says why the keyring of this machine keeps nothing; None: it can be used. `accepted` is a backend that the operator
    names besides those that are known to encrypt."""
    if not is_installed("keyring"):
        return f"the package keyring is not installed: {install_command('keyring')}"
    import keyring

    try:
        backend: Any = keyring.get_keyring()
        chained = [_class_of(one) for one in backend.backends] if _class_of(backend) == CHAINER else [_class_of(backend)]
    except Exception as error:
        return f"the keyring that is configured cannot be loaded ({type(error).__name__})"
    names = [name for name in chained if name not in NO_BACKENDS]
    if not names:
        return "this machine has no keyring"
    unknown = next((name for name in names if name not in ENCRYPTING_BACKENDS and name != accepted), None)
    if unknown is None:
        return None
    return (
        f"its backend {unknown} is not known to encrypt what it keeps. Use the encrypted file (`--in file`), install "
        f"a keyring such as Secret Service, or, if you vouch for this one, set secrets.keyring_backend: {unknown}"
    )


def _class_of(backend: object) -> str:
    return f"{type(backend).__module__}.{type(backend).__qualname__}"


def ask_keyring(question: "Callable[[KeyringBackend], T]", suggestion: str, accepted: str | None) -> T:
    """Puts a question to the keyring, in a thread of its own. Raises StoreError, with the suggestion, without an answer, and
    without asking if the backend is neither known to encrypt nor `accepted`."""
    why_not = refusal(accepted)
    if why_not is not None:
        raise StoreError(f"The keyring is not available: {why_not}.", suggestion=suggestion)
    import keyring

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
