"""Keys with which Toolgate seals what clients carry for it: in the store, so that all processes and restarts agree."""

from secrets import token_hex

from toolgate.store.database import Transaction


def key_for(purpose: str) -> Transaction[str]:
    """The key of a purpose. Whoever asks first makes it; who asks at the same moment gets the same one."""
    yield (
        "INSERT INTO sealing_keys (purpose, secret) VALUES (:purpose, :secret) ON CONFLICT (purpose) DO NOTHING",
        {"purpose": purpose, "secret": token_hex(32)},
    )
    rows = yield "SELECT secret FROM sealing_keys WHERE purpose = :purpose", {"purpose": purpose}
    return str(rows[0][0])


def known_key(purpose: str) -> Transaction[str | None]:
    """The key of a purpose, if there is one."""
    rows = yield "SELECT secret FROM sealing_keys WHERE purpose = :purpose", {"purpose": purpose}
    return str(rows[0][0]) if rows else None
