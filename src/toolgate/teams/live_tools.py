"""Takes the accepted tools of the organisation into the catalog, in every process and while calls go on.

What runs is the file that a person accepted, from the store: neither the network nor the newest bundle has a part in it.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable

from toolgate.errors import DefinitionError
from toolgate.model import Entry
from toolgate.registry.catalog import PROBLEMS, Catalog, ToolProblem
from toolgate.registry.compile import DefinitionRules
from toolgate.settings.teams import TeamSettings
from toolgate.store import teams as table
from toolgate.store.database import Store
from toolgate.teams.tool_files import LOCAL_TOOLS_RULE, parse_tool

logger = logging.getLogger(PROBLEMS)


class LiveTools:
    """The organisation's tools that can be called. One for each App."""

    def __init__(
        self,
        settings: TeamSettings,
        store: Store,
        catalog: Catalog,
        rules: DefinitionRules,
        *,
        register: Callable[[Entry], object],
        forget: Callable[[], object],
        refuse_local: Callable[[str | None], Awaitable[None]],
    ) -> None:
        """`register` puts an entry into the catalog and on record; `forget` drops earlier decisions; `refuse_local` is told
        who refuses local tools, None: nobody."""
        self.settings = settings
        self._store = store
        self._catalog = catalog
        self._rules = rules
        self._register = register
        self._forget = forget
        self._refuse_local = refuse_local
        self._live: dict[str, tuple[str, Entry]] = {}
        """By name, the fingerprint that was accepted and what is in the catalog."""
        self.names: frozenset[str] = frozenset()
        """Of all its tools, also those that wait or were rejected."""
        self._problems: dict[str, ToolProblem] = {}
        self.refuses_local = False
        """True if the organisation refuses local tools, and a person has accepted that."""

    @property
    def problems(self) -> list[ToolProblem]:
        """Accepted tools that can't be used, and why."""
        return list(self._problems.values())

    def is_live(self, name: str) -> bool:
        return self.refuses_local if name == LOCAL_TOOLS_RULE else name in self._live

    def keeps(self, name: str) -> bool:
        """True for names of its tools, accepted or not: nobody else may have one."""
        return name in self.names

    def why_not(self, name: str) -> str | None:
        """The reason why a tool of this name can't be used here, whoever accepts it."""
        why = self.why_refused(name)
        if why is not None:
            return why
        tenant = next((tenant for tenant, known in self._catalog.tenant_names() if known == name), None)
        return None if tenant is None else f"the name is taken by a tool that tenant {tenant} registered at run time"

    def why_refused(self, name: str) -> str | None:
        """The reason why a bundle with a tool of this name is refused. A tenant's tool is none: else a tenant could keep
        all that a bundle changes and removes from everybody."""
        if self.settings.allowed_tools is not None and name not in self.settings.allowed_tools:
            return "the setting teams.allowed_tools does not name it"
        holder = self._catalog.find(name, "")
        if holder is not None and holder.tool.source != "teams":
            return f"the name is taken by a tool of source {holder.tool.source}"
        return None

    async def look(self) -> None:
        """Takes over what is on record now."""
        if not self.settings.uses_tools or self.settings.org_id is None:
            return
        rows = await self._store.read(table.tools(self.settings.org_id))
        accepted = {row.name: row for row in rows if row.accepted is not None}
        self.names = frozenset(row.name for row in rows if self._is_allowed(row.name))
        rule = accepted.pop(LOCAL_TOOLS_RULE, None)
        self._use(accepted.values())
        enforced = [row.name for row in accepted.values() if row.accepted_enforced and row.name in self._live]
        self._catalog.enforce(enforced if self.settings.may_enforce else ())
        self.refuses_local = rule is not None and self.settings.may_enforce
        await self._refuse_local(f"organisation {self.settings.org_id}" if self.refuses_local else None)

    def _use(self, rows: Iterable[table.TeamToolRow]) -> None:
        """Puts accepted tools in the place of what was there; nothing is awaited in between."""
        wanted = {row.name: row for row in rows if self._is_allowed(row.name)}
        self._problems = {name: problem for name, problem in self._problems.items() if name in wanted}
        for name in self._live.keys() - wanted.keys():
            self._withdraw(name)
        for name, row in wanted.items():
            if self._live.get(name, ("",))[0] != row.accepted_hash:
                self._withdraw(name)
                self._put(row)

    def _is_allowed(self, name: str) -> bool:
        return self.settings.allowed_tools is None or name in self.settings.allowed_tools

    def _withdraw(self, name: str) -> None:
        _, entry = self._live.pop(name, (None, None))
        if entry is not None and self._catalog.holds(entry):
            self._catalog.remove(name)
            self._forget()

    def _put(self, row: table.TeamToolRow) -> None:
        try:
            entry = parse_tool(row.accepted or "", f"{row.name}.yml", self._rules).entry
            self._register(entry)
        except DefinitionError as error:
            problem = ToolProblem(f"tool {row.name} of organisation {row.org_id}", error.message)
            if self._problems.get(row.name) != problem:
                logger.warning("%s: %s", *problem)
            self._problems[row.name] = problem
        else:
            self._problems.pop(row.name, None)
            self._live[row.name] = row.accepted_hash or "", entry
