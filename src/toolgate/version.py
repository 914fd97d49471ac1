"""The version of Toolgate: `toolgate.__version__` is the same."""

VERSION = "0.1.0"
