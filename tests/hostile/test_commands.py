# ruff: noqa: RUF001 - look-alike letters are what some of this is about
"""Evasions of the lists of commands. Each tries to make a file, `marker`; what counts is that there is none.

The tool gives its command to a real shell, which is as careless as a tool can be, and a person has agreed to every call. The
allowlist has many programs on it, so that what an evasion meets is the parser and the tables, not just a short list.
"""

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.builtin_tools import BUILTIN
from toolgate import App, tool
from toolgate.errors import DefinitionError, Denied
from toolgate.gates.approval.request import Answer, ApprovalRequest
from toolgate.gates.tier_rules.gate import TierRules, plan
from toolgate.model import Implementation, Source
from toolgate.registry.compile import DefinitionRules, compile_entry, definition, entry_of
from toolgate.registry.decorator import jails_commands
from toolgate.screening.commands import ALLOWED, CommandRules, clean_environment, parse
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TIER-3")

ALLOW = (
    *ALLOWED, "git", "find", "tar", "touch marker-of-ours", "echo", "ls", "env", "nice", "timeout", "nohup", "setsid",
    "stdbuf", "sort", "sed", "awk", "cat", "rm", "bash", "python3", "perl", "make", "xargs", "watch", "zip", "ssh", "man",
    "split", "vim", "npm", "cp", "find", "tar cf marker-of-ours a.txt",
)  # fmt: skip


TOUCH = "touch marker"


class Workplace:
    """A folder with a git repository, some files, and programs of the attacker's beside the real ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marker = folder / "marker"
        self.environment = {**clean_environment(home=folder), "GIT_CONFIG_NOSYSTEM": "1"}
        for words in (
            ["init", "-q", "-b", "main"],
            ["config", "user.name", "Ada"],
            ["config", "user.email", "ada@example.org"],
            ["config", "alias.ci", "!touch marker"],
        ):
            subprocess.run(["git", *words], cwd=folder, check=True, env=self.environment)
        (folder / "a.txt").write_text("a\nb\n")
        (folder / "evil").write_text("#!/bin/sh\ntouch marker\n")
        (folder / "evil").chmod(0o755)
        (folder / "Makefile").write_text("all:\n\t@true\n")
        (folder / "package.json").write_text('{"scripts": {"hello": "echo hello"}}')

    def shell(self, command: Any) -> None:
        """Run a command as carelessly as possible: a line by a shell, words by themselves."""
        line = isinstance(command, str)
        subprocess.run(
            command,
            shell=line,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )

    def made(self) -> bool:
        """Whether the marker is there; it is taken away."""
        there = self.marker.exists()
        self.marker.unlink(missing_ok=True)
        return there


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    made = Workplace(tmp_path_factory.mktemp("work"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made.folder)
        yield made


@pytest.fixture
async def app(workplace: Workplace) -> AsyncIterator[App]:
    @tool(tier="execute")
    def run(command: str | list[str], args: list[str] | None = None) -> str:
        """Run a command."""
        workplace.shell(command if args is None else [command, *args])
        return "done"

    async def yes(_request: ApprovalRequest) -> Answer:
        return Answer("approve")

    async with memory_app(commands={"allow": ALLOW}) as app:
        app.register(run)
        app.approvals.add_approver(yes)
        yield app


EVASIONS: dict[str, str | list[str]] = {
    "semicolon": "echo a; touch marker", "and": "echo a && touch marker", "or": "ls /nowhere || touch marker",
    "background": "touch marker & echo a", "pipe": "echo marker | xargs touch",
    "pipe to a shell": "echo touch marker | sh", "new line": "echo a\ntouch marker",
    "carriage return": "echo a\r\ntouch marker", "redirection": "echo a > marker", "append": "echo a >> marker",
    "clobber": "echo a >| marker", "read and write": "echo a <> marker", "substitution": "echo $(touch marker)",
    "backticks": "echo `touch marker`", "substitution in quotes": 'echo "$(touch marker)"',
    "backticks in quotes": 'echo "`touch marker`"', "subshell": "(touch marker)", "group": "{ touch marker; }",
    "variable": "echo ${X:=$(touch marker)}", "arithmetic": "echo $((1)) ; touch marker",
    "function": "f() { touch marker; }; f", "fork bomb's shape": ":(){ touch marker; };:",
    "comment": "touch marker # git commit", "not allowed": "touch marker", "quotes in the name": 't""ouch marker',
    "single quotes in the name": "to''uch marker", "backslash in the name": "t\\ouch marker",
    "variable in the name": "t${X}ouch marker", "absolute path": "/usr/bin/touch marker", "relative path": "./evil",
    "path by dots": "../../../../usr/bin/touch marker", "own program of the same name": "./git/../evil",
    "variable before": "A=b touch marker", "PATH before": "PATH=. evil", "loader before": "LD_PRELOAD=x touch marker",
    "wildcard": "/usr/bin/touc? marker", "wildcard set": "/usr/bin/[t]ouch marker", "braces": "{touch,marker}",
    "tilde": "~/evil", "eval": "eval touch marker", "exec": "exec touch marker", "command": "command touch marker",
    "builtin": "builtin eval touch marker", "dot": ". ./evil", "env": "env touch marker",
    "env with variable": "env A=b touch marker", "env split": "env -S 'touch marker'",
    "env split long": "env --split-string='touch marker'", "env unset": "env -u echo touch marker",
    "nice": "nice touch marker", "nice with number": "nice -n 5 touch marker", "nohup": "nohup touch marker",
    "timeout": "timeout 5 touch marker", "timeout with signal": "timeout -s KILL 5 touch marker",
    "setsid": "setsid touch marker", "stdbuf": "stdbuf -oL touch marker", "wrapped twice": "nice timeout 5 touch marker",
    "xargs": "xargs -a a.txt touch marker", "shell -c": "bash -c 'touch marker'", "shell -ec": "bash -ec 'touch marker'",
    "python -c": "python3 -c \"open('marker', 'w')\"", "perl -e": "perl -e 'open F, q(>marker)'",
    "perl -ne": "perl -ne 'open F, q(>marker)' a.txt", "git alias": "git ci",
    "git -c alias": "git -c alias.x='!touch marker' x", "git --config-env": "git --config-env=a=b ci",
    "git pager": "git -c core.pager='touch marker' -p log",
    "git editor": "git -c core.editor='touch marker; :' commit --allow-empty",
    "git ssh command": "git -c core.sshCommand='touch marker' ls-remote ssh://localhost/x",
    "git upload-pack": "git ls-remote --upload-pack='touch marker;' .",
    "git upload-pack shortened": "git ls-remote --upload-p='touch marker;' .",
    "git clone -u": "git clone -u 'touch marker;' . copy",
    "git push receive-pack": "git push --receive-pack='touch marker;' . main",
    "git push --exec": "git push --exec 'touch marker;' . main",
    "git ext": "git -c protocol.ext.allow=always clone 'ext::sh -c touch% marker' copy",
    "git exec path": "git --exec-path=. status", "git rebase --exec": "git rebase --root --exec 'touch marker'",
    "git rebase -x": "git rebase --root -x 'touch marker'", "git grep pager": "git grep --untracked -O'touch marker;' a",
    "git bisect": "git bisect run touch marker", "git submodule": "git submodule foreach 'touch marker'",
    "git config": "git config core.fsmonitor 'touch marker'",
    "git output": "git diff --no-index --output=marker a.txt evil", "git work tree": "git -C . ci",
    "find -exec": "find . -name a.txt -exec touch marker ';'",
    "find -execdir": "find . -name a.txt -execdir touch marker ';'",
    "find -fprintf": "find . -name a.txt -fprintf marker x", "find -fprint": "find . -fprint marker",
    "tar checkpoint": "tar cf x.tar a.txt --checkpoint=1 --checkpoint-action=exec='touch marker'",
    "tar to-command": "tar xf y.tar --to-command='touch marker'", "tar -I": "tar -I 'touch marker;' -cf x.tar a.txt",
    "tar bundled": "tar cIf 'touch marker;' x.tar a.txt",
    "tar shortened": "tar --use-compress='touch marker;' -cf x.tar a.txt", "sort": "sort -o marker a.txt",
    "sort long": "sort --output=marker a.txt", "sort shortened": "sort --ou=marker a.txt",
    "sed e": "sed '1e touch marker' a.txt", "sed w": "sed 'w marker' a.txt",
    "sed s///e": "sed 's/a/touch marker/e' a.txt", "awk system": "awk 'BEGIN { system(\"touch marker\") }'",
    "awk print": "awk 'BEGIN { print 1 > \"marker\" }'", "awk pipe": "awk 'BEGIN { print \"touch marker\" | \"sh\" }'",
    "make eval": "make --eval 'all: ; touch marker'", "make shell": "make SHELL=./evil all", "make file": "make -f evil",
    "zip test": "zip -T -TT 'touch marker;' x.zip a.txt", "split filter": "split --filter='touch marker' a.txt",
    "ssh proxy": "ssh -o ProxyCommand='touch marker' localhost",
    "ssh proxy together": "ssh -oProxyCommand='touch marker' localhost", "man pager": "man -P 'touch marker;' ls",
    "vim": "vim -es -c ':!touch marker' -c ':q!'", "npm shell": "npm run --script-shell=./evil hello",
    "npm prefix": "npm --prefix . run --script-shell ./evil hello", "npm exec": "npm exec -c 'touch marker'",
    "npm three dashes": "npm run ---script-shell=./evil hello", "npm five dashes": "npm run -----script-shell=./evil hello",
    "npm twice negated": "npm run --no-no-script-shell=./evil hello", "npm case": "npm run --Script-Shell=./evil hello",
    "npm underscore": "npm run --script_shell=./evil hello",
    "git push repo": "git push --repo='ext::sh -c touch% marker' main",
    "sudo": "sudo touch marker", "sudo in quotes": 's""udo touch marker', "sudo upper": "SUDO touch marker",
    "sudo wrapped": "env sudo touch marker", "doas": "doas touch marker", "dd": "dd if=a.txt of=marker",
    "dd wrapped": "nice dd if=a.txt of=marker", "look-alike": "tоuch marker", "zero width": "to\u200buch marker",
    "right to left": "\u202etouch marker", "no-break space": "touch\u00a0marker", "NUL in words": ["echo\0", "x"],
    "words": ["touch", "marker"], "words in a shell": ["bash", "-c", "touch marker"],
    "words in env": ["env", "A=b", "touch", "marker"], "words with an empty name": ["", "touch", "marker"],
    "words in find": ["find", ".", "-exec", "touch", "marker", ";"],
}  # fmt: skip


@pytest.mark.parametrize("command", EVASIONS.values(), ids=EVASIONS)
@pytest.mark.sample(22)
async def test_an_evasion_has_no_effect(app: App, workplace: Workplace, command: str | list[str]) -> None:
    workplace.made()
    outcome = await app.invoke("run", {"command": command})
    assert not workplace.made()
    assert outcome.status == "denied", outcome
    assert outcome.error is not None
    assert outcome.error.code == "SECURITY_VIOLATION"
    assert outcome.error.message.startswith("run: the argument command is a command that may not run: ")
    assert outcome.error.suggestion
    assert outcome.metrics.attempts == 0


@pytest.mark.matrix("the control: runs every evasion in a shell")
def test_the_evasions_do_work_without_the_gate(tmp_path: Path) -> None:
    """The positive control: an attack that could not succeed anyway would prove nothing."""
    workplace = Workplace(tmp_path)
    effective = []
    subprocess.run(["tar", "cf", "y.tar", "a.txt"], cwd=workplace.folder, check=True)
    for name, command in EVASIONS.items():
        workplace.made()
        try:
            workplace.shell(command)
        except (OSError, ValueError):
            continue
        if workplace.made():
            effective.append(name)
    assert len(effective) >= 80, sorted(EVASIONS.keys() - set(effective))


ARGUMENTS = {
    "shell": ("bash", ["-c", "touch marker"]), "name": ("touch", ["marker"]),
    "find": ("find", [".", "-exec", "touch", "marker", ";"]), "env": ("env", ["touch", "marker"]),
    "git": ("git", ["-c", "alias.x=!touch marker", "x"]), "path": ("/usr/bin/touch", ["marker"]),
}  # fmt: skip


@pytest.mark.parametrize(("command", "args"), ARGUMENTS.values(), ids=ARGUMENTS)
@pytest.mark.sample(4)
async def test_arguments_beside_the_command_count(app: App, workplace: Workplace, command: str, args: list[str]) -> None:
    workplace.shell([command, *args])
    assert workplace.made()
    outcome = await app.invoke("run", {"command": command, "args": args})
    assert outcome.status == "denied", outcome
    assert not workplace.made()


LAUNCHERS: list[list[str]] = [
    ["prlimit", "--nofile=100", "sh", "-c", TOUCH], ["linux64", "sh", "-c", TOUCH], ["x86_64", "sh", "-c", TOUCH],
    ["i386", "sh", "-c", TOUCH], ["choom", "-n", "0", "--", "sh", "-c", TOUCH], ["ld.so", "/bin/sh", "-c", TOUCH],
    ["uclampset", "-m", "0", "sh", "-c", TOUCH], ["ssh-agent", "sh", "-c", TOUCH],
    ["gpg-agent", "--daemon", "sh", "-c", TOUCH], ["fakeroot-sysv", "sh", "-c", TOUCH],
    ["dpkg-architecture", "-c", "sh", "-c", TOUCH], ["debconf", "sh", "-c", TOUCH], ["runcon", "sh", "-c", TOUCH],
    ["perl5.36-x86_64-linux-gnu", "-e", "system('touch marker')"], ["vim.basic", "-es", "-c", "!touch marker", "-c", "q!"],
    ["debugfs", "-R", "!touch marker"], ["g++", "-wrapper", "sh,-c,touch marker", "-E", "-xc", "a.txt"],
    ["cpp", "-wrapper", "sh,-c,touch marker", "a.txt"],
    ["x86_64-linux-gnu-gcc", "-wrapper", "sh,-c,touch marker", "-E", "-xc", "a.txt"],
    ["nice", "linux64", "sh", "-c", TOUCH], ["setsid", "-w", "prlimit", "sh", "-c", TOUCH],
    ["sdiff", "-o", "marker", "a.txt", "a.txt"],
    ["a-program-nobody-knows", "sh", "-c", TOUCH], ["a-program-nobody-knows", "--with=/usr/bin/python3.11", "x"],
    ["a-program-nobody-knows", "-c", "bash -c 'touch marker'"], ["java", "-jar", "x"], ["uv", "run", "x"],
]  # fmt: skip


@pytest.fixture
async def anything(workplace: Workplace) -> AsyncIterator[App]:
    """A gate that allows any program, in front of a tool that runs words as they are."""

    @tool(tier="execute")
    def run(command: list[str]) -> str:
        """Run a command."""
        workplace.shell(command)
        return "done"

    async def yes(_request: ApprovalRequest) -> Answer:
        return Answer("approve")

    async with memory_app(commands={"allow": ["*"]}) as app:
        app.register(run)
        app.approvals.add_approver(yes)
        yield app


@pytest.mark.parametrize("command", LAUNCHERS, ids=" ".join)
@pytest.mark.sample(4)
async def test_a_wildcard_allows_nothing_that_runs_other_programs(
    anything: App, workplace: Workplace, command: list[str]
) -> None:
    outcome = await anything.invoke("run", {"command": command})
    assert not workplace.made()
    assert outcome.status == "denied"
    assert outcome.error is not None
    assert outcome.error.code == "SECURITY_VIOLATION"


def test_the_launchers_do_work_without_the_gate(tmp_path: Path) -> None:
    workplace = Workplace(tmp_path)
    effective = 0
    for command in LAUNCHERS:
        if command[0] == "gpg-agent":  # works, and stays as a daemon
            continue
        try:
            workplace.shell(command)
        except OSError:  # not installed here
            continue
        effective += workplace.made()
    assert effective >= 5


async def test_a_wildcard_allows_plain_programs(anything: App) -> None:
    for command in (["ls", "-l"], ["git", "commit", "--allow-empty", "-m", "use bash"], ["cat", "a.txt"], ["nice", "ls"]):
        outcome = await anything.invoke("run", {"command": command})
        assert outcome.ok, outcome.error


BESIDE: dict[str, dict[str, Any]] = {
    "words and args": {"command": ["git", "push"], "args": ["--receive-pack=touch marker"]},
    "args and arguments": {"command": "git push", "args": ["origin"], "arguments": ["--exec=touch marker"]},
    "end of options in one of two": {"command": "npm run hello", "args": ["--"], "arguments": ["--script-shell=./evil"]},
    "params": {"command": "git push", "params": ["--exec=touch marker"]},
    "named params": {"command": "git push", "params": {"exec": "touch marker"}},
    "one text": {"command": "git push", "args": "--exec=./evil"},
    "program": {"program": "sudo", "args": ["touch", "marker"]}, "executable": {"executable": "touch", "args": ["marker"]},
    "executable and argv": {"executable": "touch", "argv": ["git", "push"]}, "cmdline": {"cmdline": "touch marker"},
    "shell_cmd": {"shell_cmd": "touch marker"}, "bash_command": {"bash_command": "touch marker"},
    "object": {"command": {"program": "touch", "args": ["marker"]}},
    "object with a name": {"command": {"name": "touch marker"}},
    "several by name": {"commands": {"first": "touch marker"}}, "several": {"commands": ["git push", "touch marker"]},
    "several in words": {"commands": [["touch", "marker"]]},
    "folder": {"command": "cat config.json", "cwd": "~/.docker"},
    "folder of passwords": {"command": "cat passwd", "cwd": "/etc"},
    **{
        f"variable {name}": {"command": "git push", "env": {name: "./evil"}}
        for name in (
            "GIT_SSH_COMMAND", "LD_PRELOAD", "NODE_OPTIONS", "PATH", "BASH_ENV", "npm_config_script_shell", "EDITOR",
            "PAGER",            "GIT_CONFIG_COUNT", "PYTHONPATH", "HOME", "A B",
        )
    },
    "variables as a list": {"command": "git push", "environment": ["A=b", "LD_PRELOAD=./evil"]},
    "variables as objects": {"command": "git push", "env": [{"name": "LD_PRELOAD", "value": "./evil"}]},
    "variables as a text": {"command": "git push", "env": "A=b LD_PRELOAD=./evil"},
}  # fmt: skip


@pytest.fixture
async def open_tool() -> AsyncIterator[App]:
    """A tool of tier execute that says nothing of its arguments."""

    async def any_command(**_arguments: Any) -> str:
        return "done"

    async def yes(_request: ApprovalRequest) -> Answer:
        return Answer("approve")

    definition_ = {"name": "run", "description": "Run.", "tier": "execute", "input_schema": {"type": "object"}}
    entry = compile_entry(
        definition(definition_), Implementation(function=any_command, mode="inline"), (), DefinitionRules(guards=plan)
    )
    async with memory_app(commands={"allow": [*ALLOWED, "cat"]}) as app:
        app.register(entry)
        app.approvals.add_approver(yes)
        yield app


@pytest.mark.parametrize("arguments", BESIDE.values(), ids=BESIDE)
@pytest.mark.sample(5)
async def test_a_command_is_recognised_by_what_stands_beside_it(open_tool: App, arguments: dict[str, Any]) -> None:
    outcome = await open_tool.invoke("run", arguments)
    assert outcome.error is not None
    assert outcome.error.code == "SECURITY_VIOLATION"


@pytest.mark.parametrize(
    "arguments",
    [
        {
            "command": "git push",
            "args": ["origin", "main"],
            "env": {"CI": "true", "NODE_ENV": "test", "GIT_AUTHOR_NAME": "Ada"},
        },
        {"command": {"program": "git", "args": ["push"]}},
        {"executable": "git", "argv": ["git", "push", "origin"]},
        {"commands": {"first": "git push", "description": "all of it"}},
        {"command": "git push https://example.org/secrets/app.git", "cwd": "."},
        {"command": "git push", "env": "production", "args": ""},
        {"command": ["git", "commit", "-m", "feat: lines\n\n\tand more of them"]},
        {"command": "git commit -m 'feat: lines\n\nand more of them'"},
        {"command": "docker build -tfoo -qtoo ."},
    ],
    ids=str,
)
@pytest.mark.sample(4)
async def test_a_plain_command_passes_in_any_form(open_tool: App, arguments: dict[str, Any]) -> None:
    outcome = await open_tool.invoke("run", arguments)
    assert outcome.ok, outcome.error


async def test_a_message_of_several_lines_is_committed(workplace: Workplace, app: App) -> None:
    message = "feat: one\n\n\ttwo; three $(touch marker)"
    for command in (f"git commit --allow-empty -q -m '{message}'", ["git", "commit", "--allow-empty", "-q", "-m", message]):
        outcome = await app.invoke("run", {"command": command})
        assert outcome.ok, outcome.error
        logged = subprocess.run(
            ["git", "log", "-1", "--format=%B"], cwd=workplace.folder, capture_output=True, text=True, check=True
        )
        assert logged.stdout.strip() == message
        assert not workplace.made()


PERMITTED: list[str | list[str]] = [
    "touch marker-of-ours", "env touch marker-of-ours", "nice -n 5 touch marker-of-ours", "timeout 5 touch marker-of-ours",
    "timeout --signal=KILL 5s nice touch marker-of-ours", "'touch' \"marker-of-ours\"", ["touch", "marker-of-ours"],
    "nohup touch marker-of-ours", "stdbuf -oL touch marker-of-ours", "setsid -w touch marker-of-ours",
    "cp a.txt marker-of-ours", "tar cf marker-of-ours a.txt", "git init marker-of-ours",
]  # fmt: skip


@pytest.mark.parametrize("command", PERMITTED, ids=str)
@pytest.mark.sample(4)
async def test_an_allowed_command_has_its_effect(app: App, workplace: Workplace, command: str | list[str]) -> None:
    effect = workplace.folder / "marker-of-ours"
    outcome = await app.invoke("run", {"command": command})
    assert outcome.ok, outcome.error
    assert effect.exists()
    if effect.is_dir():
        subprocess.run(["rm", "-r", str(effect)], check=True)
    else:
        effect.unlink()


async def test_a_commit_is_made(workplace: Workplace, app: App) -> None:
    outcome = await app.invoke("run", {"command": "git commit --allow-empty -q -m 'fix: costs $5; see #3 (done!)'"})
    assert outcome.ok, outcome.error
    logged = subprocess.run(
        ["git", "log", "-1", "--format=%s"], cwd=workplace.folder, capture_output=True, text=True, check=True
    )
    assert logged.stdout.strip() == "fix: costs $5; see #3 (done!)"


@pytest.mark.parametrize(
    "command",
    [
        "cat .env",
        "cat ./sub/../.env",
        "git add .env",
        "git commit -F .env",
        "git commit --file=.env",
        "cat ~/.ssh/id_rsa",
        "cp evil .git/hooks/pre-commit",
        "cp evil toolgate.yaml",
        "ls -I.env",
    ],
)
async def test_a_command_does_not_open_sensitive_files_either(app: App, command: str) -> None:
    words = [word if word[0] != "~" else str(Path.home() / ".ssh/id_rsa") for word in command.split()]
    outcome = await app.invoke("run", {"command": words})
    assert outcome.status == "denied"
    assert "names a file that no command may open" in (outcome.error.message if outcome.error else "")


async def test_without_settings_only_the_six_are_allowed(workplace: Workplace) -> None:
    ran: list[str] = []

    @tool(tier="execute")
    async def run(command: str) -> None:
        """Run a command."""
        ran.append(command)

    async def yes(_request: ApprovalRequest) -> Answer:
        return Answer("approve")

    six = [
        "npm install left-pad",
        "npm run build",
        "git commit -m x",
        "git push origin main",
        "npx prisma migrate",
        "docker build .",
    ]
    async with memory_app() as app:
        app.register(run)
        app.approvals.add_approver(yes)
        for command in six:
            assert (await app.invoke("run", {"command": command})).ok, command
        for command in (
            "ls",
            "npm",
            "npm installx",
            "npm uninstall x",
            "npx create-app",
            "git status",
            "docker run x",
            "docker buildx",
        ):
            assert (await app.invoke("run", {"command": command})).status == "denied", command
    assert ran == six
    assert not workplace.made()


# -- the parser against a real shell


WORDS = st.text(st.sampled_from("ab.-=/:'\" $`\\;&|<>()*?[]{}~#!\t\n%^@+,é"), max_size=20)


@given(line=WORDS)
@example(line="a'b'\"c\" ''")
@example(line="x='a b'")
def test_a_line_that_is_accepted_means_the_same_to_a_shell(tmp_path_factory: pytest.TempPathFactory, line: str) -> None:
    """No shell could make more of it, so a tool that uses one by mistake runs what was checked."""
    try:
        words = parse(f"printf {line}")[1:]
    except Denied as refused:
        assert refused.code == "SECURITY_VIOLATION"
        return
    for shell in ("sh", "bash"):
        said = subprocess.run(
            [shell, "-c", f"printargs() {{ for a in \"$@\"; do printf '%s\\n' \"$a\"; done; }}; printargs {line}"],
            cwd=tmp_path_factory.getbasetemp(), capture_output=True, text=True, check=True,
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
        )  # fmt: skip
        assert said.stdout == "".join(f"{word}\n" for word in words)


@given(
    before=st.lists(st.sampled_from(["--no-pager", "-P"]), max_size=2),
    bad=st.sampled_from(["-c", "-C", "--git-dir", "--exec-path=x", "-p"]),
)
def test_nothing_that_changes_git_stands_before_its_subcommand(before: list[str], bad: str) -> None:
    with pytest.raises(Denied):
        CommandRules(["git"]).check(["git", *before, bad, "x", "status"])
    assert CommandRules(["git"]).check(["git", *before, "status"])


@given(
    st.permutations(["-r", "-f", "-v", "x"]),
    st.sampled_from([["-rf"], ["-fR"], ["-vrf"], ["--rec", "-f"], ["-r", "--force"], ["--recursive", "--fo"]]),
)
def test_recursive_and_forced_is_refused_in_any_order(words: list[str], other: list[str]) -> None:
    rules = CommandRules(["rm", "nice"])
    for command in (["rm", *words], ["rm", "x", *other], ["nice", "rm", *other, "x"]):
        with pytest.raises(Denied, match="rm -rf is never run"):
            rules.check(command)
    assert rules.check(["rm", "-r", "x"])
    assert rules.check(["rm", "-f", "x"])


# -- whose arguments are free


@tool(tier="execute")
async def run_on_the_host(command: str) -> str:
    """Run a command, and say nothing of where."""
    return command


@tool(tier="execute")
@jails_commands
async def run_in_the_jail(command: str) -> str:
    """Run a command in the sandbox."""
    return command


@pytest.mark.parametrize(
    ("code", "source", "free"),
    [
        (run_on_the_host, "builtin", False),
        (run_on_the_host, "python", False),
        (run_in_the_jail, "builtin", True),
        (run_in_the_jail, "python", False),
    ],
)
def test_only_a_built_in_tool_that_declares_its_jail_has_free_arguments(code: Any, source: Source, free: bool) -> None:
    entry = entry_of(code, source, DefinitionRules(guards=plan))
    tiers = TierRules(allow=["find", "ls"])
    tiers.check(entry, {"command": "ls -l"})
    evasion = {"command": "find . -exec ls '{}' ';'"}
    if free:
        tiers.check(entry, evasion)
    else:
        with pytest.raises(Denied, match="find can start other programs"):
            tiers.check(entry, evasion)
    with pytest.raises(Denied, match="find can start other programs"):
        tiers.check(entry, evasion, allow=("find",))


async def test_the_tools_that_declare_their_jail_are_those_that_have_one() -> None:
    async with memory_app() as app:
        entries = [app.parts.catalog.resolve(name, "default") for name in BUILTIN]  # those that no list shows, too
    assert {entry.name for entry in entries if entry.jails_commands} == {"execute_command", "bash_execution"}


def test_no_definition_can_declare_a_jail() -> None:
    with pytest.raises(DefinitionError):
        definition({"name": "run", "description": "Run.", "tier": "execute", "jails_commands": True})
