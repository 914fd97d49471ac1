"""How much a message may hold, besides its bytes: a million tiny values take seconds to read, and hundreds of megabytes."""

MOST_VALUES = 300_000


def holds_too_much(message: bytes) -> bool:
    """Whether JSON holds more values than are read: told by what stands between them, other than in texts."""
    if len(message) <= MOST_VALUES or _marks(message) <= MOST_VALUES:
        return False
    plain = message.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > MOST_VALUES * 4:  # two for each text, and of texts at most every other one is a field's name
        return True
    return _marks(b"".join(plain.split(b'"')[::2])) > MOST_VALUES


def _marks(text: bytes) -> int:
    return sum(text.count(mark) for mark in (b",", b"[", b"{"))
