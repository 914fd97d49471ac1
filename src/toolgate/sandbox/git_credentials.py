"""The user name and password in the URL of a git command, handed to git by its environment.

Arguments can be read by everybody who may list processes, and git passes its URL on to others; of its environment, only the
program's own user knows. Nothing else of the host's is offered to git: no credential helper, no key, no .netrc.

The configuration of the repository can name programs, which could read it there. So none of these counts, and only commands
that use no others (filters, merge drivers, aliases) are given credentials.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

from toolgate.errors import InvalidInput

LOGIN_URL = re.compile(r"(?P<scheme>https?://)(?P<login>[^/@\s?#]+)@(?P<place>[^/@\s?#]+)(?P<rest>(?:[/?#].*)?)", re.DOTALL)


LOGIN_COMMANDS = frozenset({"clone", "fetch", "ls-remote", "push"})
PROGRAM_SETTINGS = (
    ("core.hooksPath", "/dev/null"), ("core.fsmonitor", "false"), ("core.alternateRefsCommand", "true"),
    ("core.askPass", "false"), ("core.sshCommand", "false"), ("core.gitProxy", "false"), ("credential.helper", ""),
    ("push.gpgSign", "false"), ("gc.auto", "0"), ("maintenance.auto", "false"), ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"), ("push.recurseSubmodules", "no"),
)  # fmt: skip
"""Settings by which git would start a program, or work in another repository, which has settings of its own."""


class GitLogin(NamedTuple):
    """A git command without the credentials that stood in it."""

    words: list[str]
    environment: dict[str, str]
    values: tuple[str, ...]
    """What must not be given out, besides the credentials as they were written."""


def git_login(words: Sequence[str]) -> GitLogin:
    """Takes the credentials out of a command. They are sent to their own host only, and encrypted; raises InvalidInput if
    they would not be, or a program that the repository names could read them."""
    plain, settings, values = [], [], []
    for word in words:
        found = LOGIN_URL.fullmatch(word)
        if found is None:
            plain.append(word)
            continue
        if found["scheme"] != "https://":
            raise InvalidInput("git would send the user name and password unencrypted.", suggestion="Use an https:// URL.")
        user, _, password = found["login"].partition(":")
        value = b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
        values += [value, unquote(password)] if password else [value]
        settings.append((f"http.{found['scheme']}{found['place']}/.extraHeader", f"Authorization: Basic {value}"))
        plain.append(f"{found['scheme']}{found['place']}{found['rest']}")
    environment = {"GIT_TERMINAL_PROMPT": "0"}  # nobody could answer
    if settings:
        _check_command(words)
        settings += PROGRAM_SETTINGS
        # Settings can rewrite a URL into one that is a program, or reaches its host by one.
        environment |= {"GIT_CONFIG_COUNT": str(len(settings)), "GIT_ALLOW_PROTOCOL": "https"}
    for number, (key, value) in enumerate(settings):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return GitLogin(plain, environment, tuple(values))


def _check_command(words: Sequence[str]) -> None:
    at = 3 if words[1:2] == ["-C"] else 1
    if at < len(words) and words[at] in LOGIN_COMMANDS:
        return
    raise InvalidInput(
        f"A user name and password are given to git {', '.join(sorted(LOGIN_COMMANDS))} only.",
        suggestion="Other commands may run programs that the repository names: use git fetch, then git merge FETCH_HEAD.",
    )
