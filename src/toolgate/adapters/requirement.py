"""The frameworks that adapters need: they are installed by whoever uses them, not by an extra of Toolgate."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from toolgate.errors import ToolgateError


class MissingFramework(ToolgateError, ImportError):
    """The framework of an adapter is not installed."""


@contextmanager
def framework(name: str, package: str) -> Iterator[None]:
    """Around the imports of a framework: where it is missing, says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "toolgate":
            raise
        pip = f"{shlex.quote(sys.executable or 'python')} -m pip install {package}"
        raise MissingFramework(
            f"{name} is not installed ({error.name} is missing).", suggestion=f"{pip} installs it."
        ) from None
