"""The folders that calls work in: those of sessions, and what of them a program may not change or see.

A folder is named by Toolgate or by its operator, never by the text of a caller. What a program can't be kept from by rules
(it opens what it likes) it is kept from by the jail: `parts` says what the jail has to hold back.

A session's folder belongs to its tenant and user (`toolgate.sessions`); so does the one of calls that name no session. Only
calls of the person at this machine work where Toolgate runs: that they are is said by the door they come through, because a
name in a credential (tenant `default`, user `local`) can be anybody's.
"""

import json
import os
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from toolgate.errors import Denied, InvalidInput
from toolgate.model import LOCAL, LOCAL_DOORS, Actor, Call
from toolgate.sandbox.workspace_scan import ProtectedPaths, WorkspaceScan, is_repository
from toolgate.sessions import SessionKey, Sessions
from toolgate.store.data_folder import make_home

if TYPE_CHECKING:
    from toolgate.sandbox.intake import Intake
    from toolgate.sandbox.quarantine import Quarantine
    from toolgate.screening.paths import SensitivePaths

MAX_SESSIONS = 10_000
"""Folders that callers gave to sessions; those unused for longest are forgotten."""
FIRST_OWNER, OWNERS = 1_900_000_000, 100_000_000
"""If Toolgate runs as root, the folder of a session belongs to a user of its own, which nobody is."""

NEVER = frozenset(
    {
        "/", "/home", "/Users", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/usr", "/usr/local", "/usr/src", "/var",
        "/var/lib", "/var/tmp",
    }
)  # fmt: skip
"""Folders that are no workspace, though one may be inside of them."""
NEVER_INSIDE = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr/bin",
    "/usr/include", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/local/bin", "/usr/local/lib",
    "/usr/local/sbin", "/usr/sbin", "/usr/share", "/var/log", "/var/run", "/System", "/Library",
)  # fmt: skip


class Workspaces:
    """The working directories of calls."""

    def __init__(
        self,
        home: Path,
        here: Path | None = None,
        rules: "Callable[[], SensitivePaths] | None" = None,
        *,
        sessions: Sessions | None = None,
        serves_here: bool = False,
        bring_in: Iterable[str] = (),
        folders: Mapping[tuple[str, str | None, str | None], Path] | None = None,
    ) -> None:
        """`home`: Toolgate's own folder. `here`: where calls of the local person without a session work (None: the current
        directory). `rules`: gives what no tool may open. `serves_here`: calls of the tenant `default` over the network work
        there too. `bring_in`: patterns of what programs may change, besides data, in a folder that is not Toolgate's own.
        `folders`: by tenant, persona and user (None: any), the folders that the operator gave them."""
        self._folders = dict(folders or {})
        self._bring_in = tuple(bring_in)
        self._home = home
        self._here = here
        self._rules = rules
        self._sessions = sessions or Sessions()
        self._serves_here = serves_here
        self._made_rules: SensitivePaths | None = None
        self._given: OrderedDict[SessionKey, Path] = OrderedDict()

    @property
    def rules(self) -> "SensitivePaths":
        if self._made_rules is None:
            from toolgate.screening.paths import SensitivePaths

            self._made_rules = self._rules() if self._rules is not None else SensitivePaths(data=self._home)
        return self._made_rules

    # -- which folder

    def of(self, call: Call) -> Path:
        """The folder that a call works in, without links; that of a session is made when it is first asked for."""
        try:
            return self._of(call)
        except (Denied, InvalidInput) as error:
            if call.door in LOCAL_DOORS:
                raise
            raise Denied(  # where things are on this machine is not for callers from elsewhere
                "SECURITY_VIOLATION",
                "The folder that this call would work in cannot be used.",
                suggestion="The record of this call tells its operator why.",
                reason=error.message,
            ) from None

    def _of(self, call: Call) -> Path:
        chosen, key = self.chosen(call), self._sessions.key(call.actor, call.session)
        if chosen is not None:
            return self._checked(chosen, for_programs=True, key=key)
        if self._is_here(call):
            return self._checked(self._here or _queued_in(call) or Path.cwd())
        return self._own(key)

    def chosen(self, call: Call) -> Path | None:
        """The folder that was chosen for a call: by whoever runs its door, for its session, for its user or persona; None if
        nobody did."""
        if call.workspace is not None:
            return Path(call.workspace)
        key = self._sessions.key(call.actor, call.session)
        if key in self._given:
            self._given.move_to_end(key)
            return self._given[key]
        actor = call.on_behalf_of[0] if call.on_behalf_of else call.actor  # a subordinate works where its caller does
        tenant, persona, user = actor.tenant, actor.persona, actor.user
        wanted = ((tenant, persona, user), (tenant, None, user), (tenant, persona, None)) if self._folders else ()
        return next((self._folders[who] for who in wanted if who in self._folders), None)

    def set(self, actor: Actor, session: str, folder: Path) -> Path:
        """Have a session work in a folder of the operator's choice; raises Denied or InvalidInput if it is unfit."""
        key = self._sessions.key(actor, session)
        found = self._checked(folder, for_programs=True, key=key)
        self._given[key] = found
        self._given.move_to_end(key)
        if len(self._given) > MAX_SESSIONS:
            self._given.popitem(last=False)
        return found

    def known(self, call: Call) -> Path | None:
        """The folder that relative paths of a call lead from, even if it is not there yet; None: the current directory."""
        chosen = self.chosen(call)
        if chosen is not None:
            return chosen
        if self._is_here(call):
            return self._here or _queued_in(call)
        return self._folder(self._sessions.key(call.actor, call.session))

    def _is_here(self, call: Call) -> bool:
        """True if a call works where Toolgate runs."""
        if call.session is not None or call.actor.tenant != LOCAL.tenant:
            return False
        return call.door in LOCAL_DOORS or self._serves_here

    def _folder(self, key: SessionKey) -> Path:
        """As JSON no two keys are the same text, whatever their names are made of."""
        return self._home / "sessions" / sha256(json.dumps(key).encode()).hexdigest()[:40]

    def _own(self, key: SessionKey) -> Path:
        folder = self._folder(key)
        sessions, name = folder.parent, folder.name
        try:
            found = folder.lstat()
        except FileNotFoundError:
            make_home(self._home)
            sessions.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            if hasattr(os, "geteuid") and os.geteuid() == 0:
                owner = FIRST_OWNER + int(name[:12], 16) % OWNERS
                os.chown(folder, owner, owner, follow_symlinks=False)
            found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            raise InvalidInput("The session has no folder: something else stands in its place.")
        return Path(os.path.realpath(folder))

    # -- whether it will do

    def _checked(self, folder: Path, *, for_programs: bool = False, key: SessionKey | None = None) -> Path:
        """A folder without links, if calls may work in it. `key`: the session that it was chosen for, whose own folder is
        the only one of a session that will do."""
        real = Path(os.path.realpath(folder))
        if not real.is_dir():
            raise InvalidInput(f"There is no folder {folder}.", details={"missing": True})
        why = self._unfit(real, for_programs=for_programs)
        if why is None and key is not None and self.is_foreign(Path(os.path.realpath(self._folder(key))), str(real)):
            why = "it is the folder of another session"
        if why is not None:
            raise Denied(
                "SECURITY_VIOLATION",
                f"Nothing may work in {real}: {why}.",
                suggestion="Give the call a session, or work in the folder of a project.",
                reason=f"{real} is no working directory: {why}",
            )
        return real

    def _unfit(self, real: Path, *, for_programs: bool) -> str | None:
        from toolgate.screening.folder_search import FolderLookups, slashed

        text = str(real)
        if text in NEVER or any(_inside(text, place) for place in NEVER_INSIDE):
            return "it belongs to the system"
        if for_programs and text == os.path.realpath(self.rules.home):
            return "it is a person's whole home"
        home = os.path.realpath(self._home)
        if _inside(text, home) and not self._is_session(text, home):
            return "it is Toolgate's own"
        found = self.rules.named(slashed(text), FolderLookups(), surely=True)
        return None if found is None else f"it is a place for {found}"

    def _is_session(self, text: str, home: str) -> bool:
        return text.startswith(os.path.join(home, "sessions") + os.sep)  # noqa: PTH118 - these are texts

    def is_foreign(self, folder: Path, real: str) -> bool:
        """True if a path is in Toolgate's own folder and not in that of the call: another session's files, for one."""
        home = os.path.realpath(self._home)
        return _inside(real, home) and not (_inside(str(folder), home) and _inside(real, str(folder)))

    # -- what a program may not do there

    def parts(self, folder: Path, *, writes_git: bool = False) -> ProtectedPaths:
        """The paths that the jail has to hold back of a program's folder: all of it is looked at, so call this in a thread.
        `writes_git`: the program is git, which has to write its repository."""
        top = self._checked(folder, for_programs=True)
        return WorkspaceScan(self.rules, top, os.path.realpath(self._home), writes_git=writes_git).run()

    def is_ours(self, folder: Path) -> bool:
        """True if a folder is that of a session, which Toolgate made: no program of the host works there, so what programs
        leave there stays as it is."""
        return self._is_session(str(folder), os.path.realpath(self._home))

    def quarantine(self) -> "Quarantine":
        """The changes of programs that were not brought in."""
        from toolgate.sandbox.quarantine import Quarantine

        return Quarantine(self._home)

    def intake(
        self,
        folder: Path,
        by: str,
        max_bytes: int,
        *,
        bring_in: Iterable[str] = (),
        setting: str = "sandbox.bring_in",
        repositories: Iterable[Path] = (),
    ) -> "Intake":
        """Decides about the changes that a program (`by`) makes in a layer over a folder of somebody's. `bring_in`: more
        patterns, and `setting`: where they stand. `repositories`: of git, which is the program."""
        from toolgate.sandbox.intake import Intake
        from toolgate.sandbox.intake_rules import DATA_PATTERNS, IntakeRule
        from toolgate.screening.folder_search import FolderLookups, slashed

        rule = IntakeRule((*self._bring_in, *bring_in, *DATA_PATTERNS))
        kept = self.quarantine().begin(folder, by, max_bytes)
        inside = [path.relative_to(folder).parts for path in repositories]
        refuses = lambda path: self.rules.named(slashed(str(path)), FolderLookups(), writing=True) is not None  # noqa: E731
        return Intake(folder, rule, kept, refuses, max_bytes, inside, setting)

    def runs(self, folder: Path, path: Path) -> str | None:
        """Names what the host would run if a call wrote below its folder: no tool writes what no program may change."""
        from toolgate.screening.paths import run_by_name

        inside = path.relative_to(folder)
        for part in inside.parts:
            found = run_by_name(part)
            if found is not None:
                return found
        holders = ((part, folder.joinpath(*inside.parts[:number])) for number, part in enumerate(inside.parts))
        if any(is_repository({part.lower(), *_of_repository(holder)}) for part, holder in holders):
            return "what git runs"
        return None


def _of_repository(folder: Path) -> Iterator[str]:
    return (name.lower() for name in ("HEAD", "commondir", "objects", "refs") if os.path.lexists(folder / name))


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _queued_in(call: Call) -> Path | None:
    """The folder in which somebody queued a call that works in the current folder."""
    return None if call.here is None else Path(call.here)
