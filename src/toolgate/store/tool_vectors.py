"""Vectors of the texts by which tools are found, by the SHA-256 of the text: shared by all processes and tenants of a store.

Whoever has a text can compute its vector; the digest alone tells nothing of it.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from toolgate.store.database import Transaction, now
from toolgate.store.memories import batched

ROWS_PER_INSERT = 100
KEPT_FOR = timedelta(days=90)
"""The age from which on a vector is computed again: the simplest way to be rid of those of tools that are gone."""


def find(model: str, digests: Sequence[str]) -> Transaction[dict[str, bytes]]:
    """The vectors that there are for digests."""
    found: dict[str, bytes] = {}
    for some in batched(digests):
        names = {f"d{number}": digest for number, digest in enumerate(some)}
        listed = ", ".join(f":{name}" for name in names)
        rows = yield (
            f"SELECT digest, vector FROM tool_vectors WHERE model = :model AND digest IN ({listed})",
            {"model": model, **names},
        )
        found.update((digest, bytes(vector)) for digest, vector in rows)
    return found


def add(model: str, vectors: Mapping[str, bytes]) -> Transaction[None]:
    """Adds vectors by digest; those that another process has added meanwhile stay."""
    digests, made_at = list(vectors), now()
    for start in range(0, len(digests), ROWS_PER_INSERT):
        some = digests[start : start + ROWS_PER_INSERT]
        values = {f"d{number}": digest for number, digest in enumerate(some)}
        given = {f"v{number}": vectors[digest] for number, digest in enumerate(some)}
        rows = ", ".join(f"(:model, :d{number}, :v{number}, :at)" for number in range(len(some)))
        yield (
            f"INSERT INTO tool_vectors (model, digest, vector, made_at) VALUES {rows} "
            "ON CONFLICT (model, digest) DO NOTHING",
            {"model": model, "at": made_at, **values, **given},
        )


def forget_old() -> Transaction[None]:
    """Removes vectors that are past their time."""
    yield "DELETE FROM tool_vectors WHERE made_at < :before", {"before": now() - KEPT_FOR}
