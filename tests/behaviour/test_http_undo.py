"""/v1/invocations/{id}/undo: the files of one's own call are put back."""

from pathlib import Path

import pytest

from tests.desk import Desk
from tests.serving import serving
from toolgate import Actor, App

pytestmark = pytest.mark.requirement("TIER-2")


async def test_a_call_of_ones_own_is_undone(tmp_path: Path) -> None:
    async with App.open(home=tmp_path / "home", entry_points=False) as app, serving(app) as site:
        desk = Desk(app, site)
        await desk.staff()
        cora = Actor("acme", user="cora")
        work = tmp_path / "work"
        work.mkdir()
        file = work / "a.txt"
        file.write_text("before")
        app.sessions.work_in("s", work, tenant="acme", user="cora")
        asked = {"arguments": {"path": "a.txt", "content": "after"}, "session": "s"}
        waiting = (await desk("cora", "POST", "/v1/tools/write_file/invoke", asked)).json["pending"]["id"]
        done = (await desk("adam", "POST", f"/v1/approvals/{waiting}", {"verdict": "approve", "run": True})).json
        assert done["outcome"]["status"] == "success" and file.read_text() == "after"
        path = f"/v1/invocations/{done['outcome']['id']}/undo"
        preview = await desk("cora", "POST", path, {"preview": True})
        assert ([one["done"] for one in preview.json["paths"]], file.read_text()) == (["restored"], "after")
        never = await desk("adam", "POST", "/v1/invocations/never/undo", {})
        for who in ("adam", "eve", "op"):  # only the user who made it
            refused = await desk(who, "POST", path, {})
            assert refused.status == never.status == 404
        assert (await desk("vera", "POST", path, {})).status == 403
        file.write_text("changed again")
        assert (await desk("cora", "POST", path, {})).status == 409
        undone = await desk("cora", "POST", path, {"force": True})
        assert (undone.status, file.read_text()) == (200, "before")
        assert (await desk("cora", "POST", path, {})).status == 409
        assert (await desk("cora", "POST", path, {"preview": "yes"})).status == 422
        assert await app.undo.calls("", cora) == []
        await app.keys.close()
