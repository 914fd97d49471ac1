"""Which tools may be given which secrets by reference, and for which tenant: the setting `secrets.use`.

A tool is known by its name together with where it comes from, since a name alone can be taken: a tenant registers a tool, a
file appears in a folder, another server offers a tool of that name. Nothing is named by default.
"""

import re
from collections.abc import Iterable, Mapping

from toolgate.errors import Denied, SettingsError
from toolgate.model import Entry
from toolgate.settings import SecretUse

Origin = tuple[str, str]
"""Where a tool comes from (`code`, `mcp:SERVER`, or its source), and what it is called there."""
CODE = "code"
EVERY_TENANT = "*"
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
"""What YAML takes for text without quotes; a few more words it would not, which are quoted too."""
YAML_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


class Uses:
    """What the setting allows, ready to be asked."""

    def __init__(self, use: Mapping[str, Iterable[SecretUse]]) -> None:
        self._tenants: dict[tuple[str, Origin], set[str]] = {}
        for name, allowed in use.items():
            for one in allowed:
                self._tenants.setdefault((name.upper(), _origin_in(one)), set()).add(one.tenant)

    def refusal(self, name: str, entry: Entry, tenant: str) -> Denied | None:
        """Why a caller of a tenant may not have a secret put into the arguments of a tool; None: it may."""
        origin = origin_of(entry)
        if origin is None:
            return _never(name, entry)
        tenants = self._tenants.get((name.upper(), origin), ())
        if tenant in tenants or EVERY_TENANT in tenants:
            return None
        return Denied(
            "PERMISSION_DENIED",
            f"The secret {name!r} may not be put into {entry.name} for tenant {tenant}: no setting names it.",
            suggestion=f"To allow it, the operator writes in the settings: {setting(name, origin, tenant)}",
            details={"reference": name, "setting": "secrets.use"},
        )

    def check(self, entries: Iterable[Entry]) -> None:
        """Raise SettingsError if a tool is named that can't be given a secret."""
        named = {origin for _, origin in self._tenants}
        for entry in entries if named else ():
            if entry.tool.pure and (CODE, entry.name) in named:
                raise SettingsError(
                    f"The setting secrets.use names {entry.name}, which can't be given a secret: it only transforms "
                    "what its caller writes, so its output would be the secret in another form.",
                    suggestion=f"Take {entry.name} out of secrets.use.",
                )


def is_code(entry: Entry) -> bool:
    """Whether a tool is code that the operator installed: built in, or of Python."""
    return entry.tool.source in ("builtin", "python") and entry.tool.tenant is None


def origin_of(entry: Entry) -> Origin | None:
    """Where a tool comes from; None if it can't be named: a pure one, a tenant's own, or a method of a server."""
    tool = entry.tool
    if tool.pure or tool.tenant is not None or tool.source == "dynamic":
        return None
    if tool.source == "mcp":
        target = entry.implementation
        return (f"mcp:{target.server}", target.name) if target.method == "tools/call" else None
    return (CODE if is_code(entry) else tool.source), entry.name


def setting(name: str, origin: Origin, tenant: str) -> str:
    """What has to be written for a secret to be allowed, on one line of YAML."""
    source, tool = origin
    parts = {"tool": tool, "tenant": tenant}
    if source.startswith("mcp:"):
        parts["server"] = source.removeprefix("mcp:")
    elif source != CODE:
        parts["source"] = source
    inner = ", ".join(f"{key}: {_yaml(value)}" for key, value in parts.items())
    return f"secrets: {{use: {{{name.upper()}: [{{{inner}}}]}}}}"


def _origin_in(use: SecretUse) -> Origin:
    return (f"mcp:{use.server}" if use.server is not None else use.source or CODE), use.tool


def _never(name: str, entry: Entry) -> Denied:
    why = "only transforms what its caller writes" if entry.tool.pure else "is no tool that secrets.use can name"
    if entry.tool.tenant is not None:
        why = "was registered by a tenant"
    return Denied(
        "PERMISSION_DENIED",
        f"The secret {name!r} is never put into {entry.name}, which {why}.",
        suggestion="Refer to it in a call of the tool that needs it, if the setting secrets.use names that tool.",
        details={"reference": name},
    )


def _yaml(text: str) -> str:
    if PLAIN.match(text) and text.lower() not in YAML_WORDS:
        return text
    return "'" + text.replace("'", "''") + "'"
