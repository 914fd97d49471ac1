"""What a file's name says about what is in it: environment files, private keys, passwords and the like.

It knows names only, of files that need not exist: `paths` finds out which names a path stands for. Names are compared
without regard to case. A word counts where it stands by itself: `secrets.yml` and `db-password.txt`, not `secretary.txt`.
Source code, documentation, pictures and examples whose names merely speak of secrets are innocent.
"""

import re

FOLDERS = {
    ".ssh": "SSH keys", ".aws": "AWS credentials", ".gnupg": "GnuPG keys", ".azure": "Azure credentials",
    ".kube": "Kubernetes credentials", ".gcloud": "Google Cloud credentials", ".password-store": "passwords",
    "sudoers.d": "who may become root",
}  # fmt: skip
"""Folders of which nothing may be opened, wherever they are."""

PLACES = {
    ".docker/config.json": "registry credentials", ".config/gcloud": "Google Cloud credentials",
    "appdata/roaming/gcloud": "Google Cloud credentials", ".config/gh": "GitHub credentials",
    ".config/hub": "GitHub credentials", ".config/rclone": "cloud credentials", ".config/op": "passwords",
    ".m2/settings.xml": "repository credentials", ".gradle/gradle.properties": "repository credentials",
    ".mozilla/firefox": "a browser's passwords", ".local/share/keyrings": "passwords", "library/keychains": "passwords",
    "etc/ssl/private": "private keys", "run/secrets": "mounted secrets", "system32/config/sam": "password hashes",
}  # fmt: skip
"""The same, where the name of the folder alone would say too little."""

NAMES = {
    ".netrc": "passwords", "_netrc": "passwords", ".pgpass": "passwords", "pgpass.conf": "passwords", ".my.cnf": "passwords",
    ".mylogin.cnf": "passwords", ".git-credentials": "passwords", "wp-config.php": "passwords",
    ".npmrc": "registry credentials", ".pypirc": "registry credentials", ".yarnrc": "registry credentials",
    ".dockercfg": "registry credentials", ".dockerconfigjson": "registry credentials",
    ".htpasswd": "password hashes", "shadow": "password hashes", "shadow-": "password hashes", "gshadow": "password hashes",
    "gshadow-": "password hashes", "master.passwd": "password hashes", "ntds.dit": "password hashes",
    "passwd": "the users of this machine", "passwd-": "the users of this machine", "sudoers": "who may become root",
    ".s3cfg": "cloud credentials", ".boto": "cloud credentials", "kubeconfig": "Kubernetes credentials",
    ".vault-token": "a token", ".token": "a token", "token": "a token", "token.json": "a token", "token.txt": "a token",
    "auth.json": "credentials", "logins.json": "a browser's passwords", "key3.db": "a browser's passwords",
    "key4.db": "a browser's passwords", "login data": "a browser's passwords", "cookies.sqlite": "a browser's sessions",
    "terraform.tfstate": "what Terraform knows, with secrets",
}  # fmt: skip

SUFFIXES = {
    ".pem": "private keys", ".key": "private keys", ".p12": "private keys", ".pfx": "private keys", ".p8": "private keys",
    ".pkcs12": "private keys", ".pk8": "private keys", ".ppk": "private keys", ".jks": "private keys",
    ".keystore": "private keys", ".agekey": "private keys", ".ovpn": "private keys", ".keytab": "Kerberos keys",
    ".kdbx": "passwords", ".kdb": "passwords", ".tfvars": "settings with secrets",
}  # fmt: skip

WORDS = {
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
    ".crt", ".cer",
}  # fmt: skip
"""Suffixes of source code, documentation and pictures; and of what is public by nature."""

EXAMPLES = {"example", "examples", "sample", "template", "tmpl", "dist", "schema"}

ENVIRONMENT = re.compile(r"\.env(?:rc|[-._~ ].*)?\Z")
SSH_KEY = re.compile(r"(?:id_(?:rsa|dsa|ecdsa|ed25519|xmss)(?:_sk)?|ssh_host_\w+_key)(?:[-._].*)?\Z")
HISTORY = re.compile(r"\.\w+_history\Z")
SERVICE_ACCOUNT = re.compile(r"(?:service[-_]?account|.*firebase-adminsdk).*\.json\Z")
MEMORY = re.compile(r"/proc/(?:.*/)?(?:environ|mem|auxv|maps|smaps|pagemap|kcore|fd|fdinfo|map_files|root|cwd)(?:/|\Z)")
DEVICE = re.compile(r"/dev/(?:mem|kmem|kcore|port|(?:sd|hd|vd|xvd|nvme|dm-|loop|mapper/|disk/).*)\Z")
BACKUP = re.compile(r"(?:~|\.(?:bak|backup|old|orig|save|saved|swp|swo|tmp|copy|\d{1,8}))\Z")
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
NOT_A_WORD = re.compile(r"[^a-z]+")

OWN_FOLDER = ".toolgate"
OWN_OPEN = ("tools", "sessions")
"""What may be read of Toolgate's own folder: tools that people keep there, and the working directories of sessions."""

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


def holds(path: str) -> str | None:
    """What a file or folder must be taken to hold, by its absolute path with / between the parts; None if nothing secret."""
    lower = path.lower()
    if MEMORY.match(lower):
        return "the memory, environment or open files of a process"
    if DEVICE.match(lower):
        return "a device's raw memory"
    parts = [_plain(part) for part in lower.split("/") if part]
    if not parts:
        return None
    return _by_place(parts) or _own(parts) or _by_name(parts, path)


def runs(path: str) -> str | None:
    """What would run later if this absolute path were written; None if nothing."""
    return _place(RUN_LATER, [_plain(part) for part in path.lower().split("/") if part])


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


def _own(parts: list[str]) -> str | None:
    if OWN_FOLDER not in parts:
        return None
    inside = parts[parts.index(OWN_FOLDER) + 1 :]
    return None if inside and inside[0] in OWN_OPEN else "Toolgate's own data"


def _by_name(parts: list[str], path: str) -> str | None:
    name = parts[-1]
    while BACKUP.search(name) and not BACKUP.fullmatch(name):
        name = BACKUP.sub("", name)
    found = NAMES.get(name)
    if found is not None:
        return found
    _, dot, suffix = name.rpartition(".")
    environment = ENVIRONMENT.match(name)
    if EXAMPLES.intersection(name.split(".")[-1 if environment else -2 :]):
        return None
    if environment or dot + suffix == ".env":
        return "environment variables and their secrets"
    if suffix != "pub" and SSH_KEY.match(name):
        return "private keys"
    if HISTORY.match(name):
        return "what was typed into a shell"
    if SERVICE_ACCOUNT.match(name):
        return "credentials"
    return SUFFIXES.get(dot + suffix) or _by_word(parts, path, dot + suffix)


def _by_word(parts: list[str], path: str, suffix: str) -> str | None:
    if suffix in SPEAKS_OF:
        return None
    name = path.rstrip("/").rpartition("/")[2]
    words = {*NOT_A_WORD.split(f"{HUMP.sub(' ', name)} {name}".lower())}  # clientSecret is two words, sEcRet may be one
    if words & {"privatekey", "privatekeys"} or ("private" in words and words & {"key", "keys"}):
        return "private keys"
    folders = {NOT_A_WORD.sub("", part) for part in parts[:-1]}
    return next((WORDS[word] for word in words | folders if word in WORDS), None)
