# ruff: noqa: RUF001 - look-alike letters are what some of this is about
"""Sensitive files by every spelling that we know of, and innocent ones that must stay readable.

There is a real home with real secrets in it. The tool does with a path whatever a careless author might (expand, decode,
follow); what counts is that no call ever gives out what a secret file holds.
"""

import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate import App, tool
from toolgate.errors import Denied
from toolgate.gates.tier_rules.gate import TierRules, plan
from toolgate.model import Entry, Implementation, Outcome
from toolgate.registry.compile import DefinitionRules, compile_entry, definition
from toolgate.screening.paths import SensitivePaths
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TIER-1")

SECRET = "correct horse battery staple"


class World:
    """A home with secrets, and a project in it that tools work in."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.work = home / "project"
        for name in (
            ".ssh/id_rsa", ".aws/credentials", ".kube/config", ".docker/config.json", ".netrc", "project/.env",
            "project/.env.production", "project/config/secrets.yml", "project/server.pem", "project/.toolgate/toolgate.db",
            "project/deploy/.env", "project/Credentials.json",
        ):  # fmt: skip
            self.write(name, SECRET)
        self.write("project/notes.txt", "nothing special")
        self.write("project/mixed/server.key", SECRET)
        self.write("project/mixed/readme.txt", "nothing special")
        self.write("project/a/b/deep_id_rsa/id_rsa", SECRET)
        (self.work / "sub").mkdir()
        (self.work / "to-env.txt").symlink_to(".env")
        (self.work / "again.txt").symlink_to("to-env.txt")
        (self.work / "home").symlink_to(home)
        (self.work / "keys").symlink_to(home / ".ssh")
        os.link(self.work / ".env", self.work / "hard.txt")
        os.link(home / ".ssh/id_rsa", self.work / "sub" / "picture.jpg")
        os.link(home / ".aws/credentials", self.work / "sub" / "table.csv")

    def write(self, name: str, text: str) -> Path:
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("ada"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(made.home))
        patch.chdir(made.work)
        yield made


def careless(path: str) -> str | None:
    """What a file holds, for an author who means it too well with how a path is spelled."""
    for reading in (
        path,
        unquote(path),
        unquote(unquote(path)),
        path.removeprefix("file://"),
        path.replace("\\", "/"),
        path.strip(),
    ):
        try:
            return Path(os.path.expandvars(reading)).expanduser().read_text()
        except (OSError, ValueError, RuntimeError):
            continue
    return None


@tool(tier="read_only")
def peek(path: str) -> str | None:
    """Show what a file holds."""
    return careless(path)


@pytest.fixture
async def app(world: World) -> AsyncIterator[App]:
    async with memory_app(home=world.work / ".toolgate") as app:
        app.register(peek)
        yield app


REFUSED = {
    "plain": ".env", "dot": "./.env", "dots": "sub/../.env", "many dots": "sub/../../project/./.env",
    "double slash": ".//.env", "trailing slash": ".env/", "absolute": "{work}/.env",
    "from the root": "/..{work}/.env", "double root": "//{work}/.env", "upper case": ".ENV", "mixed case": ".eNv",
    "URL-encoded dot": "%2eenv", "URL-encoded letters": ".%65%6e%76", "URL-encoded all": "%2E%65%6E%76",
    "encoded twice": "%252eenv", "encoded three times": "%25252eenv", "encoded path": "sub%2f..%2f.env",
    "overlong encoding": "sub/..%c0%af.env", "file URL": "file://{work}/.env",
    "file URL with host": "file://localhost{work}/.env", "short file URL": "file:{work}/.env",
    "file URL upper": "FILE://{work}/.env", "file URL with fragment": "file://{work}/.env#top",
    "encoded file URL": "file%3a%2f%2f{work}/.env", "tilde": "~/.ssh/id_rsa",
    "tilde and dots": "~/project/../.ssh/id_rsa", "variable": "$HOME/.netrc",
    "variable in braces": "${{HOME}}/.netrc", "other files": ".env.production", "folder of keys": "~/.ssh",
    "cloud credentials": "~/.aws/credentials", "cluster credentials": "~/.kube/config",
    "registry credentials": "~/.docker/config.json", "secrets by word": "config/secrets.yml",
    "certificate": "server.pem", "credentials": "Credentials.json", "own database": ".toolgate/toolgate.db",
    "symlink": "to-env.txt", "symlink of a symlink": "again.txt", "symlink to a folder": "home/project/.env",
    "symlink to keys": "keys/id_rsa", "through a symlink and back": "keys/../.ssh/id_rsa", "hard link": "hard.txt",
    "hard link in a folder": "sub/picture.jpg", "hard link to credentials": "sub/table.csv",
    "backslashes": "sub\\..\\.env", "backslash": ".\\.env", "trailing dot": ".env.", "trailing space": ".env ",
    "leading space": " .env", "stream": ".env::$DATA", "proc root": "/proc/self/root{work}/.env",
    "proc cwd": "/proc/self/cwd/.env", "proc of a thread": "/proc/thread-self/cwd/.env",
    "own environment": "/proc/self/environ", "own memory": "/proc/self/mem",
    "environment by number": "/proc/1/environ", "shadow": "/etc/shadow",
    "shadow by dots": "../../../../../../etc/shadow", "shadow through proc": "/proc/self/root/etc/shadow",
    "NUL": ".env\0.txt", "encoded NUL": ".env%00.txt", "new line": "\n.env", "full width": ".ｅｎｖ",
    "full width dot": "．env", "Cyrillic": ".еnv", "Greek": ".enν", "mathematical": ".𝐞𝐧𝐯",
    "zero width": ".e\u200bnv", "soft hyphen": ".en\u00adv", "joiner": "\u2060.env", "right to left": ".\u202eenv",
    "accent": ".e\u0301nv", "other slash": "sub∕..∕.env", "one dot leader": "․env",
    "look-alike folder": "~/.ѕsh/id_rsa", "look-alike key": "id_rsа", "wildcard": ".en?", "wildcard set": ".[e]nv",
    "wildcard folder": "~/.ss*/id*", "backup": ".env.bak", "editor's backup": ".env~", "swap file": ".env.swp",
    "below an address": "http://x/../../.env", "below an encoded address": "https://x/%2e%2e/%2e%2e/.env",
    "below an address encoded twice": "https://x/%252e%252e/%252e%252e/.env",
    "below an address by backslashes": "https://x/..\\..\\.env",
    "below an address to the root": "http://x" + "/.." * 20 + "/etc/passwd",
    "double quotes": '".env"', "single quotes": "'.env'", "angle brackets": "<.env>", "separator at the end": ".env;",
    "braces": ".{{env,x}}", "braces in a folder": "{{sub,deploy}}/.env", "drive": "C:.env",
    "query": ".env?x=1", "fragment": ".env#x",
    "archive": "jar:file:{work}/.env!/", "wildcard with others": "mixed/*", "wildcard of any depth": "**/deep_id_rsa/id_rs?",
}  # fmt: skip


@pytest.mark.parametrize("spelling", REFUSED.values(), ids=REFUSED)
@pytest.mark.sample(16)
async def test_a_sensitive_file_is_refused_by_any_spelling(app: App, world: World, spelling: str) -> None:
    outcome = await app.invoke("peek", {"path": spelling.format(work=world.work)})
    assert SECRET not in outcome.to_json().decode()
    assert outcome.status == "denied"
    assert outcome.error is not None
    assert outcome.error.code == "SECURITY_VIOLATION"
    assert outcome.error.message.startswith("peek: the argument path names a file that no tool may open: it ")
    assert outcome.error.suggestion
    assert outcome.metrics.attempts == 0


async def test_the_tool_would_have_given_the_secret_out(world: World) -> None:
    """The positive control: most of these spellings work, so refusing them is what kept the secret."""
    held = [name for name, spelling in REFUSED.items() if careless(spelling.format(work=world.work)) == SECRET]
    assert len(held) >= 35, held


@pytest.mark.parametrize("folder", ["/proc/self/fd", "/dev/fd", "/proc/{pid}/fd", "/proc/thread-self/fd"])
async def test_an_open_file_is_not_found_by_its_number(app: App, world: World, folder: str) -> None:
    with (world.work / ".env").open() as file:
        path = f"{folder.format(pid=os.getpid())}/{file.fileno()}"
        assert careless(path) == SECRET
        assert (await app.invoke("peek", {"path": path})).status == "denied"


async def test_a_deleted_file_is_not_found_by_its_number(app: App, world: World) -> None:
    with world.write("project/tmp/.env", SECRET).open() as file:
        (world.work / "tmp/.env").unlink()
        path = f"/proc/self/fd/{file.fileno()}"
        assert careless(path) == SECRET
        assert (await app.invoke("peek", {"path": path})).status == "denied"


INNOCENT = [
    "environment.md", "secretary.txt", "keyboard.py", "environ.py", "monkey.jpg", "tokenizer.json",
    "password_reset.html", "docs/secrets-management.md", "secrets.py", "src/credentials/index.ts", "id_rsa.pub",
    "public_key.txt", ".env.example", ".env.sample", ".env.template", "config/credentials.example.json", "env",
    "envoy.yaml", "my.environment", "privateer.txt", "passenger.csv", "compass.txt", "keynote.txt", "shadows.png",
    "sshd_notes.txt", "awsome.json", "private_beach.jpg", "100%.txt", "50%25.txt", "a b.txt", "Größe.txt", "отчёт.txt",
    "日本.txt", "~backup.txt", "a[1].txt", "what?.txt", "back\\slash.txt", "$HOME.txt", "file.txt", "package.json",
    "README", ".gitignore", ".toolgate/tools/mine.yml", ".toolgate/sessions/s-1/notes.txt", "secret_garden/index.html",
    "author.json", "turnkey.txt", ".env.d.ts", "cacert.pem", "certs/ca.pem", "fullchain.pem", "public.pem", "server.crt",
    "password.hbs", "password.mjml", "__snapshots__/password.snap", "components/password/index.json",
    "components/password/theme.json", "docs/secrets/README", "locales/en/password.json", "src/secrets/logo.svg",
    "secrets.yaml.tpl", "'quoted'.txt",
]  # fmt: skip


@pytest.mark.parametrize("name", INNOCENT)
@pytest.mark.sample(10)
async def test_an_innocent_name_is_allowed_and_can_be_read(app: App, world: World, name: str) -> None:
    world.write(f"project/{name}", f"this is {name}")
    outcome = await app.invoke("peek", {"path": name})
    assert outcome.ok, outcome.error
    guard = app.parts.tiers.paths
    for root in (None, world.work):
        with guard.open_read(name, world.work, root) as file:
            assert file.read().decode() == f"this is {name}"


@pytest.mark.parametrize(
    "folder", ["src/secrets", "go/token", "src/token", "assets/shadow", "lib/passwd", "src/credentials"]
)
async def test_a_folder_that_is_only_called_so_can_be_listed(app: App, world: World, folder: str) -> None:
    world.write(f"project/{folder}/index.ts", "code")
    assert (await app.invoke("peek", {"path": folder})).ok
    assert (await app.invoke("peek", {"path": f"{folder}/index.ts"})).output == "code"
    assert (await app.invoke("peek", {"path": f"{folder}/.env"})).status == "denied"
    assert SensitivePaths(home=world.home).reason(folder, world.work, writing=True) is not None


async def test_a_hidden_folder_and_a_file_of_that_name_stay_refused(app: App, world: World) -> None:
    world.write("project/lib2/token", SECRET)
    world.write("project/.secrets/notes.txt", SECRET)
    for path in ("lib2/token", ".secrets", ".secrets/notes.txt"):
        assert (await app.invoke("peek", {"path": path})).status == "denied", path


async def test_an_innocent_hard_link_is_allowed(app: App, world: World) -> None:
    os.link(world.write("project/one.txt", "one"), world.work / "two.txt")
    assert (await app.invoke("peek", {"path": "two.txt"})).output == "one"


# -- any mix of spellings

LOOKALIKES = dict(zip("aeiopsncv.", "аеіорѕոсν．", strict=True))


def _at(places: float, text: str) -> int:
    return int(places * len(text)) if text else 0


def _replaced(text: str, at: float, change: Callable[[str], str]) -> str:
    index = min(_at(at, text), len(text) - 1)
    return text[:index] + change(text[index]) + text[index + 1 :]


CHANGES: dict[str, Callable[[str, float], str]] = {
    "encode one": lambda path, at: _replaced(path, at, lambda char: "".join(f"%{byte:02x}" for byte in char.encode())),
    "encode all": lambda path, _at: quote(path, safe=""),
    "look-alike": lambda path, at: _replaced(path, at, lambda char: LOOKALIKES.get(char, char)),
    "full width": lambda path, at: _replaced(path, at, lambda char: chr(ord(char) + 0xFEE0) if "!" < char < "~" else char),
    "zero width": lambda path, at: path[: _at(at, path)] + "\u200b" + path[_at(at, path) :],
    "case": lambda path, _at: path.swapcase(),
    "dot": lambda path, _at: path.replace("/", "/./", 1),
    "slashes": lambda path, _at: path.replace("/", "//"),
    "back and forth": lambda path, _at: path.replace("/", "/sub/../", 1),
    "backslashes": lambda path, _at: path.replace("/", "\\"),
    "spaces": lambda path, _at: f" {path} ",
    "dots at the end": lambda path, _at: f"{path}. .",
    "URL": lambda path, _at: f"file://{path}" if path.startswith("/") else path,
}
mixes = st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), st.floats(0, 1, exclude_max=True)), max_size=4)


def _mixed(path: str, mix: list[tuple[str, float]]) -> str:
    for name, at in mix:
        path = CHANGES[name](path, at)
    return path


@given(
    mix=mixes,
    name=st.sampled_from([".env", "sub/../.env", "config/secrets.yml", "server.pem", "{work}/.env", "{home}/.netrc"]),
)
def test_any_mix_of_spellings_of_a_sensitive_path_is_refused(world: World, mix: list[tuple[str, float]], name: str) -> None:
    path = _mixed(name.format(work=world.work, home=world.home), mix)
    assert SensitivePaths(home=world.home).reason(path, world.work) is not None


@given(mix=mixes, name=st.sampled_from(["notes.txt", "sub/../environment.md", "config/keyboard.py", "{work}/compass.csv"]))
def test_any_mix_of_spellings_of_an_innocent_path_is_allowed(world: World, mix: list[tuple[str, float]], name: str) -> None:
    encodings = [change for change in mix if change[0].startswith("encode")]
    others = [change for change in mix if change not in encodings]
    path = _mixed(name.format(work=world.work), [*others[:3], *encodings[:1]])  # an encoding that is spoilt is refused
    assert SensitivePaths(home=world.home).reason(path, world.work) is None


@given(path=st.text(max_size=60))
def test_any_text_gives_an_answer(world: World, path: str) -> None:
    guard = SensitivePaths(home=world.home)
    reason = guard.reason(path, world.work)
    assert reason is None or reason.startswith(("it ", "what it "))
    try:
        with guard.open_read(path, world.work, world.work) as file:
            assert SECRET.encode() not in file.read()
    except (Denied, OSError, ValueError):
        pass


# -- files that change between the check and the opening


class Turning(SensitivePaths):
    """Turns a link right after a path was found innocent, which is when an attacker would."""

    def __init__(self, link: Path, target: Path, home: Path) -> None:
        super().__init__(home=home)
        self.link, self.target = link, target

    def reason(self, path: str, cwd: Path | None = None, **more: Any) -> str | None:
        found = super().reason(path, cwd, **more)
        assert found is None
        self.link.unlink()
        self.link.symlink_to(self.target)
        return found


@pytest.fixture(params=["kernel", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of staying below a root: the kernel's, and ours for where the kernel has none."""
    if request.param == "walk":
        monkeypatch.setattr("toolgate.screening.safe_open._openat2", lambda _folder, _path: None)
    return str(request.param)


@pytest.mark.parametrize("below", [False, True], ids=["anywhere", "below a root"])
@pytest.mark.parametrize("target", ["project/.env", ".ssh/id_rsa", "project/hard.txt"])
@pytest.mark.usefixtures("way")
def test_a_link_that_is_turned_after_the_check_is_caught(world: World, below: bool, target: str) -> None:
    link = world.work / "turning.txt"
    link.unlink(missing_ok=True)
    link.symlink_to("notes.txt")
    guard = Turning(link, world.home / target, world.home)
    with pytest.raises(Denied) as refused:
        guard.open_read("turning.txt", world.work, world.work if below else None)
    assert refused.value.code == "SECURITY_VIOLATION"


@pytest.mark.usefixtures("way")
def test_a_link_that_is_turned_all_the_time_never_gives_the_secret(world: World) -> None:
    link, spare = world.work / "spinning.txt", world.work / "spare"
    link.symlink_to("notes.txt")
    stop = threading.Event()

    def turn() -> None:
        while not stop.is_set():
            for target in (".env", "notes.txt"):
                spare.symlink_to(target)
                spare.replace(link)

    turner = threading.Thread(target=turn)
    turner.start()
    seen: set[str] = set()
    guard = SensitivePaths(home=world.home)
    try:
        for attempt in range(5000):
            if attempt > 400 and len(seen) > 1:
                break
            try:
                with guard.open_read("spinning.txt", world.work, world.work if attempt % 2 else None) as file:
                    seen.add(file.read().decode())
            except Denied:
                seen.add("denied")
    finally:
        stop.set()
        turner.join(10)
        link.unlink()
    assert seen == {"nothing special", "denied"}


@pytest.mark.parametrize("path", ["../elsewhere.txt", "/etc/hostname", "out/etc/hostname", "sub/../../visible.txt", "out"])
@pytest.mark.usefixtures("way")
def test_nothing_outside_of_the_root_is_opened(world: World, path: str) -> None:
    world.write("visible.txt", "outside")
    if not (world.work / "out").is_symlink():
        (world.work / "out").symlink_to("/")
    with pytest.raises(Denied) as refused:
        SensitivePaths(home=world.home).open_read(path, world.work, world.work)
    assert "folder that the tool works in" in refused.value.message


@pytest.mark.parametrize("path", ["notes.txt", "sub/../notes.txt", "inner/notes.txt", "{work}/notes.txt"])
@pytest.mark.usefixtures("way")
def test_what_is_inside_of_the_root_is_opened(world: World, path: str) -> None:
    if not (world.work / "inner").is_symlink():
        (world.work / "inner").symlink_to(".")
    with SensitivePaths(home=world.home).open_read(path.format(work=world.work), world.work, world.work) as file:
        assert file.read() == b"nothing special"


def test_a_pipe_is_refused_and_does_not_hold_us_up(world: World) -> None:
    pipe = world.work / "pipe.txt"
    os.mkfifo(pipe)
    with pytest.raises(Denied, match="a device, a pipe or a socket"):
        SensitivePaths(home=world.home).open_read("pipe.txt", world.work)


def test_a_folder_and_a_missing_file_are_errors_of_the_system(world: World) -> None:
    guard = SensitivePaths(home=world.home)
    with pytest.raises(IsADirectoryError):
        guard.open_read("sub", world.work)
    with pytest.raises(FileNotFoundError):
        guard.open_read("missing.txt", world.work, world.work)


# -- arguments, wherever they stand

TEXT = {"type": "string"}


def _closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


async def _nothing(**_arguments: Any) -> None:
    """What a tool does of which only the arguments count."""


def _entry(schema: dict[str, Any], tier: str, category: str) -> Entry:
    tool = definition({"name": "any", "description": "Any.", "tier": tier, "category": category, "input_schema": schema})
    return compile_entry(tool, Implementation(function=_nothing, mode="inline"), (), DefinitionRules(guards=plan))


async def _call(
    app: App, schema: dict[str, Any], arguments: dict[str, Any], *, tier: str = "read_only", category: str = "custom"
) -> Outcome:
    app.register(_entry(schema, tier, category))
    return await app.invoke("any", arguments)


@tool(tier="write")
async def store(files: list[dict[str, str]], options: dict[str, object] | None = None) -> int:
    """Keep files."""
    return len(files) + len(options or {})


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        ({"files": [{"path": "a.txt"}, {"path": ".env"}]}, "files[1].path"),
        ({"files": [{"fileName": "x/.env"}]}, "files[0].fileName"),
        ({"files": [], "options": {"output_dir": "~/.ssh"}}, "options.output_dir"),
        ({"files": [], "options": {"deep": [{"er": {"target_file": "server.pem"}}]}}, "options.deep[0].er.target_file"),
        ({"files": [{".env": "TOKEN=1"}]}, "files[0]..env"),
        ({"files": [{"path": "toolgate.yaml"}]}, "files[0].path"),
        ({"files": [{"path": ".git/hooks/pre-commit"}]}, "files[0].path"),
        ({"files": [{"path": ".toolgate/tools/mine.py"}]}, "files[0].path"),
    ],
)
async def test_a_path_is_found_at_any_depth(app: App, arguments: dict[str, object], where: str) -> None:
    app.register(store)
    outcome = await app.invoke("store", arguments)
    assert outcome.status == "denied"
    assert outcome.error is not None
    assert outcome.error.details == {"argument": where}


async def test_what_is_no_path_is_left_alone(app: App) -> None:
    app.register(store)
    calls: list[dict[str, object]] = [
        {"files": [{"path": "https://example.org/.env", "text": ".env"}], "options": {"name": "secrets.yml"}},
        {"files": [{"path": "src/a.py"}], "options": {"profile": ".env", "filed": "id_rsa"}},
    ]
    for arguments in calls:
        outcome = await app.invoke("store", arguments)
        assert outcome.ok, outcome.error


async def test_a_flood_of_paths_is_refused_before_it_takes_long(app: App) -> None:
    app.register(store)
    outcome = await app.invoke("store", {"files": [{"path": f"{number}.txt"} for number in range(20_000)]})
    assert outcome.status == "denied"
    assert outcome.error is not None
    assert "more than 500" in outcome.error.message
    assert (await app.invoke("store", {"files": [{"path": f"{number}.txt"} for number in range(500)]})).ok


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"$ref": "#opts", "more": {"$anchor": "opts"}}, {"path": ".env"}),
        ({"$ref": "http://a/o", "more": {"$id": "http://a/o"}}, {"path": ".env"}),
        ({"$dynamicRef": "#n", "more": {"$dynamicAnchor": "n"}}, {"path": ".env"}),
        ({"$ref": "#/$defs/a%20b", "name": "a b"}, {"path": ".env"}),
        ({"$ref": "#/$defs/l/anyOf/0", "list": True}, {"path": ".env"}),
    ],
    ids=["anchor", "id", "dynamic", "percent", "through a list"],
)
async def test_a_reference_does_not_hide_a_path(app: App, schema: dict[str, Any], arguments: dict[str, str]) -> None:
    inner: dict[str, Any] = {"type": "object", "properties": {"path": TEXT}, "additionalProperties": False}
    inner |= schema.get("more", {})
    whole = _closed(opts={key: value for key, value in schema.items() if key.startswith("$")})
    whole["$defs"] = {"l": {"anyOf": [inner]}} if "list" in schema else {schema.get("name", "o"): inner}
    outcome = await _call(app, whole, {"opts": arguments})
    assert outcome.status == "denied"
    assert outcome.error is not None
    assert outcome.error.details == {"argument": "opts.path"}


MARKED = {"type": "string", "x-path": True}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
SCHEMAS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tuple of draft 7": ({"x": {"type": "array", "items": [MARKED]}, "": DRAFT_7}, {"x": [".env"]}),
    "items after a tuple": (
        {"x": {"type": "array", "items": [TEXT], "additionalItems": MARKED}, "": DRAFT_7}, {"x": ["a", ".env"]},
    ),
    "first items": ({"x": {"type": "array", "prefixItems": [MARKED], "items": False}}, {"x": [".env"]}),
    "unevaluated": ({"x": {"type": "object", "unevaluatedProperties": MARKED}}, {"x": {"k": ".env"}}),
    "dependent": (
        {"m": TEXT, "y": TEXT, "": {"dependentSchemas": {"m": {"properties": {"y": {"x-path": True}}}}}},
        {"m": "a", "y": ".env"},
    ),
    "condition": (
        {"m": TEXT, "y": TEXT, "": {"if": {"required": ["m"]}, "then": {"properties": {"y": {"x-path": True}}}}},
        {"m": "a", "y": ".env"},
    ),
    "names of properties": ({"tree": {"type": "object", "propertyNames": {"x-path": True}}}, {"tree": {".env": "x"}}),
    "pattern of properties": (
        {"x": {"type": "object", "patternProperties": {"^k": MARKED}, "additionalProperties": False}}, {"x": {"k": ".env"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("properties", "arguments"), SCHEMAS.values(), ids=SCHEMAS)
async def test_a_mark_counts_wherever_a_schema_has_it(
    app: App, properties: dict[str, Any], arguments: dict[str, Any]
) -> None:
    more = properties.get("", {})
    schema = {**_closed(**{name: rule for name, rule in properties.items() if name}), **more}
    assert (await _call(app, schema, arguments)).status == "denied"


ARGUMENTS: dict[str, dict[str, Any]] = {
    "object": {"path": {"value": ".env"}}, "object with a name": {"file": {"name": ".env"}},
    "object with something else": {"file": {"which": "./.env"}}, "key": {"files": {"id_rsa": "x"}},
    "cwd": {"cwd": "/proc/self", "path": "environ"}, "dir and file": {"dir": "~/.docker", "file": "config.json"},
    "folder and name": {"folder": "~/.docker", "name": "config.json"},
    "cwd of a list": {"cwd": "/proc/self", "files": ["environ"]},
    "path and name": {"path": "~/.docker", "filename": "config.json"}, "pathname": {"pathname": ".env"},
    "fname": {"fname": ".env"},
    "file name in words": {"input_file_name": ".env"}, "source": {"source": "./.env"},
    "source that is there": {"source": "server.pem"},
    "destination": {"destination": "~/.ssh/authorized_keys"}, "target": {"target": "deploy/.env"},
    "uri": {"uri": "file:{work}/.env"}, "file url": {"file_url": "file://{work}/.env"}, "url": {"url": "file://{work}/.env"},
    "image source": {"imageSource": "deploy/.env"},
}  # fmt: skip


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
@pytest.mark.sample(4)
async def test_an_argument_is_recognised_by_how_it_is_used(app: App, world: World, arguments: dict[str, Any]) -> None:
    filled = {
        name: value.replace("{work}", str(world.work)) if isinstance(value, str) else value
        for name, value in arguments.items()
    }
    outcome = await _call(app, {"type": "object"}, filled)
    assert outcome.status == "denied"
    assert outcome.error is not None
    assert outcome.error.code == "SECURITY_VIOLATION"


@pytest.mark.parametrize(
    ("arguments", "category"),
    [
        ({"source": "users.password", "target": "session.key"}, "custom"),
        ({"source": "https://example.org/.env", "url": "/oauth/token"}, "custom"),
        ({"file": {"name": "a.txt", "text": ".env", "content": "x" * 5000}}, "custom"),
        ({"files": {"a.txt": "cat .env"}}, "custom"),
        ({"cwd": "sub", "path": "../notes.txt"}, "custom"),
        ({"path": "/oauth/token"}, "api"),
        ({"path": "/users/password"}, "api"),
        ({"path": "user.password"}, "database"),
        ({"input": "a long text; it speaks of /etc and passwords"}, "custom"),
    ],
)
async def test_what_only_might_be_a_path_is_left_alone(app: App, arguments: dict[str, Any], category: str) -> None:
    outcome = await _call(app, {"type": "object"}, arguments, category=category)
    assert outcome.ok, outcome.error


@pytest.mark.parametrize(
    ("arguments", "category"),
    [
        ({"path": "lib3/token"}, "api"),
        ({"path": ".env"}, "api"),
        ({"path": "/etc/passwd"}, "api"),
        ({"source": "secrets.yml"}, "filesystem"),
        ({"path": "/oauth/token"}, "filesystem"),
    ],
)
async def test_a_file_that_is_there_is_judged_for_any_category(
    app: App, world: World, arguments: dict[str, Any], category: str
) -> None:
    world.write("project/lib3/token", SECRET)
    assert (await _call(app, {"type": "object"}, arguments, category=category)).status == "denied"


@pytest.mark.parametrize("tier", ["write", "external_api", "execute"])
@pytest.mark.parametrize("path", ["~/.bashrc", ".git/hooks/pre-commit", "toolgate.yaml"])
async def test_no_tier_but_read_only_touches_what_runs_later(app: App, tier: str, path: str) -> None:
    outcome = await _call(app, {"type": "object"}, {"output_path": path}, tier=tier)
    assert outcome.error is not None
    assert outcome.error.code == "SECURITY_VIOLATION"


async def test_patterns_and_links_do_not_take_long(app: App, world: World) -> None:
    for number in range(300):
        world.write(f"project/many/{number}.txt", "x")
    patterns = [{"path": f"many/*{number}.md"} for number in range(500)]
    app.register(store)
    started = time.perf_counter()
    outcome = await app.invoke("store", {"files": patterns})
    assert time.perf_counter() - started < 20
    assert outcome.error is not None
    assert "takes too long" in outcome.error.message
    assert (await app.invoke("store", {"files": patterns[:20]})).ok
    os.link(world.work / "many/1.txt", world.work / "many/other.txt")
    assert (await app.invoke("store", {"files": [{"path": "many/other.txt"}] * 500})).ok


def test_what_toolgate_is_set_up_by_is_not_written(world: World) -> None:
    policy = world.write("project/conf/policy.rego", "allow")
    tools = world.write("project/mytools/a.py", "x").parent
    (world.work / "conf-link").symlink_to("conf")
    os.link(policy, world.work / "innocent.rego")
    guard = SensitivePaths(home=world.home, unwritable=[world.work / "conf-link/policy.rego", tools])
    for path in (
        "conf/policy.rego",
        "conf-link/policy.rego",
        "mytools",
        "mytools/new.py",
        "conf",
        "innocent.rego",
        "CONF/Policy.rego",
    ):
        assert guard.reason(path, world.work, writing=True) is not None, path
        assert guard.reason(path, world.work) is None, path
    for path in (".", "conf/other.rego", "conf2", "mytools2/a.py", str(world.home)):
        assert guard.reason(path, world.work, writing=True) is None, path
    assert guard.reason("conf", world.work, writing=True, holder=True) is None


def test_own_files_are_not_opened_at_all(world: World) -> None:
    database = world.write("project/real/rows.db", "rows")
    (world.work / "to-real").symlink_to("real")
    os.link(database, world.work / "copy.db")
    guard = SensitivePaths(["nothing"], ["*.db"], home=world.home, own=[world.work / "to-real/rows.db"])
    for path in ("real/rows.db", "to-real/rows.db", "real/rows.db-wal", "sub/../real/rows.db", "copy.db"):
        assert guard.reason(path, world.work) is not None, path
        assert guard.reason(path, world.work, writing=True) is not None, path
    assert guard.reason("real", world.work, writing=True) is not None
    assert guard.reason("real", world.work) is None
    assert guard.reason("real/rows.dbx", world.work) is None


async def test_the_gate_knows_own_and_unwritable_files(world: World) -> None:
    rules = TierRules(
        own=[world.write("project/kept/rows.db", "x")], unwritable=[world.write("project/kept/policy.rego", "x")]
    )
    reading, writing = (_entry({"type": "object"}, tier, "custom") for tier in ("read_only", "write"))
    rules.check(reading, {"path": "kept/policy.rego"})
    rules.check(writing, {"dir": "kept", "file": "other.txt"})
    refused: list[tuple[Entry, dict[str, str]]] = [
        (reading, {"path": "kept/rows.db"}), (writing, {"path": "kept/policy.rego"}), (writing, {"path": "kept", "to": "x"}),
        (writing, {"dir": "kept", "file": "policy.rego"}),
    ]  # fmt: skip
    for entry, arguments in refused:
        with pytest.raises(Denied):
            rules.check(entry, arguments)


async def test_settings_add_and_except(world: World) -> None:
    world.write("project/data.sqlite", "rows")
    world.write("project/fixtures/test.pem", "a test's key")
    async with memory_app(paths={"sensitive": ["*.sqlite", "vault"], "allowed": ["fixtures/*.pem"]}) as app:
        app.register(peek)
        for path in ("data.sqlite", "vault/a.txt", "DATA.SQLITE", "server.pem"):
            assert (await app.invoke("peek", {"path": path})).status == "denied", path
        assert (await app.invoke("peek", {"path": "fixtures/test.pem"})).output == "a test's key"
        (world.work / "fixtures/other.pem").symlink_to("../server.pem")
        assert (await app.invoke("peek", {"path": "fixtures/other.pem"})).status == "denied"
