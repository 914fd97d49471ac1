"""Opens the engine that the settings name."""

from collections.abc import Callable
from pathlib import Path

from toolgate.gates.policy.documents import PolicyError
from toolgate.gates.policy.embedded_rego import EmbeddedRego, check_references, default_policy
from toolgate.gates.policy.engine import EmbeddedEngine, RemoteEngine
from toolgate.settings import PolicySettings

Refusal = Callable[[Path, bytes], str | None]
"""Why a file with this content is not obeyed; None if it may be."""


def open_engine(
    settings: PolicySettings, opa_url: str | None, refusal: Refusal | None = None
) -> EmbeddedEngine | RemoteEngine:
    """The engine that decides: an OPA server if there is one, else the policy of the settings or the shipped one."""
    if opa_url is not None:
        from toolgate.gates.policy.opa import OpaServer

        if settings.push:
            pushed_text(settings, refusal)
        return OpaServer(opa_url, settings.opa_seconds)
    return EmbeddedRego.default() if settings.file is None else open_file(settings.file, "policy.file", refusal)


def open_file(file: Path, setting: str, refusal: Refusal | None = None) -> EmbeddedRego:
    """The policy of a file that a setting names."""
    try:
        return EmbeddedRego(_read(file, setting, refusal))
    except PolicyError as error:
        raise _of(file, setting, error) from None


def pushed_text(settings: PolicySettings, refusal: Refusal | None = None) -> str:
    """The text that an OPA server is given. The server judges the rest; what a call never has, it can't know."""
    if settings.file is None:
        return default_policy()
    text = _read(settings.file, "policy.file", refusal)
    try:
        check_references(text, any_data=True)
    except PolicyError as error:
        raise _of(settings.file, "policy.file", error) from None
    return text


def _read(file: Path, setting: str, refusal: Refusal | None) -> str:
    try:
        content = file.read_bytes()
        text = content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(
            f"The policy cannot be read: {getattr(error, 'strerror', None) or error}.",
            suggestion=f"See the setting {setting}.",
        ) from error
    why = refusal(file, content) if refusal is not None else None
    if why is not None:
        raise PolicyError(f"The policy is not used: {why}.")
    return text


def _of(file: Path, setting: str, error: PolicyError) -> PolicyError:
    words = error.message.replace("The policy ", f"The policy {file} ", 1)
    return PolicyError(words, line=error.line, suggestion=error.suggestion or f"See the setting {setting}.")
