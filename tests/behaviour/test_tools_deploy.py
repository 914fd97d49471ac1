"""`vercel_deploy` and `netlify_deploy`: which files leave the working directory, and how each platform takes them."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loopback import Asked, Handler, Said, Site, site
from tests.services import failed, hang_up, records
from toolgate import App
from toolgate.errors import InvalidInput
from toolgate.sandbox.workspaces import Workspaces
from toolgate.services import deployer
from toolgate.services.ignore_rules import IgnoreRules
from toolgate.testing import memory_app
from toolgate.tools import site_folder

pytestmark = pytest.mark.requirement("BUILTIN-3")
VERCEL, NETLIFY = "vcp_1234567890abcdefABCDEF12", "nfp_1234567890abcdefABCDEF1234567890"
PAGE = b"<h1>Hello</h1>"


@pytest.fixture(autouse=True)
def prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_VERCEL_TOKEN", VERCEL)
    monkeypatch.setenv("TOOLGATE_SECRET_NETLIFY_AUTH_TOKEN", NETLIFY)
    monkeypatch.setattr(deployer, "POLL_SECONDS", (0.01, 0.01))


@pytest.fixture(autouse=True)
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "site" / "css").mkdir(parents=True)
    (folder / "site" / "index.html").write_bytes(PAGE)
    (folder / "site" / "css" / "main.css").write_bytes(b"h1 { color: red }")
    return folder


@asynccontextmanager
async def serving(name: str, handler: Handler, tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[App, Site]]:
    async with site(handler) as service:
        given = {name: {"base_url": service.url, **settings}}
        async with memory_app(services=given) as app:
            app.provide(Workspaces, Workspaces(tmp_path / "home", tmp_path / "work"))
            app.approvals.add_approver(lambda _request: True)
            yield app, service


class VercelSite:
    """Vercel, as it documents itself: it has what was uploaded under its digest, and builds for a while."""

    def __init__(self, *states: str, create: Said | None = None, events: Any = None) -> None:
        self.states, self.create = list(states) or ["READY"], create
        self.events: Any = [{"type": "stdout", "payload": {"text": "Building"}}, {"type": "stdout", "text": "Done"}, 7]
        self.events = self.events if events is None else events
        self.files: dict[str, bytes] = {}
        self.upload: Callable[[Asked], Said] | None = None

    async def __call__(self, asked: Asked) -> Said:
        assert asked.headers["authorization"] == f"Bearer {VERCEL}"
        if (asked.method, asked.path) == ("POST", "/v2/files"):
            return self._uploaded(asked)
        if (asked.method, asked.path) == ("POST", "/v13/deployments"):
            if self.create is not None:
                return self.create
            missing = [file["sha"] for file in asked.json["files"] if file["sha"] not in self.files]
            if missing:
                return Said(400, {"error": {"code": "missing_files", "message": "Missing files", "missing": missing}})
            return Said(200, self._deployment("QUEUED"))
        if (asked.method, asked.path) == ("GET", "/v13/deployments/dpl_9xyz"):
            return Said(200, self._deployment(self.states.pop(0) if len(self.states) > 1 else self.states[0]))
        if (asked.method, asked.path) == ("GET", "/v3/deployments/dpl_9xyz/events"):
            return Said(200, self.events) if not isinstance(self.events, Said) else self.events
        return Said(404, {"error": {"code": "not_found", "message": asked.path}})

    def _uploaded(self, asked: Asked) -> Said:
        if self.upload is not None:
            said = self.upload(asked)
            if said.status != 200:
                return said
        assert asked.headers["x-vercel-digest"] == sha1(asked.body).hexdigest()
        assert asked.headers["content-length"] == str(len(asked.body))
        self.files[asked.headers["x-vercel-digest"]] = asked.body
        return Said(200, {})

    def _deployment(self, state: str) -> dict[str, Any]:
        made = {"id": "dpl_9xyz", "url": "site-abc123.vercel.app", "readyState": state, "status": state}
        return made | ({"errorMessage": "Build failed"} if state == "ERROR" else {})


# -- Vercel


async def test_files_are_uploaded_by_digest_and_deployed(tmp_path: Path) -> None:
    vercel = VercelSite("BUILDING", "READY")
    async with serving("vercel", vercel, tmp_path, team="team_1") as (app, service):
        outcome = await app.invoke(
            "vercel_deploy", {"projectPath": "site", "production": True, "envVars": {"MODE": "fast"}, "project": "my-site"}
        )
        log = await records(app)
    assert outcome.output == {
        "deploymentId": "dpl_9xyz", "url": "https://site-abc123.vercel.app", "status": "ready",
        "buildLogs": "Building\nDone", "skipped": [],
    }  # fmt: skip
    assert sorted(vercel.files.values()) == [PAGE, b"h1 { color: red }"]
    assert all(asked.query["teamId"] == "team_1" for asked in service.asked)
    (created,) = [asked for asked in service.asked if asked.path == "/v13/deployments"]
    assert created.query == {"teamId": "team_1", "skipAutoDetectionConfirmation": "1"}
    assert created.json == {
        "name": "my-site",
        "files": [
            {"file": "css/main.css", "sha": sha1(b"h1 { color: red }").hexdigest(), "size": 17},
            {"file": "index.html", "sha": sha1(PAGE).hexdigest(), "size": len(PAGE)},
        ],
        "target": "production",
        "env": {"MODE": "fast"},
        "build": {"env": {"MODE": "fast"}},
    }
    assert VERCEL not in log


async def test_a_preview_names_no_target_and_the_folder_names_the_project(tmp_path: Path) -> None:
    async with serving("vercel", VercelSite(), tmp_path) as (app, service):
        assert (await app.invoke("vercel_deploy", {"projectPath": "./site/"})).output["status"] == "ready"
        failed(await app.invoke("vercel_deploy", {"projectPath": "."}), "INVALID_INPUT")
    (created,) = [asked for asked in service.asked if asked.path == "/v13/deployments"]
    assert created.json["name"] == "site"
    assert "target" not in created.json
    assert "env" not in created.json


async def test_a_build_that_fails_says_why(tmp_path: Path) -> None:
    async with serving("vercel", VercelSite("ERROR"), tmp_path) as (app, _):
        output = (await app.invoke("vercel_deploy", {"projectPath": "site"})).output
    assert (output["status"], output["buildLogs"]) == ("error", "Building\nDone\nBuild failed")


@pytest.mark.parametrize(
    "events", [Said(500), Said(200, "x"), Said(200, {"a": 1}), Said(raw=hang_up), Said(200, b"[" * 9_000)]
)
async def test_a_deployment_without_a_log_is_one_all_the_same(tmp_path: Path, events: Said) -> None:
    async with serving("vercel", VercelSite(events=events), tmp_path) as (app, _):
        output = (await app.invoke("vercel_deploy", {"projectPath": "site"})).output
    assert (output["status"], output["buildLogs"]) == ("ready", "")


async def test_a_long_log_is_cut_to_its_end(tmp_path: Path) -> None:
    events = [{"type": "stdout", "payload": {"text": f"line {number} {'x' * 300}"}} for number in range(500)]
    async with serving("vercel", VercelSite(events=events), tmp_path) as (app, _):
        log = (await app.invoke("vercel_deploy", {"projectPath": "site"})).output["buildLogs"]
    assert len(log) <= 8_000
    assert "line 499" in log


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
async def test_a_build_that_outlasts_the_call_is_said_to_be_building(tmp_path: Path) -> None:
    async with serving("vercel", VercelSite("BUILDING"), tmp_path) as (app, _):
        outcome = await app.invoke("vercel_deploy", {"projectPath": "site"}, timeout=17.0)
    assert (outcome.output["status"], outcome.output["deploymentId"]) == ("building", "dpl_9xyz")


async def test_an_upload_is_sent_again_and_a_refused_one_ends_it(tmp_path: Path) -> None:
    vercel, seen = VercelSite(), []

    def upload(asked: Asked) -> Said:
        seen.append(asked.headers["x-vercel-digest"])
        return Said(200 if seen.count(seen[-1]) > 1 else 503)

    vercel.upload = upload
    async with serving("vercel", vercel, tmp_path) as (app, service):
        assert (await app.invoke("vercel_deploy", {"projectPath": "site"})).status == "success"
        vercel.upload = lambda _asked: Said(403, {"error": {"code": "forbidden", "message": "Not authorized"}})
        before = len([asked for asked in service.asked if asked.path == "/v13/deployments"])
        error = failed(await app.invoke("vercel_deploy", {"projectPath": "site"}), "PERMISSION_DENIED")
        assert len([asked for asked in service.asked if asked.path == "/v13/deployments"]) == before
    assert error.details["code"] == "forbidden"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Said(400, {"error": {"code": "bad_request", "message": "Invalid request"}}), "INVALID_INPUT"),
        (Said(401, {"error": {"code": "forbidden", "message": "Not authorized"}}), "MISSING_AUTH"),
        (Said(402, {"error": {"code": "payment_required", "message": "Pay"}}), "INVALID_INPUT"),
        (Said(429, {"error": {"code": "rate_limited", "message": "x"}}, {"retry-after": "60"}), "RATE_LIMITED"),
        (Said(500, {"error": {}}), "OUTCOME_UNKNOWN"),
        (Said(200, {"id": "../../x"}), "OUTCOME_UNKNOWN"),
        (Said(200, []), "OUTCOME_UNKNOWN"),
        (Said(raw=hang_up), "OUTCOME_UNKNOWN"),
    ],
)
async def test_a_deployment_is_asked_for_once(tmp_path: Path, answer: Said, code: str) -> None:
    async with serving("vercel", VercelSite(create=answer), tmp_path) as (app, service):
        failed(await app.invoke("vercel_deploy", {"projectPath": "site"}), code)
        assert len([asked for asked in service.asked if asked.path == "/v13/deployments"]) == 1


@pytest.mark.parametrize(
    "wrong", [{"envVars": {"A B": "x"}}, {"envVars": {"A": "x" * 70_000}}, {"project": "Bad Name"}, {"project": ""},
              {"envVars": {f"V{n}": "" for n in range(101)}}, {"projectPath": "none"}, {"projectPath": "site/index.html"}],
)  # fmt: skip
async def test_what_cannot_be_deployed_is_refused_before_anything_is_sent(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with serving("vercel", VercelSite(), tmp_path) as (app, service):
        failed(await app.invoke("vercel_deploy", {"projectPath": "site", **wrong}), "INVALID_INPUT")
    assert service.asked == []


# -- Netlify


class NetlifySite:
    """Netlify, as it documents itself: it says which digests it lacks, and is ready once it has them."""

    def __init__(self, *, known: tuple[str, ...] = (), state: str = "ready") -> None:
        self.known, self.state = known, state
        self.files: dict[str, bytes] = {}
        self.required: list[str] = []

    async def __call__(self, asked: Asked) -> Said:
        assert asked.headers["authorization"] == f"Bearer {NETLIFY}"
        if (asked.method, asked.path) == ("POST", "/api/v1/sites/docs.netlify.app/deploys"):
            self.required = sorted(set(asked.json["files"].values()) - set(self.known))
            return Said(200, self._deploy("uploading"))
        if asked.method == "PUT" and asked.path.startswith("/api/v1/deploys/5f00/files/"):
            assert asked.headers["content-type"] == "application/octet-stream"
            self.files[asked.path.removeprefix("/api/v1/deploys/5f00/files/")] = asked.body
            return Said(200, {"id": "/x", "sha": sha1(asked.body).hexdigest()})
        if (asked.method, asked.path) == ("GET", "/api/v1/deploys/5f00"):
            return Said(200, self._deploy(self.state))
        return Said(404, {"code": 404, "message": "Not Found"})

    def _deploy(self, state: str) -> dict[str, Any]:
        made = {"id": "5f00", "state": state, "required": self.required, "ssl_url": "https://docs.netlify.app",
                "deploy_ssl_url": "https://5f00--docs.netlify.app"}  # fmt: skip
        return made | ({"error_message": "Deploy directory missing"} if state == "error" else {})


NETLIFY_SITE = {"projectPath": "site", "site": "docs.netlify.app"}


async def test_netlify_gets_only_the_files_that_it_lacks(tmp_path: Path, work: Path) -> None:
    (work / "site" / "a b#c.txt").write_text("odd")
    netlify = NetlifySite(known=(sha1(PAGE).hexdigest(),))
    async with serving("netlify", netlify, tmp_path) as (app, service):
        outcome = await app.invoke("netlify_deploy", NETLIFY_SITE)
    assert outcome.output == {
        "deploymentId": "5f00", "url": "https://5f00--docs.netlify.app", "status": "ready", "buildLogs": "", "skipped": [],
    }  # fmt: skip
    created = service.asked[0]
    assert created.json == {
        "files": {
            "/a b#c.txt": sha1(b"odd").hexdigest(), "/css/main.css": sha1(b"h1 { color: red }").hexdigest(),
            "/index.html": sha1(PAGE).hexdigest(),
        },
        "draft": True,
    }  # fmt: skip
    assert netlify.files == {"a%20b%23c.txt": b"odd", "css/main.css": b"h1 { color: red }"}


async def test_production_is_no_draft_and_has_the_address_of_the_site(tmp_path: Path) -> None:
    async with serving("netlify", NetlifySite(), tmp_path) as (app, service):
        outcome = await app.invoke("netlify_deploy", {**NETLIFY_SITE, "production": True})
    assert outcome.output["url"] == "https://docs.netlify.app"
    assert service.asked[0].json["draft"] is False


async def test_a_deploy_that_fails_at_netlify_says_why(tmp_path: Path) -> None:
    async with serving("netlify", NetlifySite(state="error"), tmp_path) as (app, _):
        output = (await app.invoke("netlify_deploy", NETLIFY_SITE)).output
    assert (output["status"], output["buildLogs"]) == ("error", "Deploy directory missing")


@pytest.mark.parametrize("name", ["../user", "a/b", "", "a b", "-x", "a?b"])
async def test_a_site_is_no_path(tmp_path: Path, name: str) -> None:
    async with serving("netlify", NetlifySite(), tmp_path) as (app, service):
        failed(await app.invoke("netlify_deploy", {**NETLIFY_SITE, "site": name}), "VALIDATION_ERROR")
    assert service.asked == []


# -- which files


async def deployed(app: App, service: Site, path: str = "site") -> tuple[list[str], list[str]]:
    outcome = await app.invoke("netlify_deploy", {**NETLIFY_SITE, "projectPath": path})
    assert outcome.status == "success", outcome
    return [name[1:] for name in service.asked[0].json["files"]], outcome.output["skipped"]


async def test_neither_secrets_nor_links_nor_repositories_are_deployed(tmp_path: Path, work: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("not yours")
    folder = work / "site"
    for name in (".git/config", "node_modules/x/index.js", ".vercel/project.json", "sub/.git/HEAD", "__pycache__/a.pyc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    for name in (".env", ".env.local", "id_rsa", "server.pem", ".npmrc", "css/.env.production"):
        (folder / name).write_text("SECRET=1")
    (folder / "link.txt").symlink_to(outside)
    (folder / "linked").symlink_to(tmp_path)
    (folder / "inside.html").symlink_to("index.html")
    os.mkfifo(folder / "pipe")
    async with serving("netlify", NetlifySite(), tmp_path) as (app, service):
        files, skipped = await deployed(app, service)
        sent = b"".join(asked.body for asked in service.asked)
    assert files == ["css/main.css", "index.html"]
    assert {"link.txt", "linked", "inside.html", "pipe", ".env", "id_rsa", "css/.env.production"} <= set(skipped)
    assert b"SECRET" not in sent
    assert b"not yours" not in sent


async def test_a_folder_behind_a_link_or_outside_is_refused(tmp_path: Path, work: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "index.html").write_text("x")
    (work / "away").symlink_to(tmp_path / "other")
    async with serving("netlify", NetlifySite(), tmp_path) as (app, service):
        for path in ("away", "../other", str(tmp_path / "other"), "/etc", "site/../../other"):
            failed(await app.invoke("netlify_deploy", {**NETLIFY_SITE, "projectPath": path}), "SECURITY_VIOLATION")
    assert service.asked == []


async def test_another_name_of_a_secret_is_a_secret(tmp_path: Path, work: Path) -> None:
    (work / ".env").write_text("SECRET=1")
    os.link(work / ".env", work / "site" / "readme.txt")
    async with serving("netlify", NetlifySite(), tmp_path) as (app, service):
        files, skipped = await deployed(app, service)
    assert "readme.txt" not in files
    assert skipped == ["readme.txt"]


async def test_vercelignore_says_what_else_stays(tmp_path: Path, work: Path) -> None:
    folder = work / "site"
    (folder / ".vercelignore").write_text("# drafts\n*.draft\n/css\n!keep.draft\n!.git\n")
    (folder / "a.draft").write_text("x")
    (folder / "keep.draft").write_text("x")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    async with serving("vercel", VercelSite(), tmp_path) as (app, service):
        await app.invoke("vercel_deploy", {"projectPath": "site"})
    (created,) = [asked for asked in service.asked if asked.path == "/v13/deployments"]
    assert [file["file"] for file in created.json["files"]] == ["index.html", "keep.draft"]


@pytest.mark.parametrize("rule", ["[a-z]*", "a\\b", "{a,b}", "/", "x" * 600])
async def test_a_rule_that_is_not_understood_deploys_nothing(tmp_path: Path, work: Path, rule: str) -> None:
    (work / "site" / ".vercelignore").write_text(rule)
    async with serving("vercel", VercelSite(), tmp_path) as (app, service):
        failed(await app.invoke("vercel_deploy", {"projectPath": "site"}), "INVALID_INPUT")
    assert service.asked == []


async def test_a_link_as_ignore_file_is_not_followed_out(tmp_path: Path, work: Path) -> None:
    (tmp_path / "outside.txt").write_text("css\n")
    (work / "site" / ".vercelignore").symlink_to(tmp_path / "outside.txt")
    async with serving("vercel", VercelSite(), tmp_path) as (app, service):
        failed(await app.invoke("vercel_deploy", {"projectPath": "site"}), "SECURITY_VIOLATION")
    assert service.asked == []


async def test_a_site_has_bounds(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving("netlify", NetlifySite(), tmp_path) as (app, service):
        for bound, value in (("MAX_SITE_FILES", 1), ("MAX_SITE_BYTES", 20), ("MAX_SITE_ENTRIES", 2), ("MAX_SITE_DEPTH", 0)):
            with monkeypatch.context() as patch:
                patch.setattr(site_folder, bound, value)
                failed(await app.invoke("netlify_deploy", NETLIFY_SITE), "INVALID_INPUT")
        (work / "empty").mkdir()
        failed(await app.invoke("netlify_deploy", {**NETLIFY_SITE, "projectPath": "empty"}), "INVALID_INPUT")
    assert service.asked == []


@pytest.mark.parametrize(
    ("rules", "path", "ignored"),
    [
        ("*.log", "a.log", True), ("*.log", "x/y/a.log", True), ("/*.log", "x/a.log", False), ("x/*.log", "x/a.log", True),
        ("x/**/a", "x/a", True), ("x/**/a", "x/y/z/a", True), ("**/a", "q/a", True), ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("build/", "build", False), ("*\n!a", "a", False), ("!a\n*", "a", True), ("./a", "a", True), ("a**b", "aXXb", True),
        ("", "node_modules", True), ("!node_modules", "node_modules", True), ("", "NODE_MODULES", True),
    ],
)  # fmt: skip
def test_rules_mean_what_gitignore_means(rules: str, path: str, ignored: bool) -> None:
    assert IgnoreRules(rules).ignores(path.split("/"), folder=False) is ignored


def test_a_rule_for_folders_is_about_folders() -> None:
    assert IgnoreRules("build/").ignores(["build"], folder=True)


@given(
    st.text(alphabet="ab*?/!.", max_size=40),
    st.lists(st.text(alphabet="ab.", min_size=1, max_size=5), min_size=1, max_size=5),
)
def test_any_rule_is_read_or_refused(rule: str, path: list[str]) -> None:
    with suppress(InvalidInput):
        IgnoreRules(rule).ignores(path, folder=False)


def test_many_stars_take_no_time() -> None:
    rules = IgnoreRules("\n".join(["*a" * 200, "/".join(["**", "*a*b"] * 60)]))
    assert not rules.ignores(["a" * 250 + "b"] * 30 + ["c"], folder=False)


# -- credentials


async def test_without_a_token_the_answer_says_where_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOOLGATE_SECRET_VERCEL_TOKEN")
    async with serving("vercel", VercelSite(), tmp_path) as (app, service):
        error = failed(await app.invoke("vercel_deploy", {"projectPath": "site"}), "MISSING_AUTH")
    assert error.details["setup_url"] == "https://vercel.com/account/tokens"
    assert service.asked == []


async def test_tokens_are_tested_by_a_request_that_deploys_nothing(tmp_path: Path) -> None:
    async def user(asked: Asked) -> Said:
        await asyncio.sleep(0)
        return Said(200 if asked.path == "/v2/user" else 401, {"user": {}})

    async with serving("vercel", user, tmp_path) as (app, vercel), serving("netlify", user, tmp_path) as (second, netlify):
        assert (await app.secrets.test("vercel_deploy")).result == "works"
        assert (await second.secrets.test("netlify_deploy")).result == "refused"
    assert [asked.path for asked in (*vercel.asked, *netlify.asked)] == ["/v2/user", "/api/v1/user"]
