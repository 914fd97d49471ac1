"""The data that the policy looks at: six documents, and three that may be missing.

`PolicyData` makes them from what the catalog and the store know. One decision of the shipped policy needs a handful of
values, so it is given a slice that holds no more; a policy of the user's, or an OPA server, gets all of it.
Documents that come from outside (a file) are `GivenDocument`, and refused with all that is wrong with them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from toolgate.errors import ToolgateError, nearest
from toolgate.jsontext import UNKNOWN_ARGUMENT, find_not_json, schema_faults

Documents = dict[str, Any]
EMPTY_DOCUMENTS: Documents = {
    **{name: {} for name in ("tool_catalog", "tenant_tool_flags", "persona_tool_deny", "persona_permissions")},
    **{name: [] for name in ("global_tool_deny", "code_execution_restricted_tenants")},
}
"""Those that must be there."""
UNRESTRICTED = "unrestricted"
Said = TypeVar("Said", bool, str)


class PolicyError(ToolgateError):
    """The policy, or its data, can't be used."""

    def __init__(self, message: str | None = None, *, line: int | None = None, suggestion: str | None = None) -> None:
        super().__init__(message, suggestion=suggestion)
        self.line = line


class AllowList(NamedTuple):
    """The tools that the callers of a tenant have, and no others: by persona, and for callers without one."""

    personas: Mapping[str, frozenset[str]]
    no_persona: frozenset[str] | None = None
    """None: there is no list for them."""
    everybody: frozenset[str] = frozenset()
    """Tools that are on each of the lists, and that callers have for whom there is none."""
    unlisted_unrestricted: bool = False
    """True: callers for whom there is no list have what they would have without any; False: they have nothing."""

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> "AllowList":
        """The list that a document of the right shape holds."""
        nobody = document.get("no_persona")
        return cls(
            {persona: frozenset(tools) for persona, tools in document["personas"].items()},
            None if nobody is None else frozenset(nobody),
            frozenset(document.get("everybody", ())),
            document.get("unlisted_personas") == UNRESTRICTED,
        )

    def document(self) -> Documents:
        found: Documents = {"personas": {persona: sorted(tools) for persona, tools in sorted(self.personas.items())}}
        if self.no_persona is not None:
            found["no_persona"] = sorted(self.no_persona)
        if self.everybody:
            found["everybody"] = sorted(self.everybody)
        if self.unlisted_unrestricted:
            found["unlisted_personas"] = UNRESTRICTED
        return found

    def tools_of(self, persona: str | None) -> frozenset[str] | None:
        """The tools that a caller has by it; None: it does not restrict this caller."""
        found = self.no_persona if persona is None else self.personas.get(persona)
        if found is None and self.unlisted_unrestricted:
            return None
        if found is None or not self.everybody:
            return found or self.everybody
        return found | self.everybody


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
        allow_lists: Mapping[str, AllowList] | None = None,
        tenant_names: Callable[[], Iterable[tuple[str, str]]] = tuple,
        epoch: int = 0,
    ) -> None:
        self.entry = catalog
        """Gives the catalog's entry of a tool that a tenant has: at least `enabled` and `requires_permission`."""
        self._names = names
        self._tenant_names = tenant_names
        self.enforced = frozenset(enforced)
        self.tenants = self._without_enforced(tenants or {})
        self.personas = self._without_enforced(personas or {})
        self.can_add_tools = can_add_tools or {}
        self.global_deny = self._without_enforced({"": global_deny or {}})[""]
        self.restricted_tenants = frozenset(restricted_tenants)
        self.allow_lists = allow_lists or {}
        self.epoch = epoch

    def _without_enforced(self, lists: Mapping[str, Mapping[str, Said]]) -> Mapping[str, Mapping[str, Said]]:
        """Leaves out what is said of tools that the organisation enforces: nobody below it can take them away."""
        if not self.enforced:
            return lists
        return {
            name: {tool: said for tool, said in listed.items() if tool not in self.enforced}
            for name, listed in lists.items()
        }

    def flag(self, tool: str, tenant: str) -> bool | None:
        """A tenant's own flag."""
        return self.tenants.get(tenant, {}).get(tool)

    def listed(self, tenant: str, persona: str | None) -> Collection[str] | None:
        """The tools that an allow list leaves a caller, with those that the organisation enforces; None: no list does."""
        allowed = self.allow_lists.get(tenant)
        tools = None if allowed is None else allowed.tools_of(persona)
        return tools if tools is None or not self.enforced else tools | self.enforced

    def hidden_by_list(self, tenant: str, persona: str | None) -> set[str]:
        """The tools of a tenant that its allow list keeps from a caller."""
        listed = self.listed(tenant, persona)
        if listed is None:
            return set()
        own = (name for whose, name in self._tenant_names() if whose == tenant)
        return {name for names in (self._names(), own) for name in names if name not in listed}

    def slice(self, tenant: str, persona: str | None, tool: str) -> Documents:
        """The documents that one decision of the shipped policy needs."""
        entry, flag = self.entry(tool, tenant), self.flag(tool, tenant)
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
        listed = self.listed(tenant, persona)
        if listed is not None:
            tools = [tool] if tool in listed else []
            held = {"personas": {}, "no_persona": tools} if persona is None else {"personas": {persona: tools}}
            documents["tenant_tool_allow"] = {tenant: held}
        return documents

    def whole(self) -> Documents:
        """All of it. Tools that only one tenant has stand apart, in tenant_tool_catalog."""
        return {
            "tool_catalog": {name: dict(entry) for name in self._names() if (entry := self.entry(name, "")) is not None},
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
            **self._allow_documents(self.allow_lists),
        }

    def _allow_documents(self, tenants: Iterable[str]) -> Documents:
        """The document of allow lists, with what the organisation enforces on each; none if no tenant has a list."""
        lists = {tenant: self.allow_lists[tenant] for tenant in tenants if tenant in self.allow_lists}
        if not lists:
            return {}
        everywhere = {tenant: one._replace(everybody=one.everybody | self.enforced) for tenant, one in lists.items()}
        return {"tenant_tool_allow": {tenant: one.document() for tenant, one in everywhere.items()}}

    def of_tenant(self, tenant: str) -> Documents:
        """All that concerns one tenant, without what is said of others and of personas, who are of all tenants."""
        whole = self.whole()
        own = {name: {tenant: whole[name].get(tenant, {})} for name in ("tenant_tool_catalog", "tenant_tool_flags")}
        return {
            **EMPTY_DOCUMENTS,
            **own,
            "tool_catalog": whole["tool_catalog"],
            "global_tool_deny": whole["global_tool_deny"],
            "code_execution_restricted_tenants": [tenant] if tenant in self.restricted_tenants else [],
            **self._allow_documents((tenant,)),
        }

    def _own_tools(self) -> dict[str, dict[str, Any]]:
        own: dict[str, dict[str, Any]] = {}
        for tenant, name in self._tenant_names():
            entry = self.entry(name, tenant)
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

    def slice(self, tenant: str, persona: str | None, tool: str) -> Documents:  # noqa: ARG002 - they are few, and asked once
        return self._documents

    def whole(self) -> Documents:
        return self._documents


NO_POLICY_DATA = PolicyData(lambda _tool, _tenant: None, tuple)
"""Before there is data: nothing is in the catalog, so everything is denied."""


# -- documents from outside


def _by_name(value: Documents) -> Documents:
    return {"type": "object", "propertyNames": {"minLength": 1}, "additionalProperties": value}


def _flags(name: str, **others: Documents) -> Documents:
    return {"type": "object", "required": [name], "properties": {name: {"type": "boolean"}, **others}}


_NAMES = {"type": "array", "items": {"type": "string", "minLength": 1}}
_TEXTS = _by_name({"type": "string"})
_CATALOG = _by_name(
    _flags(
        "enabled", requires_permission={"type": ["string", "null"], "minLength": 1}, runs_code={"type": "boolean"}, tier={}
    )
)
ALLOW_LIST_SCHEMA: Documents = {
    "type": "object",
    "required": ["personas"],
    "additionalProperties": False,
    "properties": {
        "personas": _by_name(_NAMES),
        "no_persona": _NAMES,
        "everybody": _NAMES,
        "unlisted_personas": {"enum": ["deny", UNRESTRICTED]},
    },
}
ALLOW_LIST_KEYS = tuple(ALLOW_LIST_SCHEMA["properties"])
DOCUMENTS_SCHEMA: Documents = {
    "type": "object",
    "required": list(EMPTY_DOCUMENTS),
    "additionalProperties": False,
    "properties": {
        "tool_catalog": _CATALOG,
        "tenant_tool_catalog": _by_name(_CATALOG),
        "tenant_tool_flags": _by_name(_by_name(_flags("enabled"))),
        "persona_tool_deny": _by_name(_NAMES),
        "persona_permissions": _by_name(_flags("can_add_tools")),
        "tenant_tool_allow": _by_name(ALLOW_LIST_SCHEMA),
        "global_tool_deny": _NAMES,
        "code_execution_restricted_tenants": _NAMES,
        "deny_reasons": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"personas": _by_name(_TEXTS), "everybody": _TEXTS},
        },
    },
}


def validate(documents: Any) -> list[str]:
    """The faults of documents; none may be missing, and each must have its shape."""
    return told_faults(DOCUMENTS_SCHEMA, documents, "is no document of a policy")


def told_faults(schema: Documents, value: Any, unknown: str, known: Collection[str] = ()) -> list[str]:
    """The faults of what a person wrote into a file, as sentences; `unknown` is said of a name that the schema does not
    have, with the one of `known` that was meant."""
    from jsonschema_rs import Draft202012Validator

    if (wrong := find_not_json(value)) is not None:
        return [f"{wrong.path or 'it'} {wrong.message}"]
    found = []
    for path, message in schema_faults(Draft202012Validator(schema), value):
        if message == UNKNOWN_ARGUMENT:
            near = nearest(path.rpartition(".")[2], known)
            message = unknown + (f", did you mean {near}" if near else "")
        found.append(f"{path or 'it'} {message}")
    return found
