"""Imports every module of the installed Toolgate. Run by the Python of an environment that has nothing of the checkout."""

import importlib
import pkgutil

import toolgate

APART = ("toolgate.sandbox.inside.", "toolgate.testing")
"""What runs in a jail by itself, and what needs pytest."""

names = [found.name for found in pkgutil.walk_packages(toolgate.__path__, "toolgate.")]
for name in names:
    if not name.startswith(APART) and not name.endswith("__main__"):
        importlib.import_module(name)
print(f"{len(names)} modules")  # noqa: T201 - read by who runs it
