"""The secrets that a file's name says are in it: environment files, private keys, passwords and the like.

It knows names only, of files that need not exist: `paths` finds out which names a path stands for. Names are compared
without regard to case. A word counts where it stands by itself: `secrets.yml` and `db-password.txt`, not `secretary.txt`.
Source code, documentation, pictures and examples whose names merely speak of secrets are innocent.

There is no kept-up list of such names to depend on: scanners look at what files hold, and their lists of names are few and
old. The tables are facts gathered from the documentation of the programs that write the files, from the names that scanners
of repositories know (gitrob, shhgit, earlybird), from the sample files of leaky-repo, and from GitHub's templates for
.gitignore. What stands hidden in a home needs no entry, since all of that is refused (`hidden_in_home`): these are the names
that also turn up in projects, images, backups and under other homes. Each entry is lower case and says what the file holds.

Some names say it for sure (`.env`, `id_rsa`); others only suggest it (`token`, `users/password`): a folder or the address
of an API may be called so too, and `paths` knows more about those.
"""

import os
import re
from pathlib import Path

from toolgate.screening.toolgate_files import own_by_name

TYPED = "what was typed into a shell"
CREDENTIALS, CLOUD, REGISTRY = "credentials", "cloud credentials", "registry credentials"

FOLDERS = {
    ".ssh": "SSH keys", ".aws": "AWS credentials", ".gnupg": "GnuPG keys", ".azure": "Azure credentials",
    ".kube": "Kubernetes credentials", ".gcloud": "Google Cloud credentials", ".password-store": "passwords",
    "sudoers.d": "who may become root", ".envs": "environment variables and their secrets", ".oci": "cloud credentials",
    ".kaggle": "credentials", ".snowsql": "credentials", ".bitcoin": "wallets", ".filezilla": "passwords",
    ".purple": "passwords", ".gopass": "passwords", ".chef": "private keys", ".cloudflared": "credentials",
    ".ngrok2": "credentials", ".huggingface": "credentials", ".minikube": "Kubernetes credentials",
    ".terraform.d": "credentials", ".snowflake": "credentials", ".ethereum": "wallets", ".electrum": "wallets",
    ".davfs2": "passwords", ".vnc": "passwords", ".putty": "private keys", ".anydesk": "passwords", ".remmina": "passwords",
    ".jenkins": "credentials", "kwalletd": "passwords", "private-keys-v1.d": "private keys",
}  # fmt: skip
"""Folders of which nothing may be opened, wherever they are."""

PLACES = {
    ".docker/config.json": "registry credentials", ".config/gcloud": "Google Cloud credentials",
    "appdata/roaming/gcloud": "Google Cloud credentials", ".config/gh": "GitHub credentials",
    ".config/hub": "GitHub credentials", ".config/rclone": "cloud credentials", ".config/op": "passwords",
    ".m2/settings.xml": "repository credentials", ".gradle/gradle.properties": "repository credentials",
    ".mozilla/firefox": "a browser's passwords", ".local/share/keyrings": "passwords", "library/keychains": "passwords",
    ".config/google-chrome": "a browser's passwords", ".config/chromium": "a browser's passwords",
    ".config/bravesoftware": "a browser's passwords", ".config/microsoft-edge": "a browser's passwords",
    "google/chrome/user data": "a browser's passwords", "application support/google/chrome": "a browser's passwords",
    ".config/bitwarden": "passwords", ".config/signal": "messages", ".config/filezilla": "passwords",
    ".config/doctl": "cloud credentials", ".config/hcloud": "cloud credentials", ".config/heroku": "cloud credentials",
    ".fly/config.yml": "cloud credentials", ".netlify/config.json": "cloud credentials",
    ".mc/config.json": "cloud credentials", ".dbt/profiles.yml": "database passwords", ".subversion/auth": "passwords",
    ".ansible/vault": "passwords", ".ethereum/keystore": "wallets", ".config/pip/pip.conf": "registry credentials",
    ".pip/pip.conf": "registry credentials", ".nuget/nuget.config": "registry credentials", "etc/wireguard": "private keys",
    "etc/networkmanager/system-connections": "passwords", "etc/kubernetes": "Kubernetes credentials",
    "var/lib/kubelet": "Kubernetes credentials", "var/lib/docker": "the files of all containers",
    "etc/shadow": "password hashes", "etc/gshadow": "password hashes", "etc/passwd": "the list of users of this machine",
    "etc/ssl/private": "private keys", "run/secrets": "mounted secrets", "system32/config/sam": "password hashes",
    ".cargo/credentials": CREDENTIALS, ".cargo/credentials.toml": CREDENTIALS, ".gem/credentials": CREDENTIALS,
    ".bundle/config": REGISTRY, ".composer/auth.json": REGISTRY, ".config/composer/auth.json": REGISTRY,
    ".config/containers/auth.json": REGISTRY, "run/containers": REGISTRY, ".config/helm": REGISTRY,
    ".config/pypoetry/auth.toml": REGISTRY, ".config/uv/credentials.toml": REGISTRY, ".ivy2/.credentials": REGISTRY,
    ".sbt/.credentials": REGISTRY, ".hex/hex.config": REGISTRY, ".cache/huggingface/token": "a token",
    ".config/configstore": CREDENTIALS, ".config/stripe": CREDENTIALS, ".config/github-copilot": "GitHub credentials",
    ".config/glab-cli": "GitLab credentials", ".config/solana": "wallets", ".config/ngrok": CREDENTIALS,
    ".config/scw": CLOUD, ".config/linode-cli": CLOUD, ".config/exoscale": CLOUD, ".config/openstack": CLOUD,
    ".bluemix/config.json": CLOUD, ".railway/config.json": CLOUD, ".supabase/access-token": CLOUD,
    ".wrangler/config": CLOUD, ".rancher/cli2.json": "Kubernetes credentials", "etc/rancher": "Kubernetes credentials",
    ".claude/.credentials.json": CREDENTIALS, ".codex/auth.json": CREDENTIALS, ".gemini/oauth_creds.json": CREDENTIALS,
    ".vscode/sftp.json": "passwords", ".idea/webservers.xml": "passwords", ".idea/datasources.local.xml": "passwords",
    ".thunderbird": "a mail program's passwords", ".config/slack": "sessions", ".config/discord": "sessions",
    "etc/mysql/debian.cnf": "passwords", "etc/security/opasswd": "password hashes", "etc/ppp": "passwords",
    "etc/ipsec.secrets": "private keys", "etc/ipsec.d/private": "private keys", "etc/openvpn": "private keys",
    "etc/krb5.keytab": "Kerberos keys", "etc/wpa_supplicant": "passwords", "var/lib/jenkins/secrets": "secrets",
    "config/database.yml": "database passwords", "app/config/parameters.yml": "database passwords",
    "app/etc/env.php": "passwords", "app/etc/local.xml": "passwords", "sites/default/settings.php": "database passwords",
    "system32/config": "password hashes", "windows/panther": "passwords", "microsoft/credentials": CREDENTIALS,
    "microsoft/protect": "private keys",
}  # fmt: skip
"""The same, where the name of the folder alone would say too little."""

NAMES = {
    ".netrc": "passwords", "_netrc": "passwords", ".pgpass": "passwords", "pgpass.conf": "passwords",
    ".my.cnf": "passwords", ".mylogin.cnf": "passwords", ".git-credentials": "passwords", "wp-config.php": "passwords",
    ".npmrc": "registry credentials", ".pypirc": "registry credentials", ".yarnrc": "registry credentials",
    ".dockercfg": "registry credentials", ".dockerconfigjson": "registry credentials", ".htpasswd": "password hashes",
    "shadow": "password hashes", "shadow-": "password hashes", "gshadow": "password hashes", "gshadow-": "password hashes",
    "master.passwd": "password hashes", "ntds.dit": "password hashes", "passwd": "the list of users of this machine",
    "passwd-": "the list of users of this machine", "sudoers": "who may become root", ".s3cfg": "cloud credentials",
    ".boto": "cloud credentials", "kubeconfig": "Kubernetes credentials", ".vault-token": "a token", ".token": "a token",
    "token": "a token", "token.json": "a token", "token.txt": "a token", "auth.json": "credentials",
    "logins.json": "a browser's passwords", "key3.db": "a browser's passwords", "key4.db": "a browser's passwords",
    "login data": "a browser's passwords", "cookies.sqlite": "a browser's sessions",
    "terraform.tfstate": "what Terraform knows, with secrets", ".terraformrc": "credentials",
    ".flaskenv": "settings with secrets", ".dev.vars": "settings with secrets", ".renviron": "settings with secrets",
    "local.settings.json": "settings with secrets", "fish_history": TYPED, ".zhistory": TYPED, ".histfile": TYPED,
    "consolehost_history.txt": TYPED, ".lesshst": TYPED, ".viminfo": "what was edited",
    ".xauthority": "the key to a screen", ".vault_pass": "passwords", ".vault_pass.txt": "passwords",
    ".vault_password": "passwords", ".htdigest": "password hashes", ".databrickscfg": "cloud credentials",
    "kaggle.json": "credentials", "rclone.conf": "cloud credentials", ".msmtprc": "passwords", ".wgetrc": "passwords",
    ".curlrc": "passwords", ".claude.json": "credentials", "wallet.dat": "wallets", "secring.gpg": "private keys",
    "docker.sock": "the control of all containers", "podman.sock": "the control of all containers",
    "containerd.sock": "the control of all containers", ".credentials": CREDENTIALS, ".credentials.json": CREDENTIALS,
    ".authinfo": "passwords", ".authinfo.gpg": "passwords", ".yarnrc.yml": REGISTRY, "pip.conf": REGISTRY,
    "pip.ini": REGISTRY, "nuget.config": REGISTRY, ".condarc": REGISTRY, "credentials.tfrc.json": CREDENTIALS,
    "terraform.rc": CREDENTIALS, "application_default_credentials.json": CLOUD, "access_tokens.db": CLOUD,
    "credentials.db": CLOUD, "legacy_credentials": CLOUD, ".tugboat": CLOUD, "heroku.json": CLOUD, ".vultr-cli.yaml": CLOUD,
    ".linode-cli": CLOUD, "clouds.yaml": CLOUD, "openrc.sh": CLOUD, "accesskeys.csv": CLOUD, "rootkey.csv": CLOUD,
    ".passwd-s3fs": CLOUD, "passwd-s3fs": CLOUD, ".sentryclirc": "a token", ".wakatime.cfg": "a token",
    ".consul-token": "a token", ".nomad-token": "a token", "ngrok.yml": "a token", "oauth_creds.json": CREDENTIALS,
    ".ftpconfig": "passwords", "sftp-config.json": "passwords", ".remote-sync.json": "passwords",
    "filezilla.xml": "passwords", "recentservers.xml": "passwords", "sitemanager.xml": "passwords",
    "winscp.ini": "passwords", "deployment-config.json": "passwords", "proftpdpasswd": "password hashes",
    "ventrilo_srv.ini": "passwords", ".smbcredentials": "passwords", ".smbcred": "passwords", ".cifs": "passwords",
    ".esmtprc": "passwords", ".fetchmailrc": "passwords", ".getmailrc": "passwords", ".mbsyncrc": "passwords",
    ".offlineimaprc": "passwords", ".muttrc": "passwords", "sasl_passwd": "passwords", "chap-secrets": "passwords",
    "pap-secrets": "passwords", "wpa_supplicant.conf": "passwords", "ipsec.secrets": "private keys",
    ".rhosts": "who may log in", ".shosts": "who may log in", "hosts.equiv": "who may log in",
    ".erlang.cookie": "the key to a cluster", ".mongorc.js": "database passwords", ".dbshell": TYPED,
    "robomongo.json": "database passwords", "mongoid.yml": "database passwords",
    "credentials-config.json": "database passwords", ".dbeaver-data-sources.xml": "database passwords",
    "datasources.local.xml": "database passwords", "debian.cnf": "database passwords", "cqlshrc": "database passwords",
    "opasswd": "password hashes", "localsettings.php": "passwords", "unattend.xml": "passwords", "sysprep.inf": "passwords",
    "sysprep.xml": "passwords", "signons.sqlite": "a browser's passwords", "cert9.db": "a browser's keys",
    "web data": "a browser's passwords", "otr.private_key": "private keys", "cwallet.sso": "wallets",
    "ewallet.p12": "wallets", "secret_token.rb": "the key to sessions", ".iceauthority": "the key to a screen",
    "jenkins.plugins.publish_over_ssh.bapsshpublisherplugin.xml": "passwords", ".netrc.gpg": "passwords",
    "etherwallet.json": "wallets",
}  # fmt: skip

SUGGESTS = {"token", "token.json", "token.txt", "auth.json", "shadow", "passwd", "sudoers"}
"""Those of the names that folders and addresses of an API have as well."""

SUFFIXES = {
    ".pem": "private keys", ".key": "private keys", ".p12": "private keys", ".pfx": "private keys", ".p8": "private keys",
    ".pkcs12": "private keys", ".pk8": "private keys", ".ppk": "private keys", ".jks": "private keys",
    ".keystore": "private keys", ".agekey": "private keys", ".ovpn": "private keys", ".keytab": "Kerberos keys",
    ".kdbx": "passwords", ".kdb": "passwords", ".tfvars": "settings with secrets", ".keychain": "passwords",
    ".keychain-db": "passwords", ".agilekeychain": "passwords", ".1pif": "passwords", ".1pux": "passwords",
    ".opvault": "passwords", ".psafe3": "passwords", ".kwallet": "passwords", ".kwl": "passwords", ".pkcs8": "private keys",
    ".bek": "private keys", ".fve": "private keys", ".gpgkey": "private keys", ".tblk": "private keys",
    ".jceks": "private keys", ".bcfks": "private keys", ".rdp": "passwords", ".cscfg": CLOUD, ".publishsettings": CLOUD,
    ".azurepubxml": CLOUD, ".ccache": "Kerberos keys", ".tfstate": "what Terraform knows, with secrets",
}  # fmt: skip

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
"""The usual names of .pem files that are public."""
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
"""Files that may be read but not written: whoever writes one has code run later that nobody approved."""

EDITOR, AGENT, DOTGIT, SHELL = "what an editor runs", "what an agent runs", "what git runs", "what a shell runs"
RUN_BY_NAME = {
    ".vscode": EDITOR, ".idea": EDITOR, ".devcontainer": EDITOR, ".mcp.json": AGENT, ".claude": AGENT, ".cursor": AGENT,
    ".git": DOTGIT, ".gitmodules": DOTGIT, ".husky": DOTGIT, ".envrc": SHELL, ".bash_logout": SHELL, ".zlogin": SHELL,
    ".zlogout": SHELL, ".inputrc": SHELL, ".ripgreprc": "what a search runs",
}  # fmt: skip
"""The same for what is in the folder of a project: only below it, for the folder itself may be in one of these."""


def holds(path: str, *, surely: bool = False) -> str | None:
    """The secret that a file or folder must be taken to hold, by its absolute path with / between the parts; None if none.
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
    """The thing that would run later if this absolute path were written; None if none."""
    return _place(RUN_LATER, [_plain(part) for part in path.lower().split("/") if part])


def runs_by_name(name: str) -> str | None:
    """The thing that would run later if a project had a file or folder of this name; None if none."""
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
    """The content of the first of the places that a path is in or leads through."""
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
    other = ANY_HOME.match(lower)
    known = homes if other is None else (*homes, other[0])
    entry = next(filter(None, (_hidden(lower, home) for home in known)), None)
    if entry is None:
        return False
    here = os.path.realpath(Path.cwd()).replace(os.sep, "/").lower()
    return not (is_inside(here, entry) and is_inside(lower, here))


def _hidden(path: str, home: str) -> str | None:
    """The hidden entry of a home that a path is or is in."""
    if not path.startswith(f"{home}/"):
        return None
    found = HIDDEN.match(path, len(home))
    return None if found is None else path[: found.end()]


def is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
