"""Makes the signer of the audit log's heads from the settings."""

from typing import TYPE_CHECKING

from toolgate.settings import Settings
from toolgate.store.database import Store

if TYPE_CHECKING:
    from toolgate.gates.ledger.heads import Heads


def open_heads(settings: Settings, store: Store) -> "Heads | None":
    """The signer of the log's heads; None: they are not signed."""
    if settings.in_memory or settings.audit.key == "none":
        return None
    from toolgate.gates.ledger.heads import Heads
    from toolgate.store.head_keys import HeadKeys, KeyFile, KeyringKeys
    from toolgate.store.signed_heads import Witness, log_name

    audit, name, sinks = settings.audit, log_name(settings.database), []
    keys: HeadKeys = KeyFile(audit.place / "key.json")
    if audit.key == "keyring":
        keys = KeyringKeys(name, settings.secrets.keyring_backend)
    if audit.sinks:
        from toolgate.store.head_sinks import open_sink

        sinks = [open_sink(place) for place in audit.sinks]
    return Heads(
        store,
        Witness(audit.place, name),
        keys,
        log_name=name,
        sinks=sinks,
        trusted=audit.trusted_keys,
        seconds=audit.sign_seconds,
    )
