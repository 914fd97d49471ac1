"""The setting `secrets.use`: which tools may be given which secrets by reference, for which tenant, and to be sent where."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolgate.errors import Denied, SettingsError, ToolgateError
from toolgate.model import Entry
from toolgate.network.allowed_hosts import DEFAULT_PORTS, AllowedHosts, parse_host_rule
from toolgate.network.urls import parse_url
from toolgate.settings import SecretUse

Origin = tuple[str, str]
"""Where a tool comes from (`code`, `mcp:SERVER`, or its source), and what it is called there."""
CODE = "code"
EVERY_TENANT = "*"
URL_ARGUMENTS = ("url", "agent_url")
"""Arguments of built-in tools by which a caller chooses where a request goes."""
PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
"""What YAML takes for text without quotes; a few more words it would not, which are quoted too."""
YAML_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


class Uses:
    """The setting `secrets.use`: which tools may be given which secrets by reference, and for which tenant. A tool is known
    by its name together with where it comes from, since a name alone can be taken: a tenant registers a tool, a file appears
    in a folder, another server offers a tool of that name. Nothing is named by default. A built-in tool whose caller chooses
    where its request goes gets a secret only for hosts that are named with it: else any host could be sent it."""

    def __init__(self, use: Mapping[str, Iterable[SecretUse]]) -> None:
        self._uses: dict[tuple[str, Origin], list[SecretUse]] = {}
        for name, allowed in use.items():
            for one in allowed:
                origin = (f"mcp:{one.server}" if one.server is not None else one.source or CODE), one.tool
                self._uses.setdefault((name.upper(), origin), []).append(one)

    def refusal(
        self, name: str, entry: Entry, tenant: str, arguments: Any = None, reached: Sequence[str] = ()
    ) -> Denied | None:
        """The denial of a secret in the arguments of a tool, for a caller of a tenant; None: it may be put there.
        `reached`: the hosts that a command of the call can reach; it may send what it is given to each of them."""
        origin = origin_of(entry)
        if origin is None:
            return _never(name, entry)
        place = place_of(entry, arguments)
        for one in self._uses.get((name.upper(), origin), ()):
            if one.tenant in (tenant, EVERY_TENANT) and _may_be_sent(one.hosts, place, reached):
                return None
        return Denied(
            "PERMISSION_DENIED",
            f"The secret {name!r} may not be put into {entry.name} for tenant {tenant}"
            f"{' and this host' if place is not None else ' and the hosts of this command' if reached else ''}: "
            "no setting names it.",
            suggestion=f"To allow it, the operator writes in the settings: {setting(name, origin, tenant, place, reached)}",
            details={"reference": name, "setting": "secrets.use"},
        )

    def names_for(self, entry: Entry) -> list[str]:
        """The secrets that callers may have put into the arguments of a tool."""
        origin = origin_of(entry)
        return [name for name, named in self._uses if named == origin]

    def check(self, entries: Iterable[Entry]) -> None:
        """Raise SettingsError if a tool is named that can't be given a secret."""
        named = {origin for _, origin in self._uses}
        for entry in entries if named else ():
            if entry.tool.pure and (CODE, entry.name) in named:
                raise SettingsError(
                    f"The setting secrets.use names {entry.name}, which cannot be given a secret: it only transforms "
                    "what its caller writes, so its output would be the secret in another form.",
                    suggestion=f"Take {entry.name} out of secrets.use.",
                )


def is_code(entry: Entry) -> bool:
    """True of a tool that is code which the operator installed: built in, or of Python."""
    return entry.tool.source in ("builtin", "python") and entry.tool.tenant is None


def gets_its_credential(entry: Entry) -> bool:
    """True of a tool that is given the credential it declares without being named: the operator's code, and workflows, which
    only the operator's settings declare or open to a tenant (`registration.workflows`). No other dynamic tool has any."""
    if entry.tool.source == "dynamic":
        return entry.tool.workflow is not None
    return is_code(entry) or (entry.tool.source == "workflow" and entry.tool.tenant is None)


def origin_of(entry: Entry) -> Origin | None:
    """The origin of a tool; None if it can't be named: a pure one, a tenant's own, or a method of a server."""
    tool = entry.tool
    if tool.pure or tool.tenant is not None or tool.source == "dynamic":
        return None
    if tool.source == "mcp":
        target = entry.implementation
        return (f"mcp:{target.server}", target.name) if target.method == "tools/call" else None
    return (CODE if is_code(entry) else tool.source), entry.name


def place_of(entry: Entry, arguments: Any) -> str | None:
    """Where a call of a built-in tool would send its request, as its caller wrote it; None: the caller does not choose."""
    if entry.tool.source != "builtin":
        return None
    names = entry.tool.input_schema.get("properties") or {}
    chosen = next((name for name in URL_ARGUMENTS if name in names), None)
    if chosen is None:
        return None
    given = arguments.get(chosen) if isinstance(arguments, Mapping) else None
    return given if isinstance(given, str) else ""


def _may_be_sent(hosts: tuple[str, ...], place: str | None, reached: Sequence[str]) -> bool:
    """True if a secret that is named for these hosts may be given to a call that goes to a place, or reaches some hosts."""
    if reached:
        return bool(hosts) and all(_covers(hosts, one) for one in reached)
    return _leads_to(place, hosts) if hosts else place is None


def _covers(hosts: tuple[str, ...], reached: str) -> bool:
    """True if what a command can reach by one entry of its list is among these hosts."""
    rule = parse_host_rule(reached)
    if rule.wildcard:
        return rule in map(parse_host_rule, hosts)
    allowed = AllowedHosts(hosts)
    return all(allowed.leave(rule.host, port) for port in (DEFAULT_PORTS if rule.port is None else (rule.port,)))


def _leads_to(place: str | None, hosts: tuple[str, ...]) -> bool:
    """True if a URL leads to one of the hosts, or is itself a name that is listed, as agents have in the settings."""
    if not place:
        return False
    try:
        url = parse_url(place)
    except ToolgateError:
        return place in hosts
    return AllowedHosts(hosts).leave(url.host, url.port) is not None


def _host(place: str) -> str:
    try:
        return parse_url(place).authority
    except ToolgateError:
        return "HOST"


def setting(name: str, origin: Origin, tenant: str, place: str | None = None, reached: Sequence[str] = ()) -> str:
    """The setting that allows a secret, on one line of YAML."""
    source, tool = origin
    parts = {"tool": tool, "tenant": tenant}
    if source.startswith("mcp:"):
        parts["server"] = source.removeprefix("mcp:")
    elif source != CODE:
        parts["source"] = source
    inner = ", ".join(f"{key}: {_yaml(value)}" for key, value in parts.items())
    hosts = list(reached) if place is None else [_host(place)]
    if hosts:
        inner += f", hosts: [{', '.join(map(_yaml, hosts))}]"
    return f"secrets: {{use: {{{name.upper()}: [{{{inner}}}]}}}}"


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
