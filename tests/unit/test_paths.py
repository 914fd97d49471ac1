# ruff: noqa: RUF001 - look-alike letters are what some of this is about
"""Names of files, patterns of settings, and which arguments are paths: the parts of the path guard by themselves."""

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import Denied
from toolgate.gates.tier_rules.gate import plan
from toolgate.screening.filenames import holds, runs
from toolgate.screening.lookalikes import fold, unseen
from toolgate.screening.paths import MAX_READINGS, SensitivePaths

SECRET_NAMES = [
    ".env", ".env.local", ".env.production", ".env-old", ".env_prod", ".envrc", "prod.env", ".env.example.local",
    "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ed25519_sk", "id_rsa.old", "id_rsa_work", "ssh_host_rsa_key",
    "cert.pem", "server.key", "store.p12", "store.pfx", "putty.ppk", "vault.kdbx", "app.jks", "AuthKey.p8",
    "private_key.txt", "privateKey.json", "my-private-key", "PrivateKey", "secret", "secrets.yml", "client_secret.json",
    "clientSecret.json", "credentials", "credentials.json", "aws-credentials.csv", "password.txt", "passwords.txt",
    "db-password.ini", "passwd", "shadow", "shadow-", "gshadow", "sudoers", ".netrc", "_netrc", ".pgpass", ".npmrc",
    ".pypirc", ".git-credentials", ".htpasswd", ".bash_history", ".psql_history", "token.json", "service-account.json",
    "serviceAccountKey.json", "x-firebase-adminsdk-1.json", "terraform.tfstate", "prod.tfvars", "secrets.toml",
    "fish_history", ".zsh_history", ".Xauthority", ".vault_pass", ".vault_pass.txt", "wallet.dat", "docker.sock",
    ".databrickscfg",
    "kaggle.json", ".flaskenv", ".dev.vars", "deploy_key", "github_deploy_key", "ssh_key", "rclone.conf", ".env1",
    ".envprod",
    "talk.key", "secrets.tf", "Login Data", "secrets.sh", "apikeys.csv", ".env.bak", "server.key~", "id_rsa.bak.1",
    "kubeconfig",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_file_of_this_name_holds_secrets(name: str) -> None:
    for path in (f"/srv/app/{name}", f"/{name}", f"/srv/{name.upper()}"):
        assert holds(path) is not None, path


PLAIN_NAMES = [
    "environment.md", "environ.py", "env", "env.py", ".environment", "envoy.env.md", ".env.example", ".env.sample",
    ".env.template", "example.env", "secretary.txt", "secretion.csv", "secrets.py", "secrets-management.md",
    "secret_santa.html", "credentials.ts", "credentials.example.json", "secrets.schema.json", "password_reset.html",
    "passwordless.txt", "keyboard.py", "monkey.jpg", "key.txt", "keys.json", "tokenizer.json", "tokens.json",
    "id_rsa.pub", "ssh_host_rsa_key.pub", "public_key.txt", "private.txt", "privateer_keyboard.txt", "shadow.css",
    "shadows", "sudoku.txt", "history.txt", "compass", "ca.crt", "authors.json", "cacert.pem", "ca.pem",
    "ca-bundle.pem", "fullchain.pem", "chain1.pem", "public.pem",
    "jwt-public.pem", "public_key.pem", ".env.d.ts", "password.hbs", "password.mjml", "password.snap", "ssh_keys.py",
    "deploy_key.pub", "history", "wallet.py",
]  # fmt: skip


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_a_file_of_this_name_is_innocent(name: str) -> None:
    assert holds(f"/srv/app/{name}") is None


@pytest.mark.parametrize(
    ("path", "innocent"),
    [
        ("/home/ada/.ssh/known_hosts", False),
        ("/home/ada/.ssh", False),
        ("/home/ada/ssh/notes", True),
        ("/home/ada/.aws/config", False),
        ("/home/ada/.docker/config.json", False),
        ("/home/ada/.docker/daemon.json", True),
        ("/home/ada/.config/gcloud/x.db", False),
        ("/home/ada/docs/gcloud/x.txt", True),
        ("/srv/app/secrets/db.txt", False),
        ("/srv/app/secrets/index.ts", True),
        ("/srv/app/.toolgate/toolgate.db", False),
        ("/srv/app/.toolgate/audit.head", False),
        ("/srv/app/.toolgate", False),
        ("/srv/app/.toolgate/tools/a.yml", True),
        ("/srv/app/.toolgate/sessions/1/a.txt", True),
        ("/srv/app/.toolgate/sessions/1/.env", False),
        ("/proc/1/environ", False),
        ("/proc/12/task/13/mem", False),
        ("/proc/cpuinfo", True),
        ("/proc/1/cmdline", False),
        ("/proc/self/cmdline", False),
        ("/dev/stdin", False),
        ("/etc/wireguard/wg0.conf", False),
        ("/etc/kubernetes/admin.conf", False),
        ("/home/ada/.config/google-chrome/Default/Cookies", False),
        ("/home/ada/.oci/config", False),
        ("/home/ada/.dbt/profiles.yml", False),
        ("/home/ada/.local/share/fish/fish_history", False),
        ("/var/run/docker.sock", False),
        ("/srv/app/components/password/index.json", True),
        ("/srv/app/components/password/theme.json", True),
        ("/srv/app/.password/theme.json", False),
        ("/srv/app/credentials/index.json", True),
        ("/srv/app/credentials/prod.json", False),
        ("/srv/app/secrets/logo.svg", True),
        ("/srv/app/locales/en/password.json", True),
        ("/srv/app/docs/secrets/README", True),
        ("/dev/mem", False),
        ("/dev/nvme0n1", False),
        ("/dev/null", True),
        ("/c:/users/ada/.SSH/config", False),
        ("/", True),
    ],
)
def test_places(path: str, innocent: bool) -> None:
    assert (holds(path) is None) is innocent


@pytest.mark.parametrize(
    "path",
    [
        "/srv/app/toolgate.yaml",
        "/srv/app/.git/hooks/pre-commit",
        "/srv/app/.git/config",
        "/srv/app/.bashrc",
        "/etc/cron.d/x",
    ],
)
def test_what_runs_later_may_be_read_and_not_written(path: str) -> None:
    assert holds(path) is None
    assert runs(path) is not None
    guard = SensitivePaths(home=Path("/home/ada"))
    assert guard.reason(path) is None
    assert guard.reason(path, writing=True) is not None


def test_what_does_not_run_later_may_be_written() -> None:
    assert SensitivePaths(home=Path("/home/ada")).reason("/srv/app/src/profile.py", writing=True) is None


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.sqlite", "/srv/data.sqlite", True),
        ("*.sqlite", "/srv/data.sqlite/inner", True),
        ("*.sqlite", "/srv/data.sqlite3", False),
        ("vault", "/srv/vault/a/b.txt", True),
        ("vault", "/srv/vaulted.txt", False),
        ("/srv/private/*", "/srv/private/a.txt", True),
        ("/srv/private/*", "/other/srv/private/a.txt", False),
        ("data/*.csv", "/srv/data/a.csv", True),
        ("data/*.csv", "/srv/data/deep/a.csv", False),
        ("data/**/*.csv", "/srv/data/very/deep/a.csv", True),
        ("data/**", "/srv/data/very/deep/a.csv", True),
        ("~/notes", "/home/ada/notes/x.txt", True),
        ("~/notes", "/home/bob/notes/x.txt", False),
        ("a.c", "/srv/abc", False),
        ("DATA.db", "/srv/data.DB", True),
    ],
)
def test_a_pattern_names_files_and_folders(pattern: str, path: str, fits: bool) -> None:
    assert (SensitivePaths([pattern], home=Path("/home/ada")).reason(path) is not None) is fits
    assert (SensitivePaths(["*"], [pattern], home=Path("/home/ada")).reason(path) is None) is fits


@pytest.mark.parametrize(
    ("path", "sure"),
    [
        ("/srv/.env", True),
        ("/etc/passwd", True),
        ("/srv/token", False),
        ("/users/password", False),
        ("/srv/secrets/a.txt", False),
    ],
)
def test_some_names_only_suggest_secrets(path: str, sure: bool) -> None:
    assert holds(path) is not None
    assert (holds(path, surely=True) is not None) is sure


@pytest.mark.parametrize("text", ["{" + "," * 4000, "{" * 4000, "*" * 2000 + "b", "[" * 4000, "{a,b}" * 800, "[[:x:]]*"])
def test_no_text_takes_long_to_judge(text: str) -> None:
    started = time.process_time()
    SensitivePaths().reason(text)
    assert time.process_time() - started < 2


def test_own_data_is_guarded_wherever_it_is(tmp_path: Path) -> None:
    guard = SensitivePaths(data=tmp_path / "kept")
    assert guard.reason(str(tmp_path / "kept/toolgate.db")) is not None
    assert guard.reason(str(tmp_path / "kept")) is not None
    assert guard.reason(str(tmp_path / "kept-not/x.db")) is None
    assert guard.reason(str(tmp_path / "kept/tools/a.yml")) is None
    assert guard.reason(str(tmp_path / "kept/tools/a.yml"), writing=True) is not None


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("a\0b", "control character"),
        ("a\x1bb", "control character"),
        ("a\x85b", "control character"),
        ("\ud800", "not valid Unicode"),
        ("%c0%ae", "not valid Unicode"),
        ("x" * 5000, "longer than 4096"),
        ("%" + "25" * 100 + "2e", "too many ways"),
        ("a\n", "control character"),
    ],
)
def test_what_is_no_path_is_refused(path: str, words: str) -> None:
    assert words in (SensitivePaths().reason(path) or "")


def test_a_lost_working_directory_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert SensitivePaths().reason("a.txt") is not None


@given(st.text(st.sampled_from("%25fe~/\\.: aé\u200b．"), max_size=200))
def test_readings_end(path: str) -> None:
    assert 1 <= len(SensitivePaths()._readings(path)) <= MAX_READINGS + 10


def test_open_read_closes_what_it_refuses(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to(".env")
    (tmp_path / ".env").write_text("x")
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    for _ in range(20):
        with pytest.raises(Denied):
            SensitivePaths().open_read("link.txt", tmp_path, tmp_path)
        with pytest.raises(IsADirectoryError):
            SensitivePaths().open_read(".", tmp_path)
    after = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    assert after <= before + 1


# -- look-alikes


@pytest.mark.parametrize(
    ("text", "plain"), [("abc", "abc"), ("ѕudо", "sudo"), ("ｓｕｄｏ", "sudo"), ("s\u200budo", "sudo"), ("日本", "日本")]
)
def test_fold(text: str, plain: str) -> None:
    assert fold(text) == plain


@given(st.text())
def test_folding_leaves_ascii_alone_and_comes_to_an_end(text: str) -> None:
    folded = fold(text)
    assert fold(fold(folded)) == fold(folded)
    assert not text.isascii() or folded == text


@pytest.mark.parametrize(
    ("text", "number"),
    [("plain é 日", None), ("a\u200bb", "U+200B"), ("\u202ea", "U+202E"), ("\x7f", "U+007F"), ("\u3164", "U+3164")],
)
def test_unseen(text: str, number: str | None) -> None:
    assert unseen(text) == number


# -- which arguments


def _schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


TEXT = {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        _schema(),
        _schema(a={"type": "integer"}, text=TEXT),
        _schema(profile=TEXT, pathos=TEXT, filed=TEXT, sourced=TEXT),
        _schema(path={"type": "string", "x-path": False}),
        _schema(rows={"type": "array", "items": {"type": "number"}}),
        _schema(counts={"type": "object", "additionalProperties": {"type": "integer"}}),
        _schema(kind={"enum": ["a", "b"]}),
        _schema(maybe={"anyOf": [TEXT, {"type": "null"}]}),
        _schema(command=TEXT),
        {**_schema(tree={"$ref": "#/$defs/Tree"}), "$defs": {"Tree": _schema(name=TEXT, next={"$ref": "#/$defs/Tree"})}},
    ],
)
def test_a_tool_without_paths_has_no_plan(schema: dict[str, Any]) -> None:
    assert plan(schema, "read_only") is None


@pytest.mark.parametrize(
    ("schema", "arguments", "found"),
    [
        (_schema(path=TEXT), {"path": "a"}, ["path"]),
        (_schema(filePath=TEXT, output_dir=TEXT), {"filePath": "a", "output_dir": "b"}, ["filePath", "output_dir"]),
        (_schema(x={"type": "string", "format": "path"}), {"x": "a"}, ["x"]),
        (_schema(x={"type": "string", "format": "file-path"}), {"x": "a"}, ["x"]),
        (_schema(x={"type": "string", "x-path": True}), {"x": "a"}, ["x"]),
        (_schema(x={"anyOf": [{"type": "string", "format": "path"}, {"type": "null"}]}), {"x": "a"}, ["x"]),
        (_schema(x={"anyOf": [{}, {"type": "null"}]}), {"x": {"path": "a"}}, ["x.path"]),
        (_schema(files={"type": "array", "items": TEXT}), {"files": ["a", "b"]}, ["files.0", "files.1"]),
        (_schema(files={"type": "array", "items": {"type": "string", "x-path": False}}), {"files": ["a"]}, []),
        (_schema(x={"type": "array", "items": {"type": "string", "format": "path"}}), {"x": ["a"]}, ["x.0"]),
        (_schema(x={"type": "array", "prefixItems": [_schema(path=TEXT)]}), {"x": [{"path": "a"}]}, ["x.0.path"]),
        (_schema(x={"type": "object"}), {"x": {"deep": [{"folder": "a"}], "other": "b"}}, ["x.deep.0.folder"]),
        (_schema(x={}), {"x": {"file": "a"}}, ["x.file"]),
        ({"type": "object"}, {"path": "a", "text": "b"}, ["path"]),
        ({}, {"path": "a"}, ["path"]),
        (
            _schema(tree={"$ref": "#/$defs/Tree"})
            | {"$defs": {"Tree": _schema(where=TEXT | {"x-path": True}, next={"$ref": "#/$defs/Tree"})}},
            {"tree": {"where": "a", "next": {"where": "b"}}},
            ["tree.where", "tree.next.where"],
        ),
        (
            _schema(a=_schema(path={"type": "string", "x-path": False}), b=_schema(path=TEXT)),
            {"a": {"path": "x"}, "b": {"path": "y"}},
            ["b.path"],
        ),
        (_schema(path={"type": "integer"}), {"path": 5}, []),
    ],
)  # fmt: skip
def test_paths_are_found_by_schema_and_by_name(schema: dict[str, Any], arguments: dict[str, Any], found: list[str]) -> None:
    made = plan(schema, "read_only")
    assert made is not None
    assert [".".join(map(str, guarded.where)) for guarded in made.find(arguments)] == found


@pytest.mark.parametrize(
    ("schema", "arguments", "found"),
    [
        (_schema(command=TEXT), {"command": "ls"}, ["ls"]),
        (_schema(cmd={"type": "array", "items": TEXT}), {"cmd": ["ls", "-l"]}, [["ls", "-l"]]),
        (_schema(commands={"type": "array", "items": TEXT}), {"commands": ["ls", "pwd"]}, ["ls", "pwd"]),
        (_schema(command=TEXT, args={"type": "array"}), {"command": "ls", "args": ["-l"]}, [("ls", ["-l"])]),
        (_schema(command=TEXT, args={"type": "array"}), {"command": "ls", "args": None}, ["ls"]),
        (_schema(line={"type": "string", "x-command": True}, args={}), {"line": "ls", "args": ["a"]}, [("ls", ["a"])]),
        (_schema(line={"type": "string", "format": "command"}), {"line": "ls"}, ["ls"]),
    ],
)
def test_commands_are_found_by_schema_and_by_name(
    schema: dict[str, Any], arguments: dict[str, Any], found: list[Any]
) -> None:
    made = plan(schema, "execute")
    assert made is not None
    assert [guarded.value for guarded in made.find(arguments) if guarded.kind == "command"] == found


@pytest.mark.parametrize(
    "schema",
    [
        _schema(x={"$ref": "#nowhere"}),
        _schema(x={"$ref": "https://example.org/elsewhere"}),
        _schema(x={"type": "array", "items": [TEXT]}),
        _schema(x={"type": "array", "prefixItems": [TEXT]}),
        _schema(x={"type": "array", "prefixItems": [{"x-path": True}], "items": False}),
        _schema(x={"not": {"type": "integer"}}),
        _schema(source=TEXT),
        _schema(x={"type": "object", "unevaluatedProperties": TEXT}),
    ],
)
def test_what_may_be_anything_has_a_plan(schema: dict[str, Any]) -> None:
    assert plan(schema, "read_only") is not None


def test_names_that_may_mean_a_path_don_t_if_the_value_can_t() -> None:
    assert plan(_schema(to={"type": "integer"}, source={"enum": ["a", "b"]}, target={"const": "x"}), "read_only") is None


def test_a_command_can_be_opted_out() -> None:
    assert plan(_schema(command={"type": "string", "x-command": False}), "execute") is None
