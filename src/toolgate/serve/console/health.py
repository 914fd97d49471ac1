"""/system: the health of everything, for those who run the installation; for others what concerns them."""

from datetime import datetime

import msgspec

from toolgate.serve.console.page import PageRequest, Pages, View
from toolgate.serve.http.health import HealthView, get_health
from toolgate.serve.http.jobs import count_jobs
from toolgate.serve.http.session import get_session

pages = Pages("system")

HEADLINES = {
    "ready": ("ok", "Everything works."),
    "degraded": ("warn", "Calls are served. Something beside them needs a look."),
    "not ready": ("bad", "Calls fail until this is put right."),
}
PARTS = {
    "store": "Database",
    "policy": "Policy engine",
    "redis": "Redis",
    "n8n": "Workflows (n8n)",
    "events": "Events",
    "jobs": "Jobs and workers",
    "mcp": "MCP endpoint",
}


class ShownPart(msgspec.Struct, frozen=True):
    """A dependency as the page names it."""

    title: str
    name: str
    status: str
    message: str
    advice: str | None
    path: str | None
    """The page that is about it."""


@pages.get("/system", permission="own", twin="/v1/health")
async def system(request: PageRequest) -> View:
    """Each part with its state, what is the matter with it, and what to do."""
    if not request.credential.may("operate"):
        return await _for_others(request)
    found = await get_health(request)
    tone, headline = HEADLINES[found.status]
    order = {"down": 0, "degraded": 1, "ok": 2}
    values = {
        "health": found, "tone": tone, "headline": headline, "others": None, "uptime": _uptime(found.started_at),
        "checks": sorted(_parts(found), key=lambda part: order[part.status]),
    }  # fmt: skip
    return View(template="system.html", title="System", values=values, listed=found.checks)


async def _for_others(request: PageRequest) -> View:
    """Shows if calls can be served at all, as /readyz tells everybody, and the sender's own roles."""
    checks = await request.http.readiness.checks()
    is_ready = all(check.status != "fault" for check in checks)
    values = {
        "health": None,
        "tone": "ok" if is_ready else "bad",
        "headline": "Calls are served."
        if is_ready
        else "Calls fail at the moment. Whoever runs this installation can see why.",
        "others": await get_session(request),
        "counts": await count_jobs(request) if request.credential.may("read") else None,
    }
    return View(template="system.html", title="System", values=values)


def _parts(found: HealthView) -> list[ShownPart]:
    return [
        ShownPart(_title(one.name), one.name, one.status, one.message, one.advice, _page_about(one.name))
        for one in found.checks
    ]


def _title(name: str) -> str:
    return f"MCP server {name.removeprefix('server ')}" if name.startswith("server ") else PARTS.get(name, name)


def _page_about(name: str) -> str | None:
    if name.startswith("server "):
        return f"/servers/{name.removeprefix('server ')}"
    return {"jobs": "/jobs", "policy": "/policy"}.get(name)


def _uptime(since: datetime) -> str:
    seconds = int((datetime.now(since.tzinfo) - since).total_seconds())
    for size, word in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds // size} {word}"
    return f"{seconds} seconds"
