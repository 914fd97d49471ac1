"""Settings of servers: MCP servers whose tools are offered, Toolgate as a server over MCP and HTTP, and sessions that its
users share."""

from decimal import Decimal
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from toolgate.model import Tier
from toolgate.settings.section import Section, anchored, anchored_path
from toolgate.settings.services import ServiceUrl
from toolgate.trust import working_directory


class ServerToolSettings(Section):
    """Settings of one tool of an MCP server, beyond what the server says of it."""

    name: str | None = None
    """What it is called here, in place of `mcp_{server}_{tool}`."""
    enabled: bool | None = None
    """Whether it is offered; None: yes."""
    tier: Tier | None = None
    """What a call of it risks; None: as for the server's other tools."""
    cost: Decimal | None = Field(default=None, ge=0)
    """Dollars a call."""
    requires_permission: str | None = None
    """The scope that a caller must have: `tool:web_search`."""
    timeout: float | None = Field(default=None, gt=0, le=86_400)
    """Seconds that a call of it may take; None: as for the server's other tools."""
    cache_seconds: float | None = Field(default=None, gt=0)
    """How long its results may be given out again; None: not at all."""
    per_minute: int | None = Field(default=None, ge=1)
    """How often one user may call it."""


class OAuthSettings(Section):
    """The login to a remote server. Tokens, and what a registration gives, are kept as secrets."""

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """Whether a person logs in, or Toolgate does by itself."""
    client_id: str | None = None
    """None: the client registers itself, where the server allows that."""
    client_secret: str | None = None
    """A reference to a secret: `{{secret:NAME}}`."""
    client_metadata_url: str | None = None
    """The address of a client id metadata document, for servers that take one in place of a registration."""
    issuer: str | None = None
    """The authorization server: no other one gets the client secret, codes or tokens, and it may have a private address.
    None: the first one that the server names, which the first login pins."""
    scopes: tuple[str, ...] = ()
    """What the login asks for, besides what the server says that it needs."""
    redirect_port: int = Field(default=8701, ge=1, le=65_535)
    """Where `toolgate servers login` listens, on loopback, for the browser to come back."""


class SamplingSettings(Section):
    """Limits on what an MCP server may ask the language model during a call of its tools."""

    max_tokens: int = Field(default=1_000, ge=1, le=1_000_000)
    """The longest answer, if the server does not ask for a shorter one."""
    requests: int = Field(default=10, ge=1, le=1_000)
    """Requests during one call."""


class ServerSettings(Section):
    """One MCP server whose tools are offered: a program that is started here, or an address."""

    preset: str | None = None
    """A server that Toolgate knows (brave-search, filesystem, postgres, github …): what is said here comes on top of it."""
    command: tuple[str, ...] = ()
    """The program and its arguments. With `npm` or `pypi`: only the arguments. `{{secret:NAME}}` is filled in where Node
    runs it; the arguments of other programs are seen by all users of the machine."""
    npm: str | None = None
    """A package of the npm registry, `name@version`: it is installed once, without running its scripts, and then started."""
    pypi: str | None = None
    """A package of the Python package index, `name==version`, likewise."""
    url: str | None = None
    """Of a remote server. One of command, npm, pypi, url (or a preset that has it). `{{secret:NAME}}` is filled in, in its
    path and query."""
    transport: Literal["stdio", "http", "sse"] | None = None
    """None: stdio for programs, http (streamable HTTP) for addresses."""
    env: dict[str, str] = Field(default_factory=dict)
    """All that the program finds in its environment, besides PATH, HOME, TMPDIR and the locale; `{{secret:NAME}}` is filled
    in."""
    cwd: Path | None = None
    """Where the program begins, and what it may read: all but sensitive files and repositories. None: an empty folder."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Sent with each request to an address; `{{secret:NAME}}` is filled in."""
    oauth: OAuthSettings | None = None
    """Set where the server wants a login."""
    enabled: bool = True
    """Whether its tools are offered; it is not even started otherwise."""
    prefix: str | None = None
    """Stands before the names of its tools; None: `mcp_{server}_`. Empty: they keep their names."""
    tools: dict[str, ServerToolSettings] = Field(default_factory=dict)
    """By the server's own name of a tool."""
    only: tuple[str, ...] | None = None
    """Tools that are offered, by the server's own names; None: all."""
    tier: Tier | None = None
    """Of tools of which nothing else is said. None: write for a program in a jail without network, else external_api."""
    requires_permission: str | None = None
    """The scope that a caller of any of its tools, resources and prompts must have, unless a tool's own says otherwise."""
    trust_annotations: bool = False
    """Whether a tool that says it only reads is taken at its word (tier read_only)."""
    trust_first_seen: bool = False
    """Whether tools, prompts and resources that were never seen before may be used without anybody accepting them."""
    sampling: SamplingSettings | None = None
    """Lets it ask the language model of the caller of its tools, within limits: `true`, or limits. Each request is a
    call of `ask_model` inside that call. None: such requests go to the caller, if that is an MCP client that takes them."""
    isolation: Literal["required", "none"] = "required"
    """required: in a jail, or not at all. none: with the rights of whoever runs Toolgate."""
    read: tuple[Path, ...] = ()
    """In the jail: files and folders that it may read."""
    write: tuple[Path, ...] = ()
    """In the jail: folders that it may read and change; what it changes there is brought in by rule."""
    blocked: tuple[str, ...] = ()
    """Patterns of paths (`*/.git/*`, `*.pem`) that its tools may not be given, besides those that no tool may."""
    network: Literal["none", "domains", "host"] | None = None
    """In the jail: none, only `domains`, or all that this machine reaches. None: domains if there are any, else none."""
    domains: tuple[str, ...] = ()
    """Hosts that it may reach: `api.example.com`, `*.example.com`, `db.example.com:5432`. Port 443 if none is said."""
    memory_mb: int = Field(default=256, ge=96, le=65_536)
    """In the jail: memory of all its processes together."""
    disk_mb: int = Field(default=256, ge=1, le=65_536)
    """In the jail: what it may write, in all its folders in `write` together; it is held in memory while it runs."""
    bring_in: tuple[str, ...] = ()
    """Patterns of files that it may change in its folders in `write`, besides data and those of the setting
    `sandbox.bring_in`."""
    output_bytes: int = Field(default=1_048_576, ge=1_024, le=1_000_000_000)
    """The longest message that is taken from it."""
    start_seconds: float = Field(default=30, gt=0, le=600)
    """How long it may take to start and say what it has."""
    timeout: float = Field(default=30, gt=0, le=86_400)
    """Seconds that a call of its tools may take."""
    heartbeat_seconds: float = Field(default=30, gt=0, le=3_600)
    """How often it is asked for a sign of life; one that gives none is restarted."""
    restarts: int = Field(default=5, ge=0, le=1_000)
    """How often in a row it is restarted before its circuit opens for `rest_seconds`; after that one more try is made."""
    rest_seconds: float = Field(default=60, gt=0, le=86_400)
    """How long the circuit of one that failed too often stays open."""
    idle_seconds: float | None = Field(default=None, gt=0)
    """A program that nobody called for this long is stopped, until the next call. None: it keeps running."""

    def with_whole_paths(self) -> "ServerSettings":
        """These settings with relative paths taken from the working directory, to be kept: whoever reads them later may work
        in another folder."""
        values = anchored(self.model_dump(exclude_unset=True), ServerSettings, working_directory())
        return ServerSettings.model_validate(values)

    @classmethod
    def anchor_texts(cls, values: dict[str, Any], base: Path | None) -> None:
        """A program that is named by a path, and not by its name alone. One with a `cwd` is found from there."""
        command = values.get("command")
        if (
            isinstance(command, list | tuple)
            and command
            and not any(values.get(name) for name in ("npm", "pypi", "preset", "cwd"))
        ):
            program = command[0]
            if isinstance(program, str) and "/" in program:
                values["command"] = [anchored_path(program, base), *command[1:]]

    @field_validator("sampling", mode="before")
    @classmethod
    def _true_is_all_defaults(cls, sampling: Any) -> Any:
        return ({} if sampling else None) if isinstance(sampling, bool) else sampling

    @field_validator("isolation", mode="before")
    @classmethod
    def _one_word_for_a_jail(cls, isolation: Any) -> Any:
        """`auto` is read as `required`: settings that were written when it meant a jail where there is one stay valid."""
        return "required" if isolation == "auto" else isolation


class McpSettings(Section):
    """Toolgate as an MCP server, and what holds for all servers that it calls."""

    enabled: bool = True
    """Whether MCP servers are used. false: none is started, connected to or logged in to, whatever is said of it by
    itself, and none of their tools, prompts and resources is offered."""
    page: int = Field(default=200, ge=1, le=10_000)
    """Tools in one answer to tools/list."""
    list_seconds: float = Field(default=300, gt=0, le=86_400)
    """How long a client may keep a list of tools that it was given."""
    approval_seconds: float = Field(default=300, ge=0, le=3_600)
    """How long a call waits for an answer of a client that can ask its person; after that it is pending."""
    origins: tuple[str, ...] = ()
    """Web pages (`https://app.example.com`) whose scripts may call /mcp, besides those of this machine."""
    hosts: tuple[str, ...] = ()
    """Names by which this server is reached, besides those of this machine."""


class ServeSettings(Section):
    """The HTTP server."""

    host: str = "127.0.0.1"
    """The address that it listens on."""
    port: int = Field(default=8700, ge=0, le=65_535)
    """0: any that is free."""
    workers: int = Field(default=1, ge=1, le=256)
    """The number of processes that serve on the port. More than one needs a system that can fork, and a database that is not
    in memory."""
    body_bytes: int = Field(default=4_194_304, ge=1_024, le=1_000_000_000)
    """The largest request that is taken."""
    drain_seconds: float = Field(default=0, ge=0, le=3_600)
    """The time between the signal to stop and the end of listening, in which /readyz says 503, so that a balancer sends no
    more requests."""
    public_url: ServiceUrl | None = None
    """The address under which clients and people reach it, if that is another: `https://gate.example.com`. Sign-in links and
    links in messages lead there, and tokens of MCP clients are for its /mcp."""
    proxies: tuple[str, ...] = ()
    """Addresses and networks of reverse proxies (`10.0.0.7`, `10.1.0.0/16`) whose `Forwarded`, `X-Forwarded-For` and
    `X-Forwarded-Proto` headers say where a request came from, and whether it was encrypted on the way."""

    @field_validator("public_url")
    @classmethod
    def _has_no_path(cls, url: str | None) -> str | None:
        if url is not None and urlsplit(url).path:
            raise ValueError("must be a host alone, without a path")
        return url

    @field_validator("proxies")
    @classmethod
    def _are_networks(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            ip_network(proxy)
        return proxies

    workspace: Literal["own", "here"] = "own"
    """Where calls that name no session work. own: in a folder of their user's own in `home`. here: those of the tenant
    `default` in the folder that the server runs in, whoever their user is."""


class SharedSession(Section):
    """A session that several users of a tenant have in common."""

    tenant: str = "default"
    """Whose users they are."""
    name: str
    """What they call it."""
    users: tuple[str, ...] = Field(min_length=1)
    """Who they are: to everybody else the name means a session of their own."""


class WorkFolder(Section):
    """The folder that the calls of a user or a persona work in."""

    tenant: str = "default"
    persona: str | None = None
    user: str | None = None
    """The user of a key is the one that it was made for; without one, its name."""
    folder: Path

    @model_validator(mode="after")
    def _for_somebody(self) -> "WorkFolder":
        if self.persona is None and self.user is None:
            raise ValueError("it names neither a user nor a persona: a whole tenant shares no folder")
        return self


class SessionSettings(Section):
    """Sessions belong to one user each, unless they are named here."""

    shared: tuple[SharedSession, ...] = ()
    """Sessions whose files several users have in common: `[{tenant: acme, name: report, users: [ann, bob]}]`."""
    folders: tuple[WorkFolder, ...] = ()
    """Folders in which the calls of a user (or a key) or a persona work, whatever session they name:
    `[{tenant: acme, user: ci, folder: /srv/build}]`. What names both comes first, then the user."""
