"""Imports every module of the installed Toolgate. Run by the Python of an environment that has nothing of the checkout."""

import importlib
import pkgutil

import toolgate
from toolgate.adapters.requirement import MissingFramework

APART = ("toolgate.sandbox.inside.", "toolgate.testing")
"""What runs in a jail by itself, and what needs pytest."""

names = [found.name for found in pkgutil.walk_packages(toolgate.__path__, "toolgate.")]
for name in names:
    if not name.startswith(APART) and not name.endswith("__main__"):
        try:
            importlib.import_module(name)
        except MissingFramework:  # no extra brings the frameworks that adapters are for
            assert name.startswith("toolgate.adapters."), name
print(f"{len(names)} modules")  # noqa: T201 - read by who runs it
