"""Repositories whose configuration names programs, used with credentials: none of them runs, for it could read those.

Each is tried twice: with the credentials alone, where the program does run and has them (the control), and as Toolgate runs
git. The host has no such name as that of the URL, and none is needed: the programs are started before it is looked up.
"""

import os
import subprocess
from pathlib import Path

import pytest

from toolgate.errors import InvalidInput
from toolgate.sandbox.git_credentials import GitLogin, git_login

QUICK = {
    "test_commands_that_may_run_other_programs_are_given_no_credentials",
}

pytestmark = [pytest.mark.requirement("IO-5"), pytest.mark.requirement("BUILTIN-5")]
BASE, URL, GIVEN = "https://git.invalid/", "https://git.invalid/a.git", "https://ann:p4ss@git.invalid/a.git"
WAYS: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "file monitor": ("fetch", [("core.fsmonitor", "EVIL")]),
    "a URL that is a program": ("push", [("url.ext::EVIL .insteadOf", BASE), ("protocol.ext.allow", "always")]),
    "a remote helper": (
        "fetch", [(f"remote.{URL}.vcs", "ext"), (f"remote.{URL}.url", "EVIL"), ("protocol.ext.allow", "always")],
    ),
    "ssh": ("push", [("url.ssh://x/.insteadOf", BASE), ("core.sshCommand", "EVIL")]),
    "a proxy of git's own protocol": ("ls-remote", [("url.git://x/.insteadOf", BASE), ("core.gitProxy", "EVIL")]),
    "another end on this machine": (
        "fetch", [("url.file:///tmp/.insteadOf", BASE), (f"remote.{URL}.uploadpack", "EVIL")],
    ),
}  # fmt: skip


def git(folder: Path, *words: str, **environment: str) -> None:
    base = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    subprocess.run(
        ["git", "-c", "user.name=Eve", "-c", "user.email=eve@example.com", *words], cwd=folder, check=False,
        capture_output=True, timeout=60, env={**base, **environment},
    )  # fmt: skip


def only_header(login: GitLogin) -> dict[str, str]:
    named = {key: login.environment[key] for key in ("GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0")}
    return {**named, "GIT_CONFIG_COUNT": "1"}


@pytest.mark.parametrize("name", WAYS)
def test_no_program_of_the_repository_has_the_credentials(tmp_path: Path, name: str) -> None:
    command, settings = WAYS[name]
    top, leak, evil = tmp_path / "work", tmp_path / "LEAK", tmp_path / "evil.sh"
    top.mkdir()
    evil.write_text(f"#!/bin/sh\nenv >'{leak}'\n")
    evil.chmod(0o755)
    git(top, "init", "-q", "-b", "main")
    (top / "a.txt").write_text("one\n")
    git(top, "add", ".")
    git(top, "commit", "-qm", "Begin")
    for key, value in settings:
        git(top, "config", key.replace("EVIL", str(evil)), value.replace("EVIL", str(evil)))
    leak.unlink(missing_ok=True)
    login = git_login(["git", command, GIVEN, *(["HEAD:main"] if command == "push" else [])])
    git(top, *login.words[1:], **only_header(login))
    assert "Authorization: Basic" in leak.read_text(), "the control"
    leak.unlink()
    git(top, *login.words[1:], **login.environment)
    assert not leak.exists()


@pytest.mark.parametrize("command", ["pull", "up", "archive", "submodule", "remote", "-c", "--exec-path=.", "status"])
def test_commands_that_may_run_other_programs_are_given_no_credentials(command: str) -> None:
    """Filters, merge drivers and aliases have names of the repository's choice: no setting of ours turns them off."""
    with pytest.raises(InvalidInput, match="fetch"):
        git_login(["git", command, GIVEN])
    with pytest.raises(InvalidInput, match="fetch"):
        git_login(["git", "-C", "push", command, GIVEN])


def test_a_command_in_another_folder_has_them() -> None:
    assert git_login(["git", "-C", "sub", "fetch", GIVEN]).words[-1] == URL
