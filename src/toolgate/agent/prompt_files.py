"""The templates of system prompts: those that come with Toolgate, and the operator's in their place.

The operator's are read anew when they change, and each is judged by its content as tools are: what nobody trusted is not
obeyed. A placeholder that is unknown is an error and not left in the text: the model would read it.
"""

import logging
import os
import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from toolgate.errors import SettingsError
from toolgate.trust import read_regular

MAX_PROMPT_FILE_BYTES = 100_000
MAX_PROMPT_FILES = 10_000
PREFIX = "agent.system."
MAIN, TOOLS, NATIVE, BEHAVIOURS = "main", "tools", "tools.native", "behaviours"
COMMON = frozenset({"date", "timezone", "tenant", "persona", "user"})
PLACEHOLDERS = {
    MAIN: COMMON | {"tools", "behaviours"},
    TOOLS: COMMON | {"tools"},
    NATIVE: COMMON,
    BEHAVIOURS: COMMON | {"behaviours"},
}
"""By template, the names that it may have in double braces."""
TOOL_PLACEHOLDERS = COMMON | {"name", "description"}

_TOOL_FILE = re.compile(r"tool\.([A-Za-z][A-Za-z0-9_-]{0,63})\Z")
_PLACEHOLDER = re.compile(r"\{\{\s*+([A-Za-z_][\w.-]*+)\s*+(\}\})?")

logger = logging.getLogger("toolgate")

Refusal = Callable[[Path, bytes], str | None]
"""Gives the reason why a file with this content is not obeyed; None if it is."""


class Template(NamedTuple):
    """A text with names in double braces."""

    where: str
    """The file, for messages."""
    text: str

    def check(self, names: frozenset[str]) -> None:
        """Raises SettingsError for a placeholder that is none of these, or is not closed."""
        for found in _PLACEHOLDER.finditer(self.text):
            if found[2] is None or found[1] not in names:
                what = f"{{{{{found[1]}}}}} is unknown" if found[2] else f"{{{{{found[1]} is not closed by }}}}"
                line = self.text.count("\n", 0, found.start()) + 1
                raise SettingsError(
                    f"{self.where}, line {line}: {what}.",
                    suggestion=f"Known there: {', '.join(f'{{{{{name}}}}}' for name in sorted(names))}.",
                )

    def filled(self, values: Mapping[str, str]) -> str:
        """The text with values in place of the names. What stands in a value is not looked at again."""
        return _PLACEHOLDER.sub(lambda found: values[found[1]], self.text)


class PromptTexts(NamedTuple):
    """All templates, as they are now."""

    sections: Mapping[str, Template]
    tools: Mapping[str, Template]
    """By name of the tool: what a model is told of it."""


class PromptFiles:
    """The folder of the operator's templates."""

    def __init__(self, folder: Path | None, refusal: Refusal) -> None:
        self._folder, self._refusal = folder, refusal
        self._own = {
            name: Template(
                f"{PREFIX}{name}.md", (files(__package__) / "templates" / f"{PREFIX}{name}.md").read_text("utf-8")
            )
            for name in PLACEHOLDERS
        }
        self._read: dict[Path, tuple[tuple[int, ...], Template]] = {}

    @property
    def is_replaced(self) -> bool:
        """True if there is a folder of the operator's: then `load` reads files."""
        return self._folder is not None

    def load(self) -> PromptTexts:
        """Reads what has changed. Raises SettingsError for a file that cannot be used."""
        if self._folder is None:
            return PromptTexts(self._own, {})
        sections, tools = dict(self._own), {}
        for file in self._listed(self._folder):
            name = file.name.removeprefix(PREFIX).removesuffix(".md")
            tool = _TOOL_FILE.match(name)
            if name not in PLACEHOLDERS and tool is None:
                known = ", ".join(f"{PREFIX}{one}.md" for one in PLACEHOLDERS)
                raise SettingsError(
                    f"{file} is no prompt file that Toolgate knows.",
                    suggestion=f"They are {known} and {PREFIX}tool.NAME.md.",
                )
            template = self._template(file, TOOL_PLACEHOLDERS if tool else PLACEHOLDERS[name])
            if tool:
                tools[tool[1]] = template
            else:
                sections[name] = template
        return PromptTexts(sections, tools)

    def _listed(self, folder: Path) -> list[Path]:
        try:
            names = sorted(entry.name for entry in os.scandir(folder))
        except OSError as error:
            raise SettingsError(
                f"The folder of prompt files {folder} cannot be read: {error.strerror or error}.",
                suggestion="Make it, or change the setting agent.prompts.",
            ) from error
        found = [folder / name for name in names if name.startswith(PREFIX) and name.endswith(".md")]
        if len(found) > MAX_PROMPT_FILES:
            raise SettingsError(f"{folder} holds more than {MAX_PROMPT_FILES:,} prompt files.")
        return found

    def _template(self, file: Path, names: frozenset[str]) -> Template:
        """A template as it is now; as it was before, if it was changed and cannot be used so."""
        known = self._read.get(file)
        try:
            status = file.stat()
            state = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if known is not None and known[0] == state:
                return known[1]
            template = self._fresh(file, names)
        except OSError as error:
            raise _unusable(file, error.strerror or str(error)) from error
        except SettingsError as error:
            if known is None:
                raise
            logger.warning("%s It stays as it was.", error)
            template = known[1]
        self._read[file] = state, template
        return template

    def _fresh(self, file: Path, names: frozenset[str]) -> Template:
        content = read_regular(file)
        refused = self._refusal(file, content)
        if refused is None and len(content) > MAX_PROMPT_FILE_BYTES:
            refused = f"it has more than {MAX_PROMPT_FILE_BYTES:,} bytes"
        if refused is not None:
            raise _unusable(file, refused)
        try:
            template = Template(str(file), content.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise _unusable(file, "it is not text in UTF-8") from error
        template.check(names)
        return template


def _unusable(file: Path, why: str) -> SettingsError:
    return SettingsError(f"The prompt file {file} is not used: {why}.", suggestion="Correct it, or remove it.")
