"""Which Toolgate this is, for all who tell others: `toolgate.__version__` is the same."""

VERSION = "0.1.0"
