"""`toolgate serve --demo` as a process: the content is there, seen over /v1, and one command leaves nothing of it."""

import http.client
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from tests import forked
from tests.browser import OPENED, PAGE
from tests.patience import SOON
from tests.terminal import Done
from toolgate import App, SettingsError
from toolgate.demo.clock import DemoClock
from toolgate.demo.folder import DemoFolder
from toolgate.settings import load_settings

MOST_CALLS = 1_000


class DemoServer:
    """A process of `toolgate serve --demo`, and somebody who has opened its link."""

    def __init__(self, process: forked.Forked, told: dict[str, Any]) -> None:
        self.process, self.told = process, told
        link = urlsplit(told["sign_in"])
        self._connection = http.client.HTTPConnection(link.netloc, timeout=SOON)
        self._connection.request("GET", f"{link.path}?{link.query}", headers=OPENED)
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status == 303
        self._cookie = answer.headers["Set-Cookie"].partition(";")[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(SOON) == 0

    def ask(self, path: str, **query: Any) -> Any:
        words = "&".join(f"{name}={value}" for name, value in {"tenant": "acme", **query}.items())
        self._connection.request("GET", f"/v1/{path}?{words}", headers={"Cookie": self._cookie, **PAGE})
        answer = self._connection.getresponse()
        body = json.loads(answer.read())
        assert answer.status == 200, body
        return body

    def items(self, path: str, **query: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        page = self.ask(path, **query)
        while page["next"] is not None:
            found += page["items"]
            page = self.ask(path, cursor=page["next"], **query)
        found += page["items"]
        return found


def surroundings(folder: Path) -> dict[str, str]:
    """Those of a person whose own installation must not be touched: its database can't even be opened."""
    mine = {name: value for name, value in os.environ.items() if name != "XDG_DATA_HOME"}  # as most people have it
    return {
        **mine, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config"),
        "TOOLGATE_DATABASE_URL": "postgresql://127.0.0.1:1/none", "TOOLGATE_HOME": str(folder / "mine"),
    }  # fmt: skip


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[DemoServer]:
    words = (*options, "serve", "--demo", "--port", "0", "--quiet", "--json")
    with forked.reading(*words, folder=folder, environment=surroundings(folder), errors=2) as (process, said):
        text = ""
        while not text.endswith("}\n"):
            line = said.readline()
            assert line, f"it ended: {process.wait(SOON)}"
            text += line
        with DemoServer(process, json.loads(text)) as server:
            yield server


def run(folder: Path, *words: str) -> Done:
    done = forked.run(words, folder=folder, environment=surroundings(folder), seconds=SOON)
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("person")


@pytest.fixture(scope="module")
def demo(place: Path) -> Iterator[DemoServer]:
    with serving(place) as server:
        yield server


@pytest.fixture(scope="module")
def calls(demo: DemoServer) -> list[dict[str, Any]]:
    return demo.items("invocations", limit=200)


@pytest.mark.requirement("DOOR-6")
def test_some_hundred_calls_of_two_personas_lie_in_the_last_week(calls: list[dict[str, Any]]) -> None:
    assert 300 <= len(calls) <= MOST_CALLS
    assert {call["persona"] for call in calls} == {"analyst", "ops"}
    times = [datetime.fromisoformat(call["ended_at"]) for call in calls]
    assert datetime.now(UTC) - timedelta(days=7, minutes=10) < min(times) < datetime.now(UTC) - timedelta(days=6)
    assert max(times) <= datetime.now(UTC)
    assert len({time.date() for time in times}) >= 7


@pytest.mark.requirement("DOOR-6")
def test_the_calls_ended_in_every_way(calls: list[dict[str, Any]]) -> None:
    assert {call["status"] for call in calls} == {"success", "failure", "denied", "timeout", "pending"}
    assert any(call["cached"] for call in calls)
    assert any(call["cost_usd"] for call in calls)
    assert any(call["code"] == "RATE_LIMITED" for call in calls)
    parents = {call["parent"] for call in calls} - {None}
    assert parents
    assert parents <= {call["id"] for call in calls if call["tool"] == "weekly_report"}
    denied = {(call["persona"], call["tool"]): call["decision"] for call in calls if call["code"] == "PERMISSION_DENIED"}
    assert denied["analyst", "update_stock"] == "persona analyst: analysts read; only ops changes the stock"
    assert denied["ops", "credit_check"] == "persona ops: credit reports are for analysts"


@pytest.mark.requirement("DOOR-6")
def test_a_tool_of_a_jailed_server_is_quarantined_for_what_nobody_sees(demo: DemoServer) -> None:
    found = demo.ask("servers/supplier")
    assert found["server"]["isolation"] == "required"
    assert [tool["name"] for tool in found["tools"]] == ["mcp_supplier_quote", "mcp_supplier_search_catalogue"]
    (changed,) = found["quarantined"]
    assert changed["name"] == "mcp_supplier_track_delivery"
    assert changed["state"] == "changed"
    assert "\u200b" in changed["definition"]["description"]
    assert changed["warnings"] == ["description: has characters that a reader does not see"]


@pytest.mark.requirement("DOOR-6")
def test_a_budget_is_near_its_end(demo: DemoServer) -> None:
    (month,) = [one for one in demo.items("budgets") if one["period"] == "month"]
    assert 0.83 < month["spent_usd"] / month["limit_usd"] <= 0.84


@pytest.mark.requirement("DOOR-6")
def test_two_calls_wait_one_was_rejected_and_a_grant_is_in_use(demo: DemoServer, place: Path) -> None:
    waiting = {one["tool"]: one for one in demo.items("approvals", state="waiting")}
    assert waiting.keys() == {"write_file", "order_parts"}
    assert waiting["order_parts"]["tier"] == "external_api"
    assert waiting["order_parts"]["estimate_usd"] == 0.05
    write = waiting["write_file"]["arguments"]
    there = (place / ".local" / "share" / "toolgate-demo" / "workspace" / write["path"]).read_text("utf-8")
    assert len(set(there.splitlines()) ^ set(write["content"].splitlines())) == 3
    (rejected,) = demo.items("approvals", state="rejected")
    shown = demo.ask(f"approvals/{rejected['id']}")
    assert "two years of sales" in json.dumps(shown)
    (grant,) = demo.items("grants")
    assert (grant["tool"], grant["granted_by"]) == ("refund", "lena")
    assert grant["uses"] >= 2


@pytest.mark.requirement("DOOR-6")
def test_the_order_that_waits_runs_once_it_is_approved(place: Path, demo: DemoServer) -> None:
    """What is left of the month's budget covers it, on every day of a month."""
    settings = str(place / ".local" / "share" / "toolgate-demo" / "toolgate.yaml")
    environment = {name: value for name, value in surroundings(place).items() if not name.startswith("TOOLGATE_")}
    (month,) = [one for one in demo.items("budgets") if one["period"] == "month"]
    (order,) = [one for one in demo.items("approvals", state="waiting") if one["tool"] == "order_parts"]
    assert order["estimate_usd"] < month["limit_usd"] - month["spent_usd"]
    words = ("--settings", settings, "approvals", "approve", order["id"], "--run")
    done = forked.run(words, folder=place, environment=environment, seconds=SOON)
    assert done.returncode == 0, done.stdout + done.stderr
    assert b"ordered 40 pieces of A-300" in done.stdout


@pytest.mark.requirement("DOOR-6")
def test_there_are_jobs_a_schedule_keys_and_a_secret_by_name(demo: DemoServer) -> None:
    assert sorted(job["state"] for job in demo.items("jobs")) == ["done", "done", "failed", "queued"]
    assert [one["name"] for one in demo.items("schedules")] == ["morning report"]
    assert [one["name"] for one in demo.items("secrets")] == ["SUPPLIER_TOKEN"]
    roles = {role for key in demo.items("keys") for role in key["roles"]}
    assert roles == {"caller", "approver", "viewer", "admin"}


@pytest.mark.requirement("DOOR-6")
def test_the_log_holds_and_says_itself_that_its_times_were_set(demo: DemoServer, place: Path) -> None:
    settings = place / ".local" / "share" / "toolgate-demo" / "toolgate.yaml"
    environment = {name: value for name, value in surroundings(place).items() if not name.startswith("TOOLGATE_")}
    words = ("--settings", str(settings), "audit", "verify", "--json")
    verified = forked.run(words, folder=place, environment=environment, seconds=SOON)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads(verified.stdout)["signed"]["seq"] > 600
    begun, filled = (demo.items("audit", tenant="default", kind=f"demo.{what}") for what in ("begun", "filled"))
    assert len(begun) == len(filled) == 1
    assert datetime.now(UTC) - datetime.fromisoformat(begun[0]["at"]) > timedelta(days=6)
    assert "machine_time" in json.dumps(begun)


@pytest.mark.requirement("DOOR-6")
def test_it_is_not_removed_while_it_is_served_nor_doubled_by_another_start(demo: DemoServer, place: Path) -> None:
    refused = run(place, "demo", "remove")
    assert refused.code == 1
    assert "A server uses the demo content" in refused.err
    before = len(demo.items("invocations", limit=200))
    with serving(place) as again:
        assert len(again.items("invocations", limit=200)) == before
        assert len(again.items("keys")) == 5


@pytest.mark.requirement("DOOR-6")
def test_nothing_is_left_and_nothing_else_is_removed(tmp_path: Path) -> None:
    own = tmp_path / ".local" / "share" / "mine.txt"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    with serving(tmp_path):
        pass
    assert (tmp_path / ".local" / "share" / "toolgate-demo").is_dir()
    removed = run(tmp_path, "demo", "remove")
    assert removed.code == 0, removed.err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [own]
    assert not (tmp_path / ".local" / "share" / "toolgate-demo").exists()
    assert "There is no demo content" in run(tmp_path, "demo", "remove").out


@pytest.mark.requirement("DOOR-6")
@pytest.mark.parametrize("inside", ["toolgate.db", ".toolgate/toolgate.db", "letter.txt"])
def test_a_folder_with_other_data_is_neither_filled_nor_removed(tmp_path: Path, inside: str) -> None:
    file = tmp_path / "home" / inside
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    for words in (("serve", "--demo", "--port", "0"), ("demo", "remove")):
        refused = run(tmp_path, "--home", str(tmp_path / "home"), *words)
        assert refused.code == 2
        assert "holds other data" in refused.err
    assert [path for path in (tmp_path / "home").rglob("*") if path.is_file()] == [file]
    assert file.read_text() == "mine"


@pytest.mark.requirement("DOOR-6")
@pytest.mark.needs("root")  # to give a folder away
def test_a_folder_of_another_user_is_not_filled(tmp_path: Path) -> None:
    """Who owns the folder could exchange the tools in it, which the server runs."""
    given = tmp_path / "given"
    given.mkdir()
    os.chown(given, 65_534, 65_534)
    with pytest.raises(SettingsError, match="belongs to another user"), DemoFolder(given).in_use():
        pass
    assert not [*given.iterdir()]


@pytest.mark.requirement("DOOR-6")
def test_a_folder_that_others_could_write_is_closed_to_them(tmp_path: Path) -> None:
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    with DemoFolder(place).in_use() as is_new:
        assert is_new
    assert place.stat().st_mode & 0o777 == 0o700


@pytest.mark.requirement("DOOR-6")
@pytest.mark.parametrize("state", ["filling", "complete"])
@pytest.mark.parametrize("is_link", [False, True])
def test_a_mark_that_somebody_planted_costs_nobody_their_files(tmp_path: Path, state: str, is_link: bool) -> None:
    """A checkout can bring the mark with it, as a file or by a link to a folder that has one."""
    home, real = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    real.mkdir()
    (real / "demo.json").write_text(f'{{"state": "{state}"}}')
    if is_link:
        (home / ".toolgate").symlink_to(real)
    else:
        real.rename(home / ".toolgate")
        (home / "thesis.txt").write_text("mine")
    before = {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")}
    for words in (("serve", "--demo", "--port", "0"), ("demo", "remove")):
        refused = run(tmp_path, "--home", str(home), *words)
        assert refused.code == 2
        assert "holds other data" in refused.err
    assert {path: path.is_file() and path.read_text() for path in tmp_path.rglob("*")} == before


@pytest.mark.requirement("DOOR-6")
def test_content_that_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    home = tmp_path / ".local" / "share" / "toolgate-demo" / ".toolgate"
    home.mkdir(parents=True)
    (home / "demo.json").write_text('{"state": "filling"}')
    (home / "toolgate.db").write_text("half of a database")
    with serving(tmp_path) as demo:
        assert len(demo.items("keys")) == 5


@pytest.mark.requirement("AUD-1")
@pytest.mark.parametrize("mark", [None, '{"state": "complete"}', "[]", "{"])
def test_no_installation_takes_another_clock_for_its_records(tmp_path: Path, mark: str | None) -> None:
    if mark is not None:
        (tmp_path / "demo.json").write_text(mark)
    settings = load_settings(None, {"home": tmp_path}, {})
    with pytest.raises(SettingsError, match="have the time of this machine"):
        App(settings, time_source=DemoClock(timedelta(days=1)))
    with pytest.raises(SettingsError, match="have the time of this machine"):
        App(load_settings(None, {"database_url": "memory://"}, {}), time_source=DemoClock(timedelta(days=1)))


@pytest.mark.requirement("DOOR-6")
def test_the_clock_of_the_demo_neither_goes_back_nor_ahead() -> None:
    clock = DemoClock(timedelta(days=2))
    began, ticks = clock.now(), clock.monotonic()
    clock.move_to(began - timedelta(hours=1))
    assert clock.now() - began < timedelta(minutes=1)
    clock.move_to(began + timedelta(days=1))
    assert timedelta(days=1) <= clock.now() - began < timedelta(days=1, minutes=1)
    assert 86_399 < clock.monotonic() - ticks < 86_460
    clock.move_to(datetime.now(UTC) + timedelta(days=9))
    assert clock.now() <= datetime.now(UTC)
