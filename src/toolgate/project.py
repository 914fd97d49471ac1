"""The project folder as Toolgate finds it: which of its files would be obeyed, and whether a person agreed to them.

Obeyed are the settings file, the policy, the prompt files and the folders of Python tools that it names within the project,
the custom tools in the data folder, and the data folder itself with its database: it may have come with a clone or an
archive. What a person named (a path, a variable, an argument) is trusted by being named and is not judged here.

What is obeyed is compared with the record when it is read, from the same bytes: `refusal` is asked by whoever reads.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from toolgate.discovery import NOT_OBEYED, SETTINGS_FILE
from toolgate.errors import SettingsError
from toolgate.settings import Settings
from toolgate.store.data_folder import InUse
from toolgate.trust import (
    TRUST_ADVICE,
    TRUST_ADVICE_FOR_SEVERAL,
    TrustedContent,
    TrustRecords,
    Untrusted,
    digest,
    is_named,
    others_write,
    read_regular,
)

MARK_FILE = "id"
"""The file in the data folder that shows that Toolgate made the folder here: its digest is in the record."""
DATA_DESCRIPTION = "data folder: servers, grants, keys, secrets"
LEFTOVER_DESCRIPTION = "changes to the database that SQLite would take over"
UNREADABLE = "unreadable"
MAX_NAMED = 5
MAX_PACKAGE_DEPTH = 20

State = Literal["new", "changed", "gone", "trusted"]


class FoundFile(NamedTuple):
    """Something that would be obeyed."""

    name: str
    digest: str
    what: str
    caution: str = ""
    """Why a person should look twice."""


class TrustChange(NamedTuple):
    """A file that is there, compared with what was agreed to."""

    state: State
    found: FoundFile


class Project:
    """The project folder, for one App."""

    def __init__(self, settings: Settings) -> None:
        self.folder = settings.project
        self.records = TrustRecords(os.environ)
        self.is_named = is_named(self.folder, os.environ)
        """True if TOOLGATE_TRUST names it: nothing is asked then, and nothing recorded."""
        self._found_file = settings.found_file
        self._home = settings.home
        finds_home = "home" not in settings.named and self._is_mine(settings.home)
        self._judges_home = finds_home and not settings.in_memory
        policies = {"policy.file": (settings.policy.file,), "policy.observe": settings.policy.observe}
        self._policies = [
            file
            for setting, files in policies.items()
            for file in files
            if file is not None and setting not in settings.named and self._is_mine(file)
        ]
        self._python: list[Path] = []
        self._custom: list[Path] = []
        if settings.auto_load_custom_tools and not settings.enforcement.disable_local_tools:
            if settings.python_tools is None:
                self._python = list(settings.python_folders) if finds_home else []
            elif "python_tools" not in settings.named:
                self._python = [folder for folder in settings.python_tools if self._is_mine(folder)]
            self._custom = [settings.home / "tools"] if finds_home else []
        prompts = settings.agent.prompts
        self._prompts = prompts if "agent.prompts" not in settings.named and prompts and self._is_mine(prompts) else None
        self._agreed = TrustedContent()
        file = settings.database.removeprefix("sqlite:///")
        self.database = Path(os.path.abspath(file)) if file != settings.database else None  # noqa: PTH100
        """The file of SQLite; None: it is elsewhere, or in memory."""
        self._elsewhere = (
            self.database is not None and "database_url" not in settings.named and settings.database_url is not None
        ) and self._is_mine(Path(file))
        self._judges_database = self._elsewhere or (self._judges_home and settings.database_url is None)

    # -- what is there

    def found(self) -> list[FoundFile]:
        """All that would be obeyed, as it is now."""
        return [
            *self._settings_and_policy(),
            *self._prompt_files(),
            *self._tools(),
            *self._data(),
            *self._database_elsewhere(),
        ]

    def changes(self) -> list[TrustChange]:
        """All of it, compared with what was agreed to, and what is gone of that."""
        agreed = self.records.of(self.folder) or TrustedContent()
        changes = [TrustChange(self._state(agreed, found), found) for found in self.found()]
        gone = agreed.files.keys() - {change.found.name for change in changes}
        return [*changes, *(TrustChange("gone", FoundFile(name, "", "")) for name in sorted(gone))]

    def _state(self, agreed: TrustedContent, found: FoundFile) -> State:
        known = agreed.home if found.name == self._name(self._home) else agreed.files.get(found.name)
        return "new" if known is None else "trusted" if known == found.digest else "changed"

    def _settings_and_policy(self) -> Iterator[FoundFile]:
        if self._found_file is not None:
            file, content = self._found_file
            yield FoundFile(self._name(file), content, "settings", _caution(file))
        for file in self._policies:
            yield self._read(file, "policy: decides what is allowed, or is observed")

    def _prompt_files(self) -> Iterator[FoundFile]:
        for name in [] if self._prompts is None else _names(self._prompts):
            if name.endswith(".md"):
                yield self._read(Path(self._prompts or "", name), "prompt: what models are told")

    def _tools(self) -> Iterator[FoundFile]:
        for folder in self._python:
            for file in _python_files(folder):  # also those that are no tools: others may import them
                yield self._read(file, "Python tools: run inside Toolgate, unconfined")
        for folder in self._custom:
            for name in _names(folder):
                if name.lower().endswith((".yml", ".yaml")) and name[0] not in "._":
                    yield self._read(folder / name, "custom tool: runs in the sandbox")

    def _data(self) -> Iterator[FoundFile]:
        """The data folder, if there is something in it that Toolgate would go by."""
        if not self._judges_home:
            return
        name, caution = self._name(self._home), _caution(self._home)
        if self._home.is_symlink():
            target = os.fsencode(self._home.readlink())
            yield FoundFile(name, digest(target), f"{DATA_DESCRIPTION}; it is a link to {self._home.readlink()}", caution)
        elif not NOT_OBEYED.issuperset(_names(self._home)):
            try:
                yield FoundFile(name, digest(read_regular(self._home / MARK_FILE)), DATA_DESCRIPTION, caution)
            except OSError:
                yield FoundFile(name, "", DATA_DESCRIPTION, caution or "made elsewhere, or by an earlier version")
        for link in (self._home / inner for inner in _names(self._home)):
            if link.is_symlink():  # Toolgate makes none, and would write through it
                leads = os.fsencode(link.readlink())
                yield FoundFile(self._name(link), digest(leads), f"link in the data folder, to {os.fsdecode(leads)}")
        in_use = self._in_use() if self._judges_database else None
        for file in in_use.foreign() if in_use is not None else ():
            yield FoundFile(
                self._name(file), "", LEFTOVER_DESCRIPTION, "somebody brought it, or an earlier version was killed"
            )

    def _database_elsewhere(self) -> Iterator[FoundFile]:
        """A database that the settings have in the project, until it is known by its mark."""
        if self._elsewhere and self.database is not None and os.path.lexists(self.database):
            agreed = self.records.of(self.folder)
            if agreed is None or agreed.database is None:
                name = self._name(self.database)
                yield FoundFile(name, digest(os.fsencode(name)), "database: servers, grants, keys", _caution(self.database))

    def _read(self, file: Path, what: str) -> FoundFile:
        try:
            return FoundFile(self._name(file), digest(read_regular(file)), what, _caution(file))
        except OSError as error:
            return FoundFile(self._name(file), UNREADABLE, what, f"cannot be read: {error.strerror or error}")

    def _name(self, file: Path) -> str:
        """A file as it is recorded: seen from the project, or whole."""
        path = Path(os.path.abspath(file))  # noqa: PTH100 - links are what they are
        return str(path.relative_to(self.folder)) if path.is_relative_to(self.folder) else str(path)

    def _is_mine(self, path: Path) -> bool:
        """Tells whether a path lies in the project, as it is written or where it leads."""
        ways = (os.path.abspath(path), os.path.realpath(path))  # noqa: PTH100
        return any(Path(way).is_relative_to(self.folder) for way in ways)

    # -- what was agreed to

    @property
    def own_files(self) -> list[Path]:
        """The folder of the record, which no tool may open."""
        try:
            return [self.records.path.parent]
        except SettingsError:
            return []

    @property
    def compiled_file(self) -> Path | None:
        """The record of code that is known to compile: beside the record of trust; None where there is no place."""
        return next((folder / "compiled.json" for folder in self.own_files), None)

    def check(self) -> None:
        """Raises Untrusted if something would be obeyed that nobody agreed to."""
        if self.is_named or not self.found():
            return
        changes = self.changes()
        if any(change.state in ("new", "changed") for change in changes):
            with suppress(SettingsError), self.records.changing():
                pass  # wait for a process that has just made the data folder and is about to record it
            changes = self.changes()
        bad = [change for change in changes if change.state in ("new", "changed")]
        if bad:
            words = [f"{change.found.name} is {change.state}" for change in bad[:MAX_NAMED]]
            more = [f"and {len(bad) - MAX_NAMED} more"] if len(bad) > MAX_NAMED else []
            raise Untrusted(
                f"Files in {self.folder} are not trusted, so Toolgate does nothing here: {', '.join([*words, *more])}.",
                suggestion=TRUST_ADVICE if len(bad) == 1 else TRUST_ADVICE_FOR_SEVERAL,
            )
        self._agreed = TrustedContent({change.found.name: change.found.digest for change in changes})

    def refusal(self, file: Path, content: bytes) -> str | None:
        """Gives the reason why a file whose content was just read is not obeyed; None if it may be."""
        folders = (*self._python, *self._custom, *(() if self._prompts is None else (self._prompts,)))
        judged = file in self._policies or any(file.is_relative_to(folder) for folder in folders)
        if self.is_named or not judged:
            return None
        name, found = self._name(file), digest(content)
        if self._agreed.files.get(name) != found:
            with suppress(SettingsError):
                self._agreed = self.records.of(self.folder) or TrustedContent()  # somebody may have agreed since
        if self._agreed.files.get(name) == found:
            return None
        return "it is new or changed since it was trusted: look at it, then run `toolgate trust`"

    def agree(self, changes: list[TrustChange]) -> None:
        """Records, at the word of a person, what they were shown; not what may have taken its place meanwhile."""
        files: dict[str, str] = {}
        home: str | None = None
        accepts = False
        with self.records.changing() as records:
            for state, found in changes:
                if found.digest == UNREADABLE:
                    raise SettingsError(f"{found.name} cannot be trusted: it {found.caution}.", suggestion="Remove it.")
                if found.what == LEFTOVER_DESCRIPTION:
                    accepts = True
                elif found.name == self._name(self._home):
                    home = found.digest or self._marked()
                elif state != "gone":
                    files[found.name] = found.digest
            # Whichever database is there when Toolgate next opens it is recorded then.
            records[str(self.folder)] = TrustedContent(files, home, None, f"{datetime.now(UTC):%FT%TZ}")
        in_use = self._in_use() if accepts else None
        if in_use is not None:
            in_use.accept()

    def add(self, file: Path, content: bytes) -> None:
        """Records one file that a person's command has just written."""
        if not self.is_named and (file == self.folder / SETTINGS_FILE or file.parent in (*self._python, *self._custom)):
            with self.records.changing() as records:
                records.setdefault(str(self.folder), TrustedContent()).files[self._name(file)] = digest(content)

    def adopt(self) -> None:
        """Marks the data folder, which was just made or is trusted already, as made by Toolgate here."""
        if self.is_named or not self._judges_home or self._home.is_symlink():
            return
        agreed = self.records.of(self.folder)
        if agreed is None or agreed.home is None or not (self._home / MARK_FILE).exists():
            with self.records.changing() as records:
                records.setdefault(str(self.folder), TrustedContent()).home = self._marked()

    @property
    def judges_database(self) -> bool:
        """Tells whether the database is compared with the record."""
        return self._judges_database and not self.is_named

    def bind(self, mark: str, *, fresh: bool) -> None:
        """Compares the mark in the database with the record, and records that of a fresh one: a program such as git replaces
        ignored files without a question. Raises Untrusted."""
        agreed = self.records.of(self.folder) or TrustedContent()
        if agreed.database is not None and agreed.database != digest(mark.encode()) and not fresh:
            raise Untrusted(
                f"The database {self.database} is not the one that Toolgate made there, so it is not used.",
                suggestion="Find out where it came from. If that is right, run `toolgate trust` in that folder.",
            )
        if agreed.database is None or fresh:
            with self.records.changing() as records:
                records.setdefault(str(self.folder), TrustedContent()).database = digest(mark.encode())

    def use_database(self) -> InUse | None:
        """Says that the database in the data folder is in use, until `end` is called; None if there is no way to say it."""
        in_use = self._in_use()
        with suppress(OSError):
            if in_use is not None:
                in_use.begin()
            return in_use
        return None

    def _in_use(self) -> InUse | None:
        with suppress(OSError):
            if self.database is not None:
                return InUse(self.database, read_regular(self._home / MARK_FILE))
        return None

    def _marked(self) -> str:
        """The digest of the mark in the data folder, which is made if it is missing. To be called while the records are
        being changed, so that two processes do not make it at once."""
        file = self._home / MARK_FILE
        with suppress(FileExistsError), os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as mark:
            mark.write(secrets.token_hex(32))
        return digest(read_regular(file))


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


def _python_files(folder: Path, depth: int = 0) -> Iterator[Path]:
    """The files that tools in a folder may run or import: its own, and those of the packages in it. Links to folders are not
    followed, so what is behind them is not agreed to and does not run."""
    for name in _names(folder):
        inner = folder / name
        if name.endswith(".py"):
            yield inner
        elif depth < MAX_PACKAGE_DEPTH and (inner / "__init__.py").is_file() and not inner.is_symlink():
            yield from _python_files(inner, depth + 1)


def _caution(file: Path) -> str:
    """A caution if others could have written a file."""
    try:
        found = file.stat()
    except OSError:
        return ""
    if not others_write(found):
        return ""
    mine = found.st_uid in (os.geteuid(), 0)
    return "can be written by other users" if mine else f"belongs to another user, number {found.st_uid}"
