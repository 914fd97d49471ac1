"""The folder of demo content: a project folder of its own, with settings, data, tools and a workspace.

Nothing that the demo does leaves it: the signing key of its audit log is in it too, and nothing is recorded as trusted. Its
data folder is marked, and only a folder that is so marked is ever filled again or removed.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

import orjson

from toolgate.errors import NotServing, SettingsError
from toolgate.store.data_folder import DEMO_MARK, FOLDER_MODE, OWN_NAME, demo_state

try:
    import fcntl
except ImportError:  # Windows, where nobody is kept from a folder that is in use
    fcntl = None  # type: ignore[assignment]


class DemoFolder:
    """A folder that holds demo content, or shall."""

    def __init__(self, path: Path | None = None) -> None:
        """`path`: where it is; without it, `toolgate-demo` among the data of this user's programs."""
        self.path = _default() if path is None else path.absolute()
        self.home = self.path / OWN_NAME
        self.settings_file = self.path / "toolgate.yaml"
        self.workspace = self.path / "workspace"
        self.server = self.path / "server"

    @property
    def state(self) -> str | None:
        """`filling` or `complete`, as its mark says; None: it holds no demo content."""
        return demo_state(self.home)

    def check(self) -> None:
        """Raises SettingsError if something else is there, also beside the mark: a file that anybody can write, and all that
        is in the folder goes with it."""
        if not self.path.exists() and not self.path.is_symlink():
            return
        is_folder = self.path.is_dir() and not self.path.is_symlink()
        others = sorted({file.name for file in self.path.iterdir()} - self._own_names()) if is_folder else []
        if is_folder and not others:
            return
        beside = f" beside the demo content ({', '.join(map(repr, others[:3]))})" if others and self._is_marked else ""
        raise SettingsError(
            f"{self.path} holds other data{beside}, so no demo content is put there or removed.",
            suggestion="Name a folder that is not there yet: toolgate --home DIR serve --demo",
        )

    def _own_names(self) -> set[str]:
        """The names in a marked folder that are the demo's."""
        return (
            {OWN_NAME, *(file.name for file in (files("toolgate.demo") / "files").iterdir())} if self._is_marked else set()
        )

    @property
    def _is_marked(self) -> bool:
        """True if the mark is in the folder itself, and not where a link leads to."""
        return self.state is not None and not self.home.is_symlink()

    @contextmanager
    def in_use(self) -> Iterator[bool]:
        """Keeps others from filling or removing the folder. Gives whether it has to be filled: then nobody else uses it
        until `complete`. Waits while another process fills it. Raises SettingsError."""
        self.check()
        self.path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDONLY)
        try:
            self._close_to_others(handle)
            alone = _lock(handle, alone=True)
            if not alone:
                _lock(handle, alone=False)
            self._handle = handle
            if self.state != "complete" and not alone:
                raise SettingsError(f"The demo content in {self.path} was not finished.", suggestion="Start it again.")
            if self.state != "complete":
                self._lay_out()
                yield True
            else:
                _lock(handle, alone=False)
                yield False
        finally:
            os.close(handle)

    def _close_to_others(self, handle: int) -> None:
        """Closes a folder that was there before to other users: whoever can write it can put tools of theirs into it, which
        the server runs. Raises SettingsError if it belongs to somebody else."""
        if os.name != "posix":
            return
        owner = os.fstat(handle).st_uid
        if owner != os.geteuid():
            raise SettingsError(
                f"{self.path} belongs to another user (number {owner}), who could change the demo's tools.",
                suggestion="Name a folder that is not there yet: toolgate --home DIR serve --demo",
            )
        os.fchmod(handle, FOLDER_MODE)

    def _lay_out(self) -> None:
        """Puts the files of the demo into the folder, in place of what an earlier start that was cut short has left."""
        for left in self.path.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        self.home.mkdir(mode=FOLDER_MODE)
        self._mark("filling")
        with as_file(files("toolgate.demo") / "files") as package:
            for file in sorted(package.rglob("*")):
                target = self.path / file.relative_to(package)
                if file.is_dir():
                    target.mkdir(exist_ok=True)
                elif file.suffix != ".pyc":
                    shutil.copyfile(file, target)
            shutil.rmtree(self.path / "tools" / "__pycache__", ignore_errors=True)
        self._allow_hidden_place()

    def _allow_hidden_place(self) -> None:
        """Excepts the demo's own files from the rule that what is hidden in a home is sensitive: by default the demo is in
        such a place (`~/.local/share`)."""
        allowed = [str(self.server), str(self.workspace)]
        with self.settings_file.open("ab") as file:
            file.write(b"paths:\n  allowed: " + orjson.dumps(allowed) + b"\n")

    def complete(self) -> None:
        """Notes that all of the content is there, and lets others use it."""
        self._mark("complete")
        _lock(self._handle, alone=False)

    def _mark(self, state: str) -> None:
        mark = self.home / DEMO_MARK
        new = mark.with_suffix(".new")
        new.write_bytes(orjson.dumps({"state": state, "about": "demo content of `toolgate serve --demo`"}))
        new.replace(mark)

    def remove(self) -> bool:
        """Removes the folder with all that is in it; gives whether there was one. Raises SettingsError if it holds something
        else than demo content, NotServing if a server uses it."""
        self.check()
        if self.state is None:
            return False
        handle = os.open(self.path, os.O_RDONLY)
        try:
            if not _lock(handle, alone=True):
                raise NotServing(f"A server uses the demo content in {self.path}.", suggestion="Stop it first: Ctrl-C.")
            shutil.rmtree(self.path)
        finally:
            os.close(handle)
        return True


def _default() -> Path:
    base = os.environ.get("XDG_DATA_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path("~/.local/share").expanduser()) / "toolgate-demo"


def _lock(handle: int, *, alone: bool) -> bool:
    """Locks an open folder: alone, if nobody else has it, or with others, as soon as nobody has it alone."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
    except BlockingIOError:
        return False
    return True
