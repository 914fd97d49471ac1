"""The scanner for credentials of every kind, if it is installed: kingfisher.

Its rules are the same for everybody and take a quarter of a second to load, so all Apps of a process share one.
"""

import threading
from typing import Any


class SecretScanner:
    """A scanner that is loaded when it is first needed."""

    def __init__(self) -> None:
        self._scanner: Any = None
        self._loading = threading.Lock()

    @property
    def is_loaded(self) -> bool:
        return self._scanner is not None

    def load(self) -> Any:
        """None if none is installed."""
        with self._loading:
            if self._scanner is None:
                try:
                    from kingfisher_sdk import Scanner
                except ImportError:
                    self._scanner = False
                else:
                    self._scanner = Scanner(redact=False)
        return self._scanner or None


SHARED = SecretScanner()
