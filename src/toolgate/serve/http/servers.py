"""/v1/servers: the MCP servers of this installation, and what of theirs waits to be accepted. For operators."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from toolgate.app.server_status import ServerStatus
from toolgate.errors import plural
from toolgate.mcp.import_files import packaged, with_secret_references, without_secrets
from toolgate.mcp.review import PendingDefinition
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Resource
from toolgate.serve.http.pages import Page
from toolgate.serve.http.reach import Name
from toolgate.serve.problems import HttpProblem

resource = Resource("servers")

Texts = Annotated[dict[str, Annotated[str, msgspec.Meta(max_length=32_768)]], msgspec.Meta(max_length=100)]
Fingerprint = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class StateCounts(ApiView, frozen=True):
    """Counts of definitions by state."""

    accepted: int
    waiting: int
    gone: int


class ServerView(ApiView, frozen=True):
    """An MCP server. Of variables and headers only the names are shown, because values may be secrets."""

    name: str
    origin: Literal["settings", "store"]
    """settings: the settings file has it. store: it was added."""
    state: str
    """off, idle, starting, up, waiting or resting"""
    transport: str
    what: str
    """The program, package or address."""
    version: str | None
    enabled: bool
    preset: str | None
    isolation: str
    jail: str | None
    env: list[str]
    headers: list[str]
    domains: list[str]
    """The hosts that it may reach."""
    read: list[str]
    write: list[str]
    trust_first_seen: bool
    """True: tools that were never seen before are accepted without a person."""
    issuer: str | None
    """The authorization server that its login is pinned to."""
    tools: StateCounts
    prompts_and_resources: StateCounts
    listed_at: datetime | None
    protocol: str | None
    failure: str | None
    starts: int


class OfferedTool(ApiView, frozen=True):
    """A tool of a server that was accepted."""

    name: str
    tier: str


class QuarantinedDefinition(ApiView, frozen=True):
    """A definition that waits for a person."""

    name: str
    """The name that it would have here."""
    server: str
    kind: str
    """tool, prompt, resource or resource template"""
    tool: str
    """The server's own name of it."""
    state: Literal["new", "changed"]
    tier: str | None
    hash: str
    """The fingerprint of the definition that is shown: only that one can be accepted."""
    definition: dict[str, Any]
    accepted: dict[str, Any] | None
    """The definition that was accepted before."""
    diff: list[str]
    warnings: list[str]
    """What in it looks like instructions to a model."""
    problem: str | None
    """The reason why it can't be offered even if it is accepted."""
    first_seen: datetime
    changed_at: datetime


class ServerDetail(ApiView, frozen=True):
    """A server with what it offers, and what waits."""

    server: ServerView
    tools: list[OfferedTool]
    prompts_and_resources: list[str]
    quarantined: list[QuarantinedDefinition]
    missing_secrets: list[str]
    """Secrets that it needs and that are not set."""


class NewServer(ApiModel, frozen=True):
    """A server that is to be added. One of command, url, npm, pypi and preset says what it is."""

    name: Annotated[str, msgspec.Meta(pattern="^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
    command: Annotated[list[str], msgspec.Meta(min_length=1, max_length=200)] | None = None
    url: str | None = None
    npm: str | None = None
    pypi: str | None = None
    preset: str | None = None
    env: Texts = msgspec.field(default_factory=dict)
    """Variables. Values that are credentials are kept as secrets."""
    headers: Texts = msgspec.field(default_factory=dict)
    """Headers, likewise."""
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further settings of a server, as the settings file has them: read, write, domains, timeout, trust_first_seen …"""
    replace: bool = False
    """True: change the server of this name."""
    start: bool = True
    """True: start it in its jail and see what it has; one that can't be started is not added."""


class AcceptedFingerprints(ApiModel, frozen=True):
    """Definitions that a person has looked at."""

    hashes: Annotated[list[Fingerprint], msgspec.Meta(min_length=1, max_length=1_000)]
    """The fingerprints that were shown."""


def view_of(status: ServerStatus) -> ServerView:
    return msgspec.convert(status.to_dict(), ServerView, strict=False)


def waiting_view(one: PendingDefinition) -> QuarantinedDefinition:
    return msgspec.convert(one.to_dict(), QuarantinedDefinition, strict=False)


class ServersQuery(ApiModel, frozen=True):
    """Filters of the list."""

    state: Literal["off", "idle", "starting", "up", "waiting", "resting"] | None = None
    q: Name | None = None
    """A text in their name, or in what they run."""


@resource.get("/v1/servers", permission="operate")
async def list_servers(request: ApiRequest, query: ServersQuery) -> Page[ServerView]:
    """List the MCP servers: all of them, since there are few."""
    part = (query.q or "").lower()
    found = [view_of(one) for one in await request.app.servers.list()]
    return Page(
        [one for one in found if query.state in (None, one.state) and (part in one.name.lower() or part in one.what.lower())]
    )


@resource.get("/v1/quarantine", permission="operate")
async def list_quarantine(request: ApiRequest) -> Page[QuarantinedDefinition]:
    """List the definitions of all servers that wait to be accepted, each with its difference."""
    return Page([waiting_view(one) for one in await request.app.servers.quarantined()])


@resource.get("/v1/servers/{name}", permission="operate")
async def get_server(request: ApiRequest, name: str) -> ServerDetail:
    """Get a server: how it stands, its tools, and the definitions that wait to be accepted, each with its difference."""
    return await _detail(request, name)


async def _detail(request: ApiRequest, name: str) -> ServerDetail:
    app = request.app
    status = await app.servers.get(name)
    tools = [
        OfferedTool(name=entry.name, tier=entry.tier)
        for entry in app.tools.entries()
        if entry.kind == "mcp" and entry.implementation.server == name
    ]
    return ServerDetail(
        server=view_of(status), tools=tools, prompts_and_resources=app.servers.items(name),
        quarantined=[waiting_view(one) for one in await app.servers.quarantined(name)],
        missing_secrets=app.servers.missing_secrets(status.settings),
    )  # fmt: skip


@resource.post("/v1/servers", permission="operate", status=201, problems=(409, 424, 502, 504))
async def add_server(request: ApiRequest, body: NewServer) -> ServerDetail:
    """Add a server, as `toolgate servers add` does: none of its tools can be called before it was accepted.

    It is given no secret that does not come with the request, and is never without a jail.
    """
    servers, who = request.app.servers, request.sender
    values, secrets = _settings_of(body)
    tried = body.start and await servers.try_out(body.name, values, secrets=secrets, operator=who, replace=body.replace)
    await servers.add(body.name, values, secrets=secrets, operator=who, replace=body.replace)
    if tried:
        await servers.refresh(body.name)
    return await _detail(request, body.name)


def _settings_of(body: NewServer) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings of a server, and the credentials that were among them."""
    own = ("command", "url", "npm", "pypi", "preset", "env", "headers")
    twice = sorted(body.settings.keys() & {*own})
    if twice:
        raise HttpProblem(422, f"Give {twice[0]} beside the settings, not among them.")
    secrets: dict[str, str] = {}
    values = dict(body.settings)
    values |= {name: getattr(body, name) for name in ("url", "npm", "pypi", "preset") if getattr(body, name) is not None}
    if body.command is not None:
        words = without_secrets(body.name, body.command, secrets)
        values |= {"command": words} if values.keys() & {"npm", "pypi", "preset"} else packaged(words)
    if body.env:
        values["env"] = with_secret_references(body.name, body.env, secrets)
    if body.headers:
        values["headers"] = with_secret_references(body.name, body.headers, secrets, header=True)
    return values, secrets


@resource.delete("/v1/servers/{name}", permission="operate", problems=(409,))
async def remove_server(request: ApiRequest, name: str) -> None:
    """Remove a server that was added, with its tools and what was accepted of them."""
    await request.app.servers.remove(name, operator=request.sender)


@resource.post("/v1/servers/{name}/restart", permission="operate", problems=(409,))
async def restart_server(request: ApiRequest, name: str) -> ServerView:
    """Restart a server in every process that has it running."""
    await request.app.servers.restart(name, operator=request.sender)
    return view_of(await request.app.servers.get(name))


@resource.post("/v1/servers/{name}/refresh", permission="operate", problems=(409, 424, 502, 504))
async def refresh_server(request: ApiRequest, name: str) -> ServerDetail:
    """Ask a server what it has now, and compare that with what was accepted. It is started if need be."""
    await request.app.servers.refresh(name)
    return await _detail(request, name)


@resource.post("/v1/servers/{name}/accept", permission="operate", problems=(409,))
async def accept_definitions(request: ApiRequest, name: str, body: AcceptedFingerprints) -> ServerDetail:
    """Accept definitions as they were shown, by their fingerprints. If one has changed since, none is accepted."""
    await request.app.servers.get(name)
    waiting = {one.hash: one for one in await request.app.servers.quarantined(name)}
    unknown = [one for one in body.hashes if one not in waiting]
    if unknown:
        raise HttpProblem(
            409,
            f"{plural(len(unknown), 'fingerprint')} of those named is none of a definition that waits.",
            suggestion="It was accepted already, or has changed: get the server again, and look.",
        )
    wanted = [waiting[one] for one in dict.fromkeys(body.hashes)]
    if len(await request.app.servers.accept(wanted, operator=request.sender)) < len(wanted):
        raise HttpProblem(409, "A definition changed at this moment, and was not accepted.", suggestion="Look again.")
    return await _detail(request, name)
