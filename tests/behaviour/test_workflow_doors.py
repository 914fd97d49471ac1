"""What people see of workflows: the terminal's lists, the doctor's line, and whether a server is ready."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests import loopback
from tests.loopback import Asked, Said
from tests.serving import serving
from tests.terminal import Terminal
from toolgate import Actor, App
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("WF-2")
ANN = Actor("acme", "assistant", "ann")
LONG: dict[str, Any] = {"webhook_path": "long", "description": "Takes long.", "timeout": 480}


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


async def fail(_asked: Asked) -> Said:
    return Said(500, {"message": "Error in \x1b[31mworkflow"})


async def start(home: Path) -> str:
    """An invocation that n8n did not take; gives its id."""
    async with loopback.site(fail) as server:
        n8n = {"base_url": server.url, "callback_url": "http://127.0.0.1:8700"}
        async with App.open(home=home, entry_points=False, n8n=n8n, workflows={"long": LONG}) as app:
            app.approvals.add_approver(lambda _request: True)
            assert (await app.invoke("long", {}, actor=ANN)).error is not None
            (found,) = await app.workflows.list(actor=ANN)
            return found.id


def test_the_terminal_shows_workflows_to_whose_they_are(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_N8N_WEBHOOK_SECRET", "hook-secret-4f1d2c")
    id = asyncio.run(start(terminal.folder / ".toolgate"))
    assert "has started no workflow" in terminal("workflows", "list").err
    of_ann = ("--tenant", "acme", "--user", "ann")
    listed = terminal("workflows", "list", *of_ann)
    assert id in listed.out and "not_started" in listed.out
    assert terminal("workflows", "list", "--tenant", "acme", "--all", "--json").json["invocations"][0]["id"] == id
    assert terminal("workflows", "list", *of_ann, "--state", "success", "--json").json["invocations"] == []
    assert terminal("workflows", "list", "--state", "odd").code == 2
    shown = terminal("workflows", "show", id, *of_ann)
    assert "N8N_ERROR" in shown.out and "Error in" in shown.out and "\x1b" not in shown.out
    assert terminal("workflows", "show", id).code == 1


@pytest.mark.requirement("DOOR-4")
def test_the_doctor_asks_n8n(terminal: Terminal) -> None:
    def check() -> dict[str, Any]:
        done = terminal("doctor", "--json")
        assert done.code == 0
        (found,) = [one for one in done.json["checks"] if one["name"] == "n8n"]
        return dict(found)

    assert check()["status"] == "unused"
    terminal.set("TOOLGATE_N8N__BASE_URL", "http://127.0.0.1:9")
    assert check()["status"] == "warning" and "cannot be reached" in check()["message"]


@pytest.mark.requirement("DOOR-4")
async def test_an_n8n_that_is_down_degrades_a_server_that_is_ready() -> None:
    async def well(_asked: Asked) -> Said:
        return Said(200, {"status": "ok"})

    async with loopback.site(well) as n8n, memory_app(n8n={"base_url": n8n.url}) as app, serving(app) as site:
        await site.with_key(app, Actor(scopes=("metrics",)))
        known = (await site("GET", "/readyz")).json
        assert {part["name"]: part["status"] for part in known["checks"]}["n8n"] == "ok"
        assert [asked.path for asked in n8n.asked] == ["/healthz"]
        assert "x-webhook-secret" not in n8n.asked[0].headers
        await n8n.stop()
        async with asyncio.timeout(30):
            while (answer := await site("GET", "/readyz")).json["status"] != "degraded":
                await asyncio.sleep(0.1)
    assert answer.status == 200
    assert [part["name"] for part in answer.json["checks"] if part["status"] != "ok"] == ["n8n"]
