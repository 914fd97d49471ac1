"""What the policy looks at: document D's six data documents, and two that may be missing.

`PolicyData` makes them from what the catalog and the store know. One decision of the shipped policy needs a handful of
values, so it is given a slice that holds no more; a policy of the user's, or an OPA server, gets all of it.
Documents that come from outside (a file) are `GivenDocument`, and refused with all that is wrong with them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from toolgate.errors import ToolgateError

Documents = dict[str, Any]
OBJECTS = ("tool_catalog", "tenant_tool_flags", "persona_tool_deny", "persona_permissions")
LISTS = ("global_tool_deny", "code_execution_restricted_tenants")
REQUIRED = (*OBJECTS, *LISTS)
OPTIONAL = ("tenant_tool_catalog", "deny_reasons")
MAX_FAULTS_TOLD = 20
Said = TypeVar("Said", bool, str)


class PolicyError(ToolgateError):
    """The policy, or its data, can't be used."""

    def __init__(self, message: str | None = None, *, line: int | None = None, suggestion: str | None = None) -> None:
        super().__init__(message, suggestion=suggestion)
        self.line = line


class Data(Protocol):
    """Documents, whole or as much as one decision of the shipped policy needs."""

    @property
    def epoch(self) -> int:
        """Counts up, in all processes alike, when the documents change."""

    def slice(self, tenant: str, persona: str | None, tool: str) -> Documents: ...
    def whole(self) -> Documents: ...


class PolicyData:
    """The documents of this installation. What is a mapping here is as it was when this was made; the catalog is asked
    each time."""

    def __init__(
        self,
        catalog: Callable[[str, str], Mapping[str, Any] | None],
        names: Callable[[], Iterable[str]],
        tenants: Mapping[str, Mapping[str, bool]] | None = None,
        personas: Mapping[str, Mapping[str, str]] | None = None,
        can_add_tools: Mapping[str, bool] | None = None,
        global_deny: Mapping[str, str] | None = None,
        restricted_tenants: Collection[str] = (),
        enforced: Collection[str] = (),
        *,
        tenant_names: Callable[[], Iterable[tuple[str, str]]] = tuple,
        epoch: int = 0,
    ) -> None:
        self._catalog = catalog
        self._names = names
        self._tenant_names = tenant_names
        self.enforced = frozenset(enforced)
        self.tenants = self._without_enforced(tenants or {})
        self.personas = self._without_enforced(personas or {})
        self.can_add_tools = can_add_tools or {}
        self.global_deny = self._without_enforced({"": global_deny or {}})[""]
        self.restricted_tenants = frozenset(restricted_tenants)
        self.epoch = epoch

    def _without_enforced(self, lists: Mapping[str, Mapping[str, Said]]) -> Mapping[str, Mapping[str, Said]]:
        """Leaves out what is said of tools that the organisation enforces: nobody below it can take them away."""
        if not self.enforced:
            return lists
        return {
            name: {tool: said for tool, said in listed.items() if tool not in self.enforced}
            for name, listed in lists.items()
        }

    def entry(self, tool: str, tenant: str) -> Mapping[str, Any] | None:
        """What the catalog says of a tool that this tenant has: at least `enabled` and `requires_permission`."""
        return self._catalog(tool, tenant)

    def flag(self, tool: str, tenant: str) -> bool | None:
        """A tenant's own flag."""
        return self.tenants.get(tenant, {}).get(tool)

    def slice(self, tenant: str, persona: str | None, tool: str) -> Documents:
        """What one decision of the shipped policy needs."""
        entry, flag = self._catalog(tool, tenant), self.flag(tool, tenant)
        documents: Documents = {
            "tool_catalog": {} if entry is None else {tool: dict(entry)},
            "tenant_tool_flags": {} if flag is None else {tenant: {tool: {"enabled": flag}}},
            "persona_tool_deny": {},
            "global_tool_deny": [tool] if tool in self.global_deny else [],
            "code_execution_restricted_tenants": [tenant] if tenant in self.restricted_tenants else [],
            "persona_permissions": {},
        }
        if persona is not None:
            if persona in self.can_add_tools:
                documents["persona_permissions"] = {persona: {"can_add_tools": self.can_add_tools[persona]}}
            reason = self.personas.get(persona, {}).get(tool)
            if reason is not None:
                documents["persona_tool_deny"] = {persona: [tool]}
                documents["deny_reasons"] = {"personas": {persona: {tool: reason}}}
        if tool in self.global_deny:
            documents.setdefault("deny_reasons", {})["everybody"] = {tool: self.global_deny[tool]}
        return documents

    def whole(self) -> Documents:
        """All of it. Tools that only one tenant has stand apart, in tenant_tool_catalog."""
        return {
            "tool_catalog": {name: dict(entry) for name in self._names() if (entry := self._catalog(name, "")) is not None},
            "tenant_tool_catalog": self._own_tools(),
            "tenant_tool_flags": {
                tenant: {tool: {"enabled": on} for tool, on in flags.items()} for tenant, flags in self.tenants.items()
            },
            "persona_tool_deny": {persona: sorted(denied) for persona, denied in self.personas.items()},
            "global_tool_deny": sorted(self.global_deny),
            "code_execution_restricted_tenants": sorted(self.restricted_tenants),
            "persona_permissions": {persona: {"can_add_tools": can} for persona, can in self.can_add_tools.items()},
            "deny_reasons": {
                "personas": {persona: dict(denied) for persona, denied in self.personas.items()},
                "everybody": dict(self.global_deny),
            },
        }

    def _own_tools(self) -> dict[str, dict[str, Any]]:
        own: dict[str, dict[str, Any]] = {}
        for tenant, name in self._tenant_names():
            entry = self._catalog(name, tenant)
            if entry is not None:
                own.setdefault(tenant, {})[name] = dict(entry)
        return own


class GivenDocument:
    """Documents from outside, as they are. Raises PolicyError if anything is wrong with them."""

    epoch = 0

    def __init__(self, documents: Any) -> None:
        faults = validate(documents)
        if faults:
            raise PolicyError(f"The policy data is refused: {'; '.join(faults)}.")
        self._documents: Documents = documents

    def slice(self, tenant: str, persona: str | None, tool: str) -> Documents:
        documents = self._documents
        denied = documents["persona_tool_deny"].get(persona)
        return {
            "tool_catalog": _only(documents["tool_catalog"], tool),
            "tenant_tool_catalog": _only(documents.get("tenant_tool_catalog", {}), tenant),
            "tenant_tool_flags": {tenant: _only(documents["tenant_tool_flags"].get(tenant, {}), tool)},
            "persona_tool_deny": {} if denied is None else {persona: [tool] if tool in denied else []},
            "global_tool_deny": [tool] if tool in documents["global_tool_deny"] else [],
            "code_execution_restricted_tenants": (
                [tenant] if tenant in documents["code_execution_restricted_tenants"] else []
            ),
            "persona_permissions": {} if persona is None else _only(documents["persona_permissions"], persona),
            "deny_reasons": documents.get("deny_reasons", {}),
        }

    def whole(self) -> Documents:
        return self._documents


def _only(document: Mapping[str, Any], key: str) -> Documents:
    return {key: document[key]} if key in document else {}


NO_POLICY_DATA = PolicyData(lambda _tool, _tenant: None, tuple)
"""Before there is data: nothing is in the catalog, so everything is denied."""


# -- documents from outside


def validate(documents: Any) -> list[str]:
    """What is wrong with documents, at most MAX_FAULTS_TOLD; none may be missing, and each must have its shape."""
    if not isinstance(documents, dict):
        return ["the data must be an object with the documents by name"]
    faults = [f"{name} is missing" for name in REQUIRED if name not in documents]
    faults += [f"{name} is no document that is known here" for name in documents if name not in REQUIRED + OPTIONAL]
    for name, check in _SHAPES.items():
        if name in documents:
            faults += check(name, documents[name])
    return faults[:MAX_FAULTS_TOLD]


def _catalog_faults(path: str, value: Any) -> list[str]:
    return _each(path, value, _entry_faults)


def _entry_faults(path: str, value: Any) -> list[str]:
    faults = _boolean_faults(path, value, "enabled")
    needed = value.get("requires_permission") if isinstance(value, dict) else None
    if needed is not None and not _is_name(needed):
        faults.append(f"{path}.requires_permission must be text")
    if isinstance(value, dict) and not isinstance(value.get("runs_code", False), bool):
        faults.append(f"{path}.runs_code must be true or false")
    return faults


def _boolean_faults(path: str, value: Any, key: str) -> list[str]:
    if isinstance(value, dict) and isinstance(value.get(key), bool):
        return []
    return [f"{path} must be an object whose {key} is true or false"]


def _name_faults(path: str, value: Any) -> list[str]:
    if isinstance(value, list) and all(_is_name(part) for part in value):
        return []
    return [f"{path} must be a list of names"]


def _reason_faults(path: str, value: Any) -> list[str]:
    parts = value if isinstance(value, dict) else {}
    faults = [] if isinstance(value, dict) and set(parts) <= {"personas", "everybody"} else [f"{path} is malformed"]
    faults += _each(f"{path}.personas", parts.get("personas", {}), lambda at, part: _each(at, part, _text_faults))
    return faults + _each(f"{path}.everybody", parts.get("everybody", {}), _text_faults)


def _text_faults(path: str, value: Any) -> list[str]:
    return [] if isinstance(value, str) else [f"{path} must be text"]


def _each(path: str, value: Any, check: Callable[[str, Any], list[str]]) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path} must be an object"]
    faults = [f"{path} has an empty name"] if "" in value else []
    return faults + [fault for key, part in value.items() for fault in check(f"{path}.{key}"[:200], part)]


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value != ""


_SHAPES: dict[str, Callable[[str, Any], list[str]]] = {
    "tool_catalog": _catalog_faults,
    "tenant_tool_catalog": lambda path, value: _each(path, value, _catalog_faults),
    "tenant_tool_flags": lambda path, value: _each(
        path, value, lambda at, part: _each(at, part, lambda where, flag: _boolean_faults(where, flag, "enabled"))
    ),
    "persona_tool_deny": lambda path, value: _each(path, value, _name_faults),
    "persona_permissions": lambda path, value: _each(
        path, value, lambda at, part: _boolean_faults(at, part, "can_add_tools")
    ),
    "global_tool_deny": _name_faults,
    "code_execution_restricted_tenants": _name_faults,
    "deny_reasons": _reason_faults,
}
