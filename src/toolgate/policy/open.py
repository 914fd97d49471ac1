"""Which engine the settings mean."""

from toolgate.policy.documents import PolicyError
from toolgate.policy.question import Embedded, Remote
from toolgate.policy.rego import EmbeddedRego, default_policy
from toolgate.settings import Policy


def open_engine(settings: Policy, opa_url: str | None) -> Embedded | Remote:
    """The engine that decides: an OPA server if there is one, else the policy of the settings or the shipped one."""
    if opa_url is not None:
        from toolgate.policy.opa import OpaServer

        return OpaServer(opa_url, settings.opa_seconds)
    if settings.file is None:
        return EmbeddedRego.default()
    try:
        return EmbeddedRego(policy_text(settings))
    except PolicyError as error:
        words = error.message.replace("The policy ", f"The policy {settings.file} ", 1)
        raise PolicyError(words, line=error.line, suggestion=error.suggestion or "See the setting policy.file.") from None


def policy_text(settings: Policy) -> str:
    """The text of the policy in force here."""
    if settings.file is None:
        return default_policy()
    try:
        return settings.file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(
            f"The policy can't be read: {getattr(error, 'strerror', None) or error}.",
            suggestion="See the setting policy.file.",
        ) from error
