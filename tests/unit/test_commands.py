"""The parser of commands, the lists, and the environment that a command gets."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import Denied
from toolgate.model import AllowedCommand
from toolgate.screening.commands import CommandRules, clean_environment, leads_astray, parse
from toolgate.screening.network_commands import network_use
from toolgate.screening.programs import DENIED, family, gives


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("npm install left-pad", ["npm", "install", "left-pad"]),
        ("  npm \t run   build ", ["npm", "run", "build"]),
        ("git commit -m 'two words'", ["git", "commit", "-m", "two words"]),
        ('git commit -m "it is $"', None),
        ("git commit -m 'it is $5; a|b (c) `d` \\'", ["git", "commit", "-m", "it is $5; a|b (c) `d` \\"]),
        ("a\"b\"'c'd", ["abcd"]),
        ("a '' \"\"", ["a", "", ""]),
        ("npm install left-pad@^1.0.0", ["npm", "install", "left-pad@^1.0.0"]),
        ("a=b", ["a=b"]),
        ("echo é", ["echo", "é"]),
        ("a 'b", None),
        ('a "b', None),
        ("a\u2003b", None),
        ("", None),
        ("   ", None),
    ],
)
def test_parse(line: str, words: list[str] | None) -> None:
    if words is None:
        with pytest.raises(Denied) as refused:
            parse(line)
        assert refused.value.code == "SECURITY_VIOLATION"
    else:
        assert parse(line) == words


@pytest.mark.parametrize("char", ";&|<>`$()*?[]{}~#!\\\n\r\0\x1b\u200b\u202e")
def test_what_only_a_shell_understands_is_refused_by_name(char: str) -> None:
    with pytest.raises(Denied) as refused:
        parse(f"echo a{char}b")
    assert char in refused.value.message or "U+" in refused.value.message or "new line" in refused.value.message


@given(st.lists(st.text(st.characters(categories=["L", "N", "P", "S"])), min_size=1))
def test_quoted_words_come_back(words: list[str]) -> None:
    assert parse(words) == words
    simple = [word for word in words if "'" not in word]
    if simple:
        assert (
            parse(" ".join(f"'{word}'" for word in simple))
            == simple
            == shlex.split(" ".join(f"'{word}'" for word in simple))
        )


def test_words_must_be_text() -> None:
    with pytest.raises(Denied):
        parse(["a", 5])  # type: ignore[list-item]
    for endless in ("a" * 200_000, ["a"] * 20_000):
        with pytest.raises(Denied, match="too long"):
            parse(endless)


@pytest.mark.parametrize("rule", DENIED)
def test_what_is_denied_is_denied_whatever_is_allowed(rule: str) -> None:
    command = rule.replace("*", ".ext4")
    for allow in ([command], ["*"], [command.split()[0]], [command, "env", "busybox"]):
        for line in (command, f"{command} x", f"env {command}", f"busybox {command} x"):
            with pytest.raises(Denied):
                CommandRules(allow).check(line)


@pytest.mark.parametrize(
    ("allow", "line", "passes"),
    [
        (["git commit"], "git commit -m x", True),
        (["git commit"], "git commit-tree x", False),
        (["git commit"], "git", False),
        (["git commit"], "git push", False),
        (["git"], "git status", True),
        (["git"], "git bisect run x", False),
        (["git bisect"], "git bisect good", True),
        (["git"], "GIT status", False),
        (["*"], "ls -l", True),
        (["*"], "git status", True),
        (["*"], "git -c a=b status", False),
        (["*"], "python3 x.py", False),
        (["*", "python3"], "python3 x.py", True),
        (["python3"], "python3 -m pytest", False),
        (["python3 -m pytest"], "python3 -m pytest -m slow", True),
        (["python3.11"], "python3.11 -c x", False),
        (["bash scripts/build.sh"], "bash scripts/build.sh -c", True),
        (["bash scripts/build.sh"], "bash other.sh", False),
        (["*"], "xargs ls", False),
        (["xargs"], "xargs ls", False),
        (["xargs ls"], "xargs ls", True),
        (["xargs ls"], "xargs ls -l", False),
        (["sqlite3"], "sqlite3 a.db '.shell x'", False),
        (["ld-linux-x86-64.so.2"], "ld-linux-x86-64.so.2 /bin/sh", False),
        (["qemu-x86_64"], "qemu-x86_64 /bin/sh", False),
        (["fakeroot-sysv"], "fakeroot-sysv ls", False),
        (["pinentry-curses"], "pinentry-curses --display x", False),
        (["fakeroot-sysv ls"], "fakeroot-sysv ls", True),
        (["*"], "timeout 5 ls", True),
        (["timeout"], "timeout 5 ls", False),
        (["timeout", "ls"], "timeout 5 ls", True),
        (["timeout", "ls"], "timeout -k 1 5 ls", False),
        (["timeout", "ls"], "timeout 5 5 ls", False),
        (["env"], "env", False),
        (["env", "nice"], "env nice env nice env nice env ls", False),
        (["sed"], "sed --sandbox s/a/b/ x", False),
        (["sed"], "sed s/a/b/ x", False),
        (["awk"], "awk '{ print $1 }' x", False),
        (["tar"], "tar czf x.tgz a", False),
        (["find"], "find . -name '*.py' -newer x", False),
        (["docker build"], "docker build -t a:1 --no-cache --pull --progress=plain -f Dockerfile .", True),
        (["docker build"], "docker build --secret id=x .", False),
        (["docker"], "docker -H tcp://x ps", False),
        (["npm run"], "npm run build -- --prefix x -g", True),
        (["npm run"], "npm run build --prefix x", False),
        (["npm install"], "npm install --save-dev @types/node typescript@5", True),
        (["npm install"], "npm install -g x", False),
        (["npm install"], "npm install --@a:registry=http://x/", False),
        (["npm install"], "npm install --//x/:_authToken=x", False),
        (["npm install"], "npm install --no-no-prefix=x", False),
        (["npm install"], "npm install --no-audit --workspace=@a/b", True),
        (["ls"], "ls ---color", False),
        (["git diff"], "git diff --no-ext-diff", True),
        (["git diff"], "git diff --ext-diff", False),
        (["docker build"], "docker build -tfoo .", True),
        (["docker build"], "docker build -qo x .", False),
        (["docker build"], "docker build -otfoo .", False),
        (["docker run"], "docker run -itv /:/x y", False),
        (["docker run"], "docker run -it y", True),
        (["git push"], "git push --repo=ext::sh", False),
        (["git commit"], "git commit -m 'speak of ext::sh'", True),
        (["diff3"], "diff3 --diff-program=x a b c", False),
        (["cmake"], "cmake -DCMAKE_BUILD_TYPE=Debug -B build", False),
        (["cmake"], "cmake -P x.cmake", False),
        (["*"], "apt-get -o x=y update", False),
        (["uv run"], "uv run pytest", True),
        (["*"], "uv run pytest", False),
        (["*"], "which sh", False),
        (["*", "which"], "which sh", True),
        (["git push"], "git push -u origin main --follow-tags", True),
        (["git push"], "git push ext::sh", False),
        (["git clone"], "git clone --depth 1 https://example.org/x.git", True),
        (["git clone"], "git clone ssh://-oProxyCommand=x/y", False),
        ([], "ls", False),
        ([""], "ls", False),
    ],
)
def test_the_lists(allow: list[str], line: str, passes: bool) -> None:
    rules = CommandRules(allow)
    if passes:
        assert rules.check(line) == shlex.split(line)
    else:
        with pytest.raises(Denied) as refused:
            rules.check(line)
        assert refused.value.message.startswith("The command is refused: ")
        assert refused.value.suggestion


@pytest.mark.parametrize(
    ("allow", "line", "passes"),
    [
        (["find"], "find . -name '*.py' -exec ls '{}' ';'", True),
        (["sed"], "sed s/a/b/ x", True),
        (["tar"], "tar czf x.tgz a", True),
        (["*"], "python3 -c 1", True),
        (["find"], "awk 1 x", False),
        (["*"], "sudo ls", False),
        (["*"], "env sudo ls", False),
        (["*"], "ls; ls", False),
        (["*"], "git status", True),
        (["*"], "git -c a=b status", False),
        (["git"], "git pull --upload-pack=x .", False),
        (["*"], "env git -c a=b status", False),
    ],
)
def test_in_the_sandbox_arguments_are_free_but_for_those_of_git(allow: list[str], line: str, passes: bool) -> None:
    """The jail holds what a program does; git writes the workspace itself, past the review of changes."""
    if passes:
        assert CommandRules(allow).check(line, jailed=True) == shlex.split(line)
    else:
        with pytest.raises(Denied):
            CommandRules(allow).check(line, jailed=True)


def test_settings_deny_more() -> None:
    rules = CommandRules(["git push", "rm"], ["git push --force", "rm -r", "git push -f"])
    assert rules.check("git push origin main")
    assert rules.check("rm x")
    for line in (
        "git push --force",
        "git push origin --forc main",
        "git push -f",
        "rm -r x",
        "rm --recursive x",
        "rm -vR x",
    ):
        with pytest.raises(Denied, match="is never run"):
            rules.check(line)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("python3.11", "python"),
        ("Python3", "python"),
        ("bash.EXE", "bash"),
        ("gawk", "awk"),
        ("7z", "7z"),
        ("podman", "docker"),
        ("perl5.36-x86_64-linux-gnu", "perl"),
        ("x86_64-linux-gnu-gcc-12", "gcc"),
        ("aarch64-linux-gnu-g++", "gcc"),
        ("vim.basic", "vim"),
        ("vim.nox", "vim"),
        ("clang++-15", "gcc"),
    ],
)
def test_family(program: str, name: str) -> None:
    assert family(program) == name


@pytest.mark.parametrize(
    ("argument", "option", "given"),
    [
        ("--exec=x", "--exec", True),
        ("--exe", "--exec", True),
        ("--executor", "--exec", False),
        ("--", "--exec", False),
        ("exec", "--exec", False),
        ("-exec", "--exec", True),
        ("-ax", "-x", True),
        ("-x5", "-x", True),
        ("--x", "-x", False),
        ("x", "-x", False),
        ("-exec", "-exec", True),
        ("-execdir", "-exec", False),
    ],
)
def test_gives(argument: str, option: str, given: bool) -> None:
    assert gives(argument, option) is given


@pytest.mark.parametrize(
    ("name", "astray"),
    [
        ("LD_PRELOAD", True),
        ("ld_library_path", True),
        ("GIT_SSH", True),
        ("GIT_AUTHOR_NAME", False),
        ("GIT_COMMITTER_DATE", False),
        ("NODE_ENV", False),
        ("NODE_OPTIONS", True),
        ("PATH", True),
        ("MY_PATH", False),
        ("CI", False),
        ("DEBUG", False),
        ("A=b", True),
        ("", True),
        ("BASH_FUNC_x%%", True),
        ("HTTPS_PROXY", True),
    ],
)
def test_variables(name: str, astray: bool) -> None:
    assert leads_astray(name) is astray


def test_the_environment_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_SSH_COMMAND", "LD_PRELOAD", "NODE_OPTIONS", "BASH_ENV", "PYTHONPATH", "TOOLGATE_SECRET_X", "IFS"):
        monkeypatch.setenv(name, "evil")
    monkeypatch.setenv("PATH", ".:/tmp")
    environment = clean_environment()
    assert set(environment) == {"PATH", "HOME", "LANG"}
    assert "evil" not in environment.values()
    assert all(folder.startswith("/") and folder != "/tmp" for folder in environment["PATH"].split(":"))


WORDS = st.lists(
    st.sampled_from(["npm", "npx", "git", "docker", "pip", "python3", "-m", "install", "push", "--offline", "-y", "x"])
    | st.text(max_size=300),
    min_size=1,
    max_size=6,
)


@given(words=WORDS)
def test_any_words_need_a_network_or_not(words: list[str]) -> None:
    use = network_use(words, [Path("/nowhere")])
    assert use is None or use.why


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        ("npm run build", False), ("npm test", False), ("npm install --offline", False), ("git status", False),
        ("git push ./other", False), ("git push ../other main", False), ("git commit -m push", False),
        ("docker --version", False),
        ("pip list", False), ("pip install --no-index x", False), ("cargo build", False), ("go test", False),
        ("yarn build", False), ("uv --version", False), ("npx --no-install x", False), ("node x.js", False),
        ("npm exec x", True), ("npm it", True), ("git ls-remote origin", True), ("docker ps", True), ("uvx ruff", True),
        ("go get x", True), ("uv sync", True), ("npm --silent install", True),
    ],
)  # fmt: skip
def test_commands_that_are_known_to_need_a_network(words: str, needs: bool) -> None:
    assert (network_use(words.split(), []) is not None) is needs


def test_the_hosts_of_a_command_are_those_of_its_longest_entry() -> None:
    named = {"*": "any.example", "npm install": "a.example", "npm install ": "b.example"}
    entries: list[Any] = ["npm", "timeout", AllowedCommand(command="npm install x", hosts=())]
    entries += [AllowedCommand(command=command, hosts=(host,)) for command, host in named.items()]
    rules = CommandRules(entries)

    def hosts(command: str) -> tuple[str, ...] | None:
        return rules.reach(rules.check(command, jailed=True)).hosts

    assert hosts("npm install") == ("a.example", "b.example")
    assert hosts("timeout 5 npm install y") == ("a.example", "b.example")
    assert hosts("npm install x") == ()
    assert hosts("npm run") is None
    assert hosts("curl") == ("any.example",)
