"""Secrets by reference: `{{secret:NAME}}` in an argument becomes the value at the last moment before the tool runs.

Values come from sources that an operator set up, never from the environment at large: a caller that could name any
variable could read them all. Here: TOOLGATE_SECRET_NAME. What was put in is masked wherever it shows up again.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from toolgate.context import InvokeContext
from toolgate.errors import Denied
from toolgate.model import Auth, Entry

REFERENCE = re.compile(r"\{\{\s{0,8}secret:([^{}]{0,200})\}\}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
PREFIX = "TOOLGATE_SECRET_"

Source = Callable[[str], str | None]


def from_environment(environment: Mapping[str, str] | None = None) -> Source:
    """A source that reads TOOLGATE_SECRET_<NAME>."""
    variables = os.environ if environment is None else environment
    return lambda name: variables.get(PREFIX + name) or variables.get(PREFIX + name.upper())


class Secrets:
    """Finds secrets in its sources, first one first."""

    def __init__(self, *sources: Source) -> None:
        self._sources = sources
        self._in_use: dict[str, tuple[str, ...]] = {}
        """By call, the values that it was given: what it hands on to calls of its own is masked there too."""

    def find(self, name: str) -> str | None:
        return next((value for source in self._sources if (value := source(name))), None)

    def inject(self, ctx: InvokeContext, entry: Entry, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments with references replaced. The context gets the values, to mask them, and the tool's credential."""
        used: dict[str, str] = {}
        filled: dict[str, Any] = self._fill(arguments, used) if b"secret:" in ctx.canonical else arguments
        if entry.auth is not None:
            ctx.credential = self._credential(entry.auth)
            if ctx.credential is not None:
                used[entry.auth.config_key] = ctx.credential
        if used:
            ctx.injected += tuple(shape for value in used.values() for shape in _shapes(value))
            self._in_use[ctx.id] = ctx.injected
        return filled

    def inherit(self, ctx: InvokeContext) -> None:
        """Let a call know the secrets of the call that makes it: what is handed on is masked there too."""
        known = self._in_use.get(ctx.call.parent or "", ())
        if known:
            ctx.injected, ctx.inherits_secrets = known, True
            self._in_use[ctx.id] = known

    def forget(self, ctx: InvokeContext) -> None:
        self._in_use.pop(ctx.id, None)

    def _fill(self, value: Any, used: dict[str, str]) -> Any:
        if isinstance(value, str):
            return REFERENCE.sub(lambda found: self._value(found[1].strip(), used), value) if "{{" in value else value
        if isinstance(value, dict):
            return {key: self._fill(part, used) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [self._fill(part, used) for part in value]
        return value

    def _value(self, name: str, used: dict[str, str]) -> str:
        proper = NAME.match(name) is not None
        value = used.get(name) or (self.find(name) if proper else None)
        if value is None:
            raise Denied(
                "MISSING_AUTH",
                f"There is no secret named {name!r}.",
                suggestion=f"Set {PREFIX}{name} in Toolgate's environment."
                if proper
                else "The name of a secret has letters, digits and _, and does not begin with a digit.",
                details={"missing": name},
            )
        used[name] = value
        return value

    def _credential(self, auth: Auth) -> str | None:
        """The credential that a tool declared it needs."""
        value = self.find(auth.config_key)
        if value is None and auth.required:
            raise Denied(
                "MISSING_AUTH",
                f"The tool needs the credential {auth.config_key}, which is not set.",
                suggestion=f"Set {PREFIX}{auth.config_key}" + (f"; get one at {auth.setup_url}" if auth.setup_url else "."),
                details={"missing": auth.config_key, "setup_url": auth.setup_url},
            )
        return value


def _shapes(value: str) -> set[str]:
    """A secret as it may come back: itself, as JSON and Python write it inside quotes, and as URLs do."""
    in_url = {write(value, safe="", errors="backslashreplace") for write in (quote, quote_plus)}
    return {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1], *in_url}
