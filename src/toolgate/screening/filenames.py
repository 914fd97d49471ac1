"""What a file's name says about what is in it: environment files, private keys, passwords and the like.

It knows names only, of files that need not exist: `paths` finds out which names a path stands for. Names are compared
without regard to case. A word counts where it stands by itself: `secrets.yml` and `db-password.txt`, not `secretary.txt`.
Source code, documentation, pictures and examples whose names merely speak of secrets are innocent.

Some names say it for sure (`.env`, `id_rsa`); others only suggest it (`token`, `users/password`): a folder or the address
of an API may be called so too, and `paths` knows more about those.
"""

import os
import re
from pathlib import Path

from toolgate.screening.credential_names import FOLDERS, NAMES, PLACES, SUFFIXES, SUGGESTS, TYPED
from toolgate.screening.toolgate_files import own_by_name

SECRET_WORDS = {
    "secret": "secrets", "secrets": "secrets", "credential": "credentials", "credentials": "credentials",
    "creds": "credentials", "password": "passwords", "passwords": "passwords", "passwd": "passwords",
    "passphrase": "passwords", "passphrases": "passwords", "apikey": "API keys", "apikeys": "API keys",
    "clientsecret": "secrets", "clientsecrets": "secrets", "appsecrets": "secrets", "usersecrets": "secrets",
    "dbpassword": "passwords", "rootpassword": "passwords",
}  # fmt: skip

SPEAKS_OF = {
    ".md", ".mdx", ".rst", ".adoc", ".tex", ".html", ".htm", ".css", ".scss", ".less", ".vue", ".svelte", ".py", ".pyi",
    ".pyx", ".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".go", ".rs", ".java", ".kt", ".kts", ".scala", ".c", ".h", ".cc",
    ".cpp", ".hpp", ".cs", ".fs", ".rb", ".php", ".swift", ".m", ".dart", ".ex", ".exs", ".erl", ".hs", ".ml", ".clj",
    ".lua", ".r", ".jl", ".proto", ".graphql", ".rego", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".ico", ".pub",
    ".crt", ".cer", ".hbs", ".mjml", ".snap", ".ejs", ".erb", ".haml", ".pug", ".liquid", ".twig", ".njk", ".astro", ".sass",
    ".styl", ".po", ".pot", ".arb", ".feature", ".sol", ".zig", ".groovy", ".woff", ".woff2", ".ttf", ".otf", ".eot",
    ".avif", ".bmp", ".mp3", ".mp4", ".webm", ".wav",
}  # fmt: skip
"""Suffixes of source code, documentation and pictures; and of what is public by nature."""

EXAMPLE_NAMES = {"example", "examples", "sample", "template", "tmpl", "tpl", "j2", "dist", "schema"}
FEATURES = {"password", "passwords", "passwd", "passphrase", "passphrases"}
"""Words that as the name of a folder mean a part of a program rather than a store of secrets, unless it is hidden."""
ABOUT = {
    "index.json", "package.json", "tsconfig.json", "readme", "readme.txt", "license", "makefile", "dockerfile", ".gitignore",
    ".gitkeep",
}  # fmt: skip
"""Files that say what a folder is, also one that is called secrets."""
TRANSLATIONS = {"locales", "locale", "i18n", "lang", "translations"}
"""Folders whose files say "password" in other languages."""

ENVIRONMENT = re.compile(r"\.env(?!\.d\.ts\Z)(?:rc|\d+|prod|production|dev|local|test|staging)?(?:[-._~ ].*)?\Z")
SSH_KEY = re.compile(
    r"(?:id_(?:rsa|dsa|ecdsa|ed25519|xmss)(?:_sk)?|ssh_host_\w+_key)(?:[-._].*)?\Z"
    r"|(?:.*[-_.])?(?:deploy|ssh)[-_]?keys?(?:\.(?:txt|json|ya?ml|asc))?\Z"
)
CERTIFICATES = re.compile(
    r"(?:(?:full)?chain\d*|(?:root)?[-_]?ca(?:[-_]?(?:certs?|bundle|chain|certificates?))?|(?:.*[-_.])?pub(?:lic)?(?:[-_]?key)?)\.pem\Z"
)
"""What is public among the .pem files, by the names that it usually has."""
HISTORY = re.compile(r"\.\w+_history\Z")
WALLET = re.compile(r"utc--\d{4}-\d\d-\d\dt.*--[0-9a-f]{40}\Z")
TICKET = re.compile(r"krb5cc_.*\Z")
SERVICE_ACCOUNT = re.compile(r"(?:service[-_]?account|.*firebase-adminsdk).*\.json\Z")
MEMORY = re.compile(
    r"/proc/(?:.*/)?(?:environ|cmdline|mem|auxv|maps|smaps|pagemap|kcore|fd|fdinfo|map_files|root|cwd)(?:/|\Z)"
)
DEVICE = re.compile(r"/dev/(?:mem|kmem|kcore|port|stdin|fd|fd/.*|(?:sd|hd|vd|xvd|nvme|dm-|loop|mapper/|disk/).*)\Z")
BACKUP = re.compile(r"(?:~|\.(?:bak|backup|old|orig|save|saved|swp|swo|tmp|copy|\d{1,8}))\Z")
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
NOT_A_WORD = re.compile(r"[^a-z]+")

RUN_LATER = {
    ".toolgate/tools": "tools that Toolgate loads", "toolgate.yaml": "Toolgate's settings", ".git/hooks": "what git runs",
    ".git/config": "what git runs", ".gitconfig": "what git runs", ".config/git": "what git runs",
    ".bashrc": "what a shell runs", ".bash_profile": "what a shell runs", ".bash_login": "what a shell runs",
    ".profile": "what a shell runs", ".zshrc": "what a shell runs", ".zshenv": "what a shell runs",
    ".zprofile": "what a shell runs", ".config/fish": "what a shell runs",
    ".config/autostart": "what runs at the next login", ".config/systemd": "what runs at the next login",
    "launchagents": "what runs at the next login", "etc/cron.d": "what cron runs", "spool/cron": "what cron runs",
    "etc/ld.so.preload": "what every program runs",
}  # fmt: skip
"""What may be read but not written: whoever writes it has code run later that nobody approved."""

EDITOR, AGENT, DOTGIT, SHELL = "what an editor runs", "what an agent runs", "what git runs", "what a shell runs"
RUN_BY_NAME = {
    ".vscode": EDITOR, ".idea": EDITOR, ".devcontainer": EDITOR, ".mcp.json": AGENT, ".claude": AGENT, ".cursor": AGENT,
    ".git": DOTGIT, ".gitmodules": DOTGIT, ".husky": DOTGIT, ".envrc": SHELL, ".bash_logout": SHELL, ".zlogin": SHELL,
    ".zlogout": SHELL, ".inputrc": SHELL, ".ripgreprc": "what a search runs",
}  # fmt: skip
"""The same for what is in the folder of a project: only below it, for the folder itself may be in one of these."""


def holds(path: str, *, surely: bool = False) -> str | None:
    """What a file or folder must be taken to hold, by its absolute path with / between the parts; None if nothing secret.
    `surely`: leave out what a name only suggests."""
    lower = path.lower()
    if MEMORY.match(lower):
        return "the memory, environment or open files of a process"
    if DEVICE.match(lower):
        return "a device's raw memory or what another reads"
    parts = [_plain(part) for part in lower.split("/") if part]
    if not parts:
        return None
    sure = _by_place(parts) or own_by_name(parts) or _by_name(parts)
    return sure if sure or surely else _suggested(parts, path)


def runs(path: str) -> str | None:
    """What would run later if this absolute path were written; None if nothing."""
    return _place(RUN_LATER, [_plain(part) for part in path.lower().split("/") if part])


def runs_by_name(name: str) -> str | None:
    """What would run later if a project had a file or folder of this name; None if nothing."""
    return RUN_BY_NAME.get(_plain(name.lower()))


def _plain(part: str) -> str:
    """A part of a path without what Windows ignores at its end: dots, spaces, the name of a stream. `.` and `..` are gone by
    now. A file that was deleted while open is shown by Linux with a note."""
    plain = part.removesuffix(" (deleted)").rstrip(". ")
    head, colon, _ = plain.partition(":")
    return head.rstrip(". ") if colon and head else plain or part


def _by_place(parts: list[str]) -> str | None:
    for part in parts:
        if part in FOLDERS:
            return FOLDERS[part]
    return _place(PLACES, parts)


def _place(places: dict[str, str], parts: list[str]) -> str | None:
    """What the first of the places holds that a path is in or leads through."""
    slashed = "/" + "/".join(parts) + "/"
    return next((what for place, what in places.items() if f"/{place}/" in slashed), None)


def _bare(name: str) -> str:
    """A name without what backups add to it."""
    while BACKUP.search(name) and not BACKUP.fullmatch(name):
        name = BACKUP.sub("", name)
    return name


def _by_name(parts: list[str]) -> str | None:
    name = _bare(parts[-1])
    if name in NAMES:
        return None if name in SUGGESTS else NAMES[name]
    if _is_example(name):
        return None
    _, dot, suffix = name.rpartition(".")
    if ENVIRONMENT.match(name) or dot + suffix == ".env":
        return "environment variables and their secrets"
    if suffix != "pub" and SSH_KEY.match(name):
        return "private keys"
    if HISTORY.match(name):
        return TYPED
    if SERVICE_ACCOUNT.match(name):
        return "credentials"
    if WALLET.match(name) or TICKET.match(name):
        return "wallets" if name.startswith("utc") else "Kerberos keys"
    if CERTIFICATES.match(name):
        return None
    return SUFFIXES.get(dot + suffix)


def _is_example(name: str) -> bool:
    return bool(EXAMPLE_NAMES.intersection(name.split(".")[-1 if ENVIRONMENT.match(name) else -2 :]))


def _suggested(parts: list[str], path: str) -> str | None:
    bare = _bare(parts[-1])
    if bare in SUGGESTS:
        return NAMES[bare]
    _, dot, suffix = bare.rpartition(".")
    if dot + suffix in SPEAKS_OF or _is_example(bare) or bare == ".env.d.ts" or CERTIFICATES.match(bare):
        return None
    name = path.rstrip("/").rpartition("/")[2]
    words = {*NOT_A_WORD.split(f"{HUMP.sub(' ', name)} {name}".lower())}  # clientSecret is two words, sEcRet may be one
    if words & {"privatekey", "privatekeys"} or ("private" in words and words & {"key", "keys"}):
        return "private keys"
    if not TRANSLATIONS.isdisjoint(parts[-4:-1]):
        return None
    stores = {NOT_A_WORD.sub("", part) for part in parts[:-1] if part.startswith(".") or part not in FEATURES}
    return next(
        (SECRET_WORDS[word] for word in words | (stores if bare not in ABOUT else set()) if word in SECRET_WORDS), None
    )


# -- what programs keep out of sight in a home: no list of it is ever complete, so all of it is sensitive

ANY_HOME = re.compile(r"(?:/[a-z]:)?/(?:root|(?:home|users|export/home|var/home|usr/home)/[^/]+)(?=/)")
"""Homes as systems lay them out, in lower case: other people's count as well."""
HIDDEN = re.compile(r"/(?:\.[^/]|library(?=/|\Z)|appdata(?=/|\Z))[^/]*")


def hidden_in_home(path: str, homes: tuple[str, ...]) -> bool:
    """Tells whether an absolute path with slashes is hidden in a home. `homes` are more homes, in lower case."""
    lower = path.lower()
    entry = next(filter(None, (_hidden(lower, home) for home in (*homes, *_any_home(lower)))), None)
    if entry is None:
        return False
    here = os.path.realpath(Path.cwd()).replace(os.sep, "/").lower()
    return not (_inside(here, entry) and _inside(lower, here))


def _any_home(path: str) -> tuple[str, ...]:
    found = ANY_HOME.match(path)
    return () if found is None else (found[0],)


def _hidden(path: str, home: str) -> str | None:
    """The hidden entry of a home that a path is or is in."""
    if not path.startswith(f"{home}/"):
        return None
    found = HIDDEN.match(path, len(home))
    return None if found is None else path[: found.end()]


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
