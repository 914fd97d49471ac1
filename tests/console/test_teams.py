"""The page of the organisation's tools: what waits is shown with its difference, accepted, rejected and removed."""

from pathlib import Path

import pytest

from tests.console.plain_browser import signed_in
from tests.serving import serving
from tests.team_bundles import ORG, Organisation
from toolgate import Actor, App

pytestmark = pytest.mark.requirement("DOOR-2", "REG-4")
ANN = Actor("acme", user="ann")


async def test_what_waits_is_reviewed_in_the_browser(tmp_path: Path) -> None:
    org, shared = Organisation(tmp_path), tmp_path / "shared"
    shared.mkdir()
    org.write("greet", "one <script>alert(1)</script>")
    (shared / f"{ORG}.bundle.json").write_bytes(org.pack())
    teams = org.settings(folder=shared, sync_seconds=0)
    async with (
        App.open(None, home=tmp_path / "home", database_url="memory://", teams=teams) as app,
        serving(app) as site,
    ):
        ann = await signed_in(app, site, ANN, "operator")
        assert (await ann.post("/teams", {"action": "sync"})).status == 303
        page = (await ann.get("/teams")).body
        assert b"greet" in page
        assert b"runs python code in the sandbox" in page
        assert b"<script>alert(1)" not in page
        assert b"of organisation acme must be reviewed" in (await ann.get("/")).body
        (waiting,) = await app.teams.waiting()
        assert (await ann.post("/teams", {"action": "accept"})).status == 422
        assert (await ann.post("/teams", {"action": "accept", "hash": "0" * 64})).status == 409
        admin = await signed_in(app, site, Actor("acme", user="admin"), "admin")
        assert (await admin.post("/teams", {"action": "accept", "hash": waiting.hash})).status == 403
        assert not (await app.invoke("greet", {})).ok
        assert (await ann.post("/teams", {"action": "accept", "hash": waiting.hash})).status == 303
        assert (await app.invoke("greet", {})).ok

        org.write("greet", "two")
        (shared / f"{ORG}.bundle.json").write_bytes(org.pack())
        assert (await ann.post("/teams", {"action": "sync"})).status == 303
        changed = (await ann.get("/teams")).body
        assert b"<ins>" in changed
        assert b"<del>" in changed
        (waiting,) = await app.teams.waiting()
        assert (await ann.post("/teams", {"action": "reject", "hash": waiting.hash})).status == 303
        (shared / f"{ORG}.bundle.json").write_bytes(org.pack(version=1))
        refused = await ann.post("/teams", {"action": "sync"})
        assert (refused.status, b"older one is not taken" in refused.body) == (409, True)
        assert (await ann.post("/teams", {"action": "dance"})).status == 422
        assert b"Yes, remove them" in (await ann.post("/teams", {"action": "remove"})).body
        assert (await ann.post("/teams", {"action": "remove", "sure": "yes"})).status == 303
        assert not (await app.invoke("greet", {})).ok


async def test_an_installation_without_an_organisation_says_what_names_one(tmp_path: Path) -> None:
    async with App.open(None, home=tmp_path, database_url="memory://") as app, serving(app) as site:
        ann = await signed_in(app, site, ANN, "operator")
        assert b"teams.public_key" in (await ann.get("/teams")).body
        assert (await ann.post("/teams", {"action": "sync"})).status == 409
