"""The tools of local folders, YAML and Python files, which the settings or an organisation can refuse."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from toolgate.model import Entry
from toolgate.registry.catalog import ToolProblem, ToolSource
from toolgate.registry.python_source import FolderSource
from toolgate.sandbox.custom.folder import CompiledCode, CustomFolder, CustomTools

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts
    from toolgate.app.tools import ToolsFacet

SETTING = "the setting enforcement.disable_local_tools"


def make_custom_tools(parts: "Parts") -> CustomTools | None:
    """The YAML tools of the data folder; None if the settings have none loaded."""
    settings = parts.settings
    if not settings.auto_load_custom_tools or settings.enforcement.disable_local_tools:
        return None
    return CustomTools(
        CustomFolder(settings.home / "tools", parts.rules, parts.project.refusal),
        parts.catalog,
        parts.catalog_sync.register,
        parts.guard.forget,
        CompiledCode(parts.sandbox, None if settings.in_memory else parts.project.compiled_file).check,
    )


class LocalTools:
    """Loads the tools of local folders, takes them out when somebody refuses them, and loads them again."""

    def __init__(self, parts: "Parts") -> None:
        self._parts = parts
        self._tools: ToolsFacet | None = None
        self._python: list[Entry] = []
        self.refused_by: str | None = SETTING if parts.settings.enforcement.disable_local_tools else None
        """The setting or organisation that refuses them; None: nobody."""

    @property
    def problems(self) -> list[ToolProblem]:
        """The folders whose tools are refused, and by whom."""
        if self.refused_by in (None, SETTING):  # of what the settings say, the operator need not be told
            return []
        settings = self._parts.settings
        folders = dict.fromkeys((settings.home / "tools", *settings.python_folders))
        why = f"its tools are refused: local tools are disabled by {self.refused_by} (enforcement.disable_local_tools)"
        return [ToolProblem(str(folder), why) for folder in folders if folder.is_dir() and any(folder.iterdir())]

    def start(self, tools: "ToolsFacet") -> None:
        """Loads those of Python files, unless they are refused."""
        self._tools = tools
        if self.refused_by is None:
            self._load_python()

    def start_custom(self) -> None:
        """Loads those of YAML files, which come after workflows."""
        if self.refused_by is None and self._parts.custom is not None:
            self._parts.custom.start()

    async def refuse(self, by: str | None) -> None:
        """Takes them out of the catalog on behalf of somebody; None: nobody but the settings refuses them now."""
        by = SETTING if self._parts.settings.enforcement.disable_local_tools else by
        before, self.refused_by = self.refused_by, by
        if self._tools is None or (before is None) == (by is None):
            return
        if by is None:
            self._load_python()
            self.start_custom()
        else:
            await self._unload()

    def _load_python(self) -> None:
        parts = self._parts
        if self._tools is None or not parts.settings.auto_load_custom_tools:
            return
        for folder in parts.settings.python_folders:
            self._tools.load(_Noted(FolderSource(folder, parts.rules, parts.project.refusal), self._python))

    async def _unload(self) -> None:
        parts = self._parts
        for entry in self._python:
            if parts.catalog.holds(entry):
                parts.catalog.remove(entry.name)
        self._python.clear()
        if parts.custom is not None:
            await parts.custom.unload()
        parts.guard.forget()


class _Noted:
    """A source whose entries are noted as they are loaded."""

    def __init__(self, source: ToolSource, entries: list[Entry]) -> None:
        self.name = source.name
        self._source = source
        self._entries = entries

    def load(self) -> Iterator[Entry | ToolProblem]:
        for loaded in self._source.load():
            if isinstance(loaded, Entry):
                self._entries.append(loaded)
            yield loaded
