"""How git is run on a repository that nobody vouches for: in the jail, and without the repository's own configuration.

A repository's configuration names programs (hooks, filters, diff and merge drivers, file monitors, pagers, editors, signers,
helpers), and so may files that it includes. There is no option that has git not read it, but git looks for it where
GIT_COMMON_DIR says. So that is a folder in the jail with a configuration of ours and nothing else but links to what holds
no program: refs, logs, excludes. Attributes in the repository then name drivers that do not exist. The jail is the boundary
all the same: no network, no host, no sensitive files.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from toolgate.model import Actor

CONFIG = """\
[core]
	repositoryformatversion = 0
	bare = false
	hooksPath = /dev/null
	fsmonitor = false
	untrackedCache = false
	attributesFile = /dev/null
	excludesFile = /dev/null
	editor = false
	pager = cat
	askPass = false
	sshCommand = false
	checkStat = minimal
	trustctime = false
	quotePath = false
	protectHFS = true
	protectNTFS = true
	logAllRefUpdates = {logs}
[submodule]
	recurse = false
[diff]
	ignoreSubmodules = all
[status]
	submoduleSummary = false
[commit]
	gpgSign = false
[log]
	showSignature = false
[gc]
	auto = 0
[maintenance]
	auto = false
[credential]
	helper =
[protocol]
	allow = never
[safe]
	bareRepository = explicit
[color]
	ui = false
[advice]
	detachedHead = false
	addEmbeddedRepo = false
"""
"""`checkStat`: in a layer over the folder files have other numbers than git noted; time and size tell what changed."""

PRELUDE = """\
set -eu
common=$TMPDIR/repository
mkdir "$common"
printf '%s' "$TOOLGATE_CONFIG" >"$common/config"
for name in refs packed-refs logs info shallow; do ln -s "$PWD/.git/$name" "$common/$name"; done
unset TOOLGATE_CONFIG
export GIT_DIR="$PWD/.git" GIT_COMMON_DIR="$common" GIT_OBJECT_DIRECTORY="$PWD/.git/objects" GIT_WORK_TREE="$PWD"
"""
RUN = 'exec git "$@"\n'
COMPARE = """\
if [ -e .git/index ]; then
  cp -p .git/index "$TMPDIR/index"
  export GIT_INDEX_FILE="$TMPDIR/index"
  git ls-files -z >"$TMPDIR/files"
  for flag in assume-unchanged skip-worktree; do git update-index "--no-$flag" -z --stdin <"$TMPDIR/files"; done
fi
exec git "$@"
"""
"""An index can say of a file that it is not to be looked at: no comparison tells of it then, though a checkout writes it."""
COMMIT = """\
add=$1; shift
if [ "$add" != staged ]; then git add "--$add" -- "$@" 1>&2; fi
if [ "$add" != all ]; then set --; fi
git commit --quiet --no-verify --no-gpg-sign --cleanup=whitespace --file=- -- "$@" 1>&2
exec git show --no-ext-diff --no-textconv --no-show-signature --no-renames --first-parent -m --numstat -z --format=%H HEAD --
"""
"""The message comes by stdin. Named files are committed alone, whatever else is staged."""
_TARGET = """\
at=$1
if git show-ref --verify --quiet "refs/heads/$at"; then at=refs/heads/$at; fi
"""
"""As `git checkout` has it: of a branch and a tag of one name, the branch. Other commands take the tag."""
TARGET = _TARGET + 'exec git rev-parse --verify "$at^{commit}"\n'
CHECKOUT = f"""\
if [ -n "$1" ]; then
{_TARGET}
if [ "$(git rev-parse --verify "$at^{{commit}}")" != "$2" ]; then echo 'The revision has changed meanwhile.' >&2; exit 1; fi
fi
shift 2
git checkout --quiet --no-overwrite-ignore --no-recurse-submodules --no-guess "$@" 1>&2
exec git rev-parse --verify HEAD
"""
"""What is checked out is the commit that was judged: the first two words are its name, if it has one, and its id.

Scripts in which every word of a caller is one of "$@", behind options that are ours."""

ENVIRONMENT: Mapping[str, str] = {
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "false", "GIT_SEQUENCE_EDITOR": "false", "GIT_PAGER": "cat",
    "GIT_ASKPASS": "false", "SSH_ASKPASS": "false", "GIT_SSH_COMMAND": "false", "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_MERGE_AUTOEDIT": "no",
}  # fmt: skip

UNFIT = re.compile(r"[\x00-\x1f\x7f<>\"\\]")
UNFIT_IN_ADDRESS = re.compile(r"[^A-Za-z0-9._+-]")


class Author(NamedTuple):
    """The author and committer of a commit."""

    name: str
    email: str

    def variables(self) -> dict[str, str]:
        """For git, whose own ways to find them out are closed."""
        return {
            f"GIT_{role}_{part}": value
            for role in ("AUTHOR", "COMMITTER")
            for part, value in (("NAME", self.name), ("EMAIL", self.email))
        }


class CommitAuthors:
    """Says who makes a commit: as set, or else the user of the call. Never what the repository's configuration says."""

    def __init__(self, name: str | None = None, email: str | None = None) -> None:
        self._name = name
        self._email = email

    def of(self, actor: Actor) -> Author:
        """The author of commits of an actor; without an address of its own, one that no mail ever reaches."""
        name = UNFIT.sub(" ", self._name or actor.user).strip(" .,:;'") or "toolgate"
        local, tenant = (UNFIT_IN_ADDRESS.sub("-", part).strip("-.") or "toolgate" for part in (actor.user, actor.tenant))
        return Author(name, UNFIT.sub("", self._email or f"{local}@{tenant}.invalid"))


def environment(author: Author, *, logs: bool) -> dict[str, str]:
    """All variables of a run. `logs`: the repository has a folder for them."""
    return {**ENVIRONMENT, **author.variables(), "TOOLGATE_CONFIG": CONFIG.format(logs="true" if logs else "false")}
