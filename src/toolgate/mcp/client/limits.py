"""How much a message may hold, besides its bytes: a million tiny values take seconds to read, and hundreds of megabytes."""

from toolgate.jsontext import MOST_VALUES, holds_too_much

__all__ = ["MOST_VALUES", "holds_too_much"]
