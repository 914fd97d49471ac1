"""One Settings for all of Toolgate: defaults, then `toolgate.yaml`, then TOOLGATE_* in the environment, then arguments.

Read here and nowhere else. Names are snake_case; camelCase is read as well. A key that does not exist is refused with the
nearest one that does. Relative paths are taken from the folder of the file that names them, and in variables and arguments
from the working directory.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from ipaddress import ip_network
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from toolgate.discovery import DATA, FILE, discover
from toolgate.errors import SettingsError
from toolgate.model import NAME, Tier
from toolgate.settings_file import (
    Name,
    anchored,
    anchored_path,
    base_of,
    group_at,
    line_of,
    parse,
    snake,
    without_empty_groups,
)
from toolgate.trust import ADVICE, Records, Untrusted, digest, is_named, read_regular, working_directory
from toolgate.trust import VARIABLE as TRUST

PREFIX = "TOOLGATE_"
NOT_SETTINGS = {"TOOLGATE_SETTINGS", "TOOLGATE_DEBUG", "TOOLGATE_SECRETS_KEY", TRUST}
"""Variables with our prefix that are read elsewhere."""
BY_NAME = {"tools", "tier_overrides", "tierOverrides", "servers", "env", "headers", "use"}
"""Groups whose names somebody else gave: of tools, servers, variables, headers, secrets."""
SECRET_PREFIX = "TOOLGATE_SECRET_"
SQLITE = "sqlite:///"
HTTP = re.compile(r"(put\+)?https?://")
SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")


OTHER = "\0"
"""A name that no tool and no tenant has: stands for all that are not named."""


class Section(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class ToolSettings(Section):
    """What the settings file says of one tool; what the store says (CLI, API, console) wins over it."""

    enabled: bool | None = None


class Enforcement(Section):
    """What an organisation decides for everyone who uses this installation."""

    disable_local_tools: bool = False
    """Refuse tools that people keep in their own folders (`python_tools` and, later, YAML tools)."""
    enforced_tools: tuple[str, ...] = ()
    """Tools that nobody can disable."""


class Limits(Section):
    """How big a call may be."""

    input_bytes: int = Field(default=4_194_304, ge=1024)
    """Arguments larger than this, as JSON, are refused; so are more than 100,000 values."""
    output_string: int = Field(default=10_000, ge=1)
    """Characters of one string of the output."""
    output_items: int = Field(default=100, ge=1)
    """Items of one list of the output."""
    output_bytes: int = Field(default=1_000_000, ge=1024)
    """The whole output, as JSON. What is cut is kept as an artifact."""
    artifact_bytes: int = Field(default=64_000_000, ge=1024)
    """An output larger than this is not kept, only cut."""
    artifact_days: float = Field(default=7, gt=0, le=36_500)
    """How long an artifact can be fetched."""
    tenant_concurrency: int | None = Field(default=None, ge=1)
    """Calls of one tenant that may run at once; None is without limit."""
    threads: int = Field(default=32, ge=1)
    """Synchronous tools that may run at once."""
    hook_seconds: float = Field(default=10, gt=0, le=86_400)
    """How long a hook may take at one stage, unless it has a `timeout` of its own."""
    lease_seconds: float = Field(default=30, gt=0, le=3600)
    """A process that has given no sign of life for this long counts as dead: what it had reserved or begun is settled."""
    key_days: float = Field(default=30, gt=0, le=36_500)
    """How long an idempotency key is remembered."""
    backup_bytes: int = Field(default=100_000_000, ge=0)
    """A file larger than this is not changed by a tool, because it can't be backed up first."""
    backup_days: float = Field(default=30, gt=0, le=36_500)
    """How long a change can be undone."""


class Breaker(Section):
    """When a failing target is left alone."""

    failures: int = Field(default=5, ge=1)
    """Consecutive failures that open the circuit."""
    reset_seconds: float = Field(default=30, gt=0)
    """After this long one call may try again."""


class Policy(Section):
    """Which policy decides, and how long a decision is remembered."""

    file: Path | None = None
    """A Rego file of package soma.policy; None: the policy that comes with Toolgate."""
    observe: tuple[Path, ...] = ()
    """Rego files that are asked about every call too, and whose answers are only put on record: candidates, before one of
    them decides. `toolgate policy observed` shows what they would change."""
    permission_seconds: float = Field(default=60, ge=0)
    """How long a decision is remembered. A change of policy or data drops it at once; this bounds what an OPA server does
    not tell us."""
    enabled_seconds: float = Field(default=300, gt=0)
    """Flags are read anew after this long, even if no change was announced."""
    schema_seconds: float = Field(default=3600, gt=0)
    """Definitions of dynamic tools are read anew after this long, even if no change was announced."""
    opa_seconds: float = Field(default=2, gt=0)
    """An OPA server that takes longer than this to answer has not answered: the call is denied."""
    push: bool = False
    """Send the policy and its data to the OPA server, at the start and whenever they change."""


def _check_quorum(approvers: Iterable[str], quorum: int) -> None:
    """Refuse a quorum that can't be reached: a person counts once, however the name is written."""
    from toolgate.screening.lookalikes import person

    named: dict[str, list[str]] = {}
    for name in sorted(set(approvers)):
        named.setdefault(person(name), []).append(name)
    if len(named) < quorum:
        same = next((" and ".join(names) for names in named.values() if len(names) > 1), None)
        why = f"; {same} count as one person" if same else ""
        raise ValueError(f"wants {quorum} to agree, and names {len(named)}{why}: name more approvers, or lower the quorum")


class ApprovalRule(Section):
    """Who must agree to the calls that it matches."""

    tenant: str | None = None
    """Whose calls; None: every tenant's."""
    tool: str | None = None
    """Of which tool; a `*` at the end stands for any ending. None: of every tool."""
    approvers: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Users who may answer; None: anybody who can."""
    quorum: int = Field(default=1, ge=1, le=20)
    """How many of them must agree."""

    @model_validator(mode="after")
    def _can_be_met(self) -> "ApprovalRule":
        if self.approvers is None and self.quorum == 1:
            raise ValueError("says neither approvers nor a quorum above 1")
        if self.approvers is not None:
            _check_quorum(self.approvers, self.quorum)
        return self

    def matches(self, tool: str, tenant: str) -> bool:
        named = self.tool is None or tool == self.tool or (self.tool.endswith("*") and tool.startswith(self.tool[:-1]))
        return named and self.tenant in (None, tenant)


class Approvals(Section):
    """Who may answer a question, how long that takes at most, and how many are asked."""

    expire_seconds: float = Field(default=3600, gt=0, le=30 * 86_400)
    """An approval that is not given, or not used, within this time is void."""
    rules: tuple[ApprovalRule, ...] = ()
    """Who must agree, by tenant and tool: `[{tenant: acme, tool: deploy, approvers: [ada, bob, eve], quorum: 2}]`. All that
    match a call hold."""
    asker_may_answer: Literal["never", "local", "always"] = "local"
    """Whether people approve their own calls. local: only the person at this machine, and who has a key made with
    `--may-approve`, and only where no rule says who must agree."""
    questions_per_hour: int = Field(default=240, ge=1, le=100_000)
    """New questions of one user in an hour; beyond it a call is denied as RATE_LIMITED and nobody is asked."""
    tenant_questions_per_hour: int = Field(default=1_000, ge=1, le=1_000_000)
    """New questions of all users of a tenant in an hour, likewise."""

    @field_validator("rules")
    @classmethod
    def _rules_can_be_met(cls, rules: tuple[ApprovalRule, ...]) -> tuple[ApprovalRule, ...]:
        """Of rules that match the same call, all hold: together they must leave enough who may agree."""
        tools = {OTHER if rule.tool is None else rule.tool.replace("*", OTHER) for rule in rules}
        for tool, tenant in product(sorted(tools), sorted({rule.tenant or OTHER for rule in rules})):
            found = [rule for rule in rules if rule.matches(tool, tenant)]
            lists = [set(rule.approvers) for rule in found if rule.approvers is not None]
            if len(found) > 1 and lists:
                try:
                    _check_quorum(set.intersection(*lists), max(rule.quorum for rule in found))
                except ValueError as error:
                    which = ", ".join(str(rules.index(rule) + 1) for rule in found)
                    raise ValueError(
                        f"no answer satisfies the rules {which} at once, which match the same call: {error}"
                    ) from None
        return rules


class Budgets(Section):
    """Caps that hold without anybody having set a budget."""

    external_api_daily: Decimal | None = Field(default=Decimal(10), ge=0)
    """Dollars that each user may spend a day on tools of tier external_api; None: no cap."""
    timezone: str = "UTC"
    """Where days and months begin."""

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            if name != "UTC":  # which is known also where no time zones are installed
                ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"there is no time zone {name!r}") from None
        return name


class RateRule(Section):
    """How often calls may be made: of those that match, counted separately for each value of the fields in `by`."""

    tenant: str | None = None
    persona: str | None = None
    user: str | None = None
    tool: str | None = None
    by: tuple[Literal["tenant", "persona", "user", "tool"], ...] = ("user",)
    per_minute: int | None = Field(default=None, ge=1)
    per_hour: int | None = Field(default=None, ge=1)
    per_day: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _limits_something(self) -> "RateRule":
        if self.per_minute is None and self.per_hour is None and self.per_day is None:
            raise ValueError("says neither per_minute nor per_hour nor per_day")
        return self


class Paths(Section):
    """Files that no tool may open."""

    sensitive: tuple[str, ...] = ()
    """More of them: patterns such as `*.sqlite` or `/srv/private/*`."""
    allowed: tuple[str, ...] = ()
    """Exceptions: patterns of files that are fine although their name looks sensitive, or they are hidden in a home."""


class Commands(Section):
    """Which commands tools of tier execute may run."""

    allow: tuple[str, ...] = (
        "npm install", "npm run", "git commit", "git push", "npx prisma", "docker build",
    )  # fmt: skip
    """Beginnings of commands, word by word; a word may end in `*`. What is not here is refused."""
    deny: tuple[str, ...] = ()
    """More that is refused, besides what always is (sudo, rm -rf, shells …)."""


class SecretUse(Section):
    """A tool, and the tenant whose callers may refer to a secret in its arguments."""

    tool: str = Field(min_length=1)
    """Exactly one: a built-in or Python tool by its name, or with `server` the server's own name of its tool."""
    tenant: str = Field(min_length=1)
    """One tenant; `*` for all."""
    server: str | None = None
    """The MCP server whose tool it is."""
    source: Literal["custom", "openapi", "workflow", "teams"] | None = None
    """Where the tool comes from, if it is neither built in, nor of Python, nor of a server: a name that one source has not
    taken yet, another may."""

    @model_validator(mode="after")
    def _one_origin(self) -> "SecretUse":
        if self.server is not None and self.source is not None:
            raise ValueError("it has server and source: a tool comes from one of them")
        if self.server is None and not NAME.match(self.tool):
            raise ValueError(f"{self.tool!r} is not the name of a tool; each is named by itself, not by a pattern")
        if "*" in (self.tool, self.server):
            raise ValueError("each tool and server is named by itself; only tenant can be '*'")
        return self


class SecretSettings(Section):
    """Where secrets are kept, and which tools may be given them."""

    use: dict[str, tuple[SecretUse, ...]] = Field(default_factory=dict)
    """By name of a secret, the tools into whose arguments callers may have it put with `{{secret:NAME}}`, and for which
    tenant. What is not named here is refused."""
    file: Path | None = None
    """The encrypted file; None: `secrets.enc` in `home`."""
    keyring: bool = False
    """Whether the system's keyring is asked as well."""
    keyring_backend: str | None = None
    """A backend of the package keyring (`module.Class`) that is used although Toolgate does not know that it encrypts. None:
    only Secret Service, libsecret, KWallet, macOS Keychain, Windows Credential Locker and keyrings.alt's encrypted files."""

    @field_validator("use")
    @classmethod
    def _named_secrets(cls, use: dict[str, tuple[SecretUse, ...]]) -> dict[str, tuple[SecretUse, ...]]:
        wrong = next((name for name in use if not SECRET_NAME.match(name)), None)
        if wrong is not None:
            raise ValueError(f"{wrong!r} is not the name of a secret: letters, digits and _, and no digit first")
        return use


class SandboxSettings(Section):
    """Where code that nobody vouches for is run, and what it may use."""

    backend: Literal["auto", "bubblewrap", "namespaces", "landlock", "docker"] = "auto"
    """What holds it. auto: the first of bubblewrap, namespaces and landlock that passes a trial on this machine."""
    seconds: float = Field(default=30, gt=0, le=3_600)
    """How long one run may take, unless its tool has a timeout of its own."""
    memory_mb: int = Field(default=256, ge=96, le=65_536)
    """Memory of all processes of one run together."""
    disk_mb: int = Field(default=64, ge=1, le=65_536)
    """What one run may write: in its own folder for temporary files, and in its workspace."""
    processes: int = Field(default=64, ge=4, le=4_096)
    """Processes and threads of one run."""
    output_bytes: int = Field(default=1_048_576, ge=1_024, le=100_000_000)
    """The most that one run may write to each of stdout and stderr, and give as its result."""
    at_once: int = Field(default=8, ge=1, le=1_000)
    """Runs at the same time; more wait."""
    warm: int = Field(default=3, ge=0, le=100)
    """Workers of each kind that are kept ready once the first was needed."""
    warm_memory_mb: int = Field(default=512, ge=0, le=65_536)
    """What all workers that wait may take together."""
    idle_seconds: float = Field(default=300, gt=0, le=86_400)
    """Workers that nobody needed for this long are let go."""
    monty: bool = True
    """Whether small Python programs are run by Monty, which needs no process of their own."""
    python: Path | None = None
    """The interpreter in the sandbox; None: the one that runs Toolgate."""
    deno: Path | None = None
    """Deno; None: the one that is installed with `toolgate[sandbox]`."""
    packages: tuple[Path, ...] = ()
    """Folders of Python packages that sandboxed Python may import."""
    programs: tuple[Path, ...] = ()
    """Folders of programs, besides the system's, that sandboxed commands may run."""
    bring_in: tuple[str, ...] = ()
    """Patterns of files, besides formats of data, that programs and MCP servers may make, change and delete in a workspace
    that is not a session's own folder; every other change is set aside for the operator (`toolgate workspace`). A name
    (`*.txt`) counts in any folder, a path (`src/**/*.py`) from the workspace's top; wildcards match neither hidden names nor
    folders of packages."""
    docker_command: str = "docker"
    """The command line of the container engine."""
    docker_image: str | None = None
    """The image that runs code if the backend is docker: it needs Python and, for TypeScript, Deno."""


class ServerTool(Section):
    """What is said here of one tool of an MCP server, beyond what the server says of it."""

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


class OAuth(Section):
    """How a remote server is logged in to. Tokens, and what a registration gives, are kept as secrets."""

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
    oauth: OAuth | None = None
    """Set where the server wants a login."""
    enabled: bool = True
    """Whether its tools are offered; it is not even started otherwise."""
    prefix: str | None = None
    """Stands before the names of its tools; None: `mcp_{server}_`. Empty: they keep their names."""
    tools: dict[str, ServerTool] = Field(default_factory=dict)
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
    """How often it is asked for a sign of life; one that gives none is started anew."""
    restarts: int = Field(default=5, ge=0, le=1_000)
    """How often in a row it is started anew before it is left alone for `rest_seconds`; after that one more try is made."""
    rest_seconds: float = Field(default=60, gt=0, le=86_400)
    """How long one that failed too often is left alone."""
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
    body_bytes: int = Field(default=4_194_304, ge=1_024, le=1_000_000_000)
    """The largest request that is taken."""
    proxies: tuple[str, ...] = ()
    """Addresses and networks of reverse proxies (`10.0.0.7`, `10.1.0.0/16`) whose `Forwarded` and `X-Forwarded-For` headers
    say where a request came from."""

    @field_validator("proxies")
    @classmethod
    def _are_networks(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            ip_network(proxy)
        return proxies

    workspace: Literal["own", "here"] = "own"
    """Where calls that name no session work. own: in a folder of their user's own in `home`. here: those of the tenant
    `default` in the folder that the server runs in, whoever their user is."""


class AuditSettings(Section):
    """How the head of the audit log is signed, and where signed heads go."""

    key: Literal["file", "keyring", "none"] = "file"
    """Where the signing key is kept: in `folder`, in the system's keyring, or nowhere: then heads are not signed."""
    folder: Path | None = None
    """Where the key and the latest signed head are kept, apart from the log; None: `toolgate/audit` in `$XDG_CONFIG_HOME`
    (`~/.config`). Whoever can write there and to the database can rewrite history."""
    sinks: tuple[str, ...] = ()
    """Where signed heads are sent besides: a file that lines are added to, an `https://` address (POST), or `put+https://`
    (PUT of an object for each head)."""
    sign_seconds: float = Field(default=60, gt=0, le=86_400)
    """How often the head is signed while records are written. It is also signed when the App closes."""
    trusted_keys: tuple[str, ...] = ()
    """Public keys, in hex, of other machines that sign the heads of the same log: `toolgate audit key` shows them."""

    @classmethod
    def anchor_texts(cls, values: dict[str, Any], base: Path | None) -> None:
        """Sinks that are files."""
        if isinstance(values.get("sinks"), list):
            values["sinks"] = [
                anchored_path(sink.removeprefix("file://"), base) if isinstance(sink, str) and not HTTP.match(sink) else sink
                for sink in values["sinks"]
            ]

    @field_validator("trusted_keys")
    @classmethod
    def _public_keys(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        for key in keys:
            if not re.fullmatch(r"[0-9a-f]{64}", key):
                raise ValueError("a public key is 64 hexadecimal digits: `toolgate audit key` shows it")
        return keys

    @property
    def place(self) -> Path:
        """The folder that is kept apart from the log."""
        if self.folder is not None:
            return self.folder
        base = os.environ.get("XDG_CONFIG_HOME", "")
        return (Path(base) if Path(base).is_absolute() else Path("~/.config").expanduser()) / "toolgate" / "audit"


class SharedSession(Section):
    """A session that several users of a tenant have in common."""

    tenant: str = "default"
    """Whose users they are."""
    name: str
    """What they call it."""
    users: tuple[str, ...] = Field(min_length=1)
    """Who they are: to everybody else the name means a session of their own."""


class SessionSettings(Section):
    """Sessions belong to one user each, unless they are named here."""

    shared: tuple[SharedSession, ...] = ()
    """Sessions whose files several users have in common: `[{tenant: acme, name: report, users: [ann, bob]}]`."""


class Settings(Section):
    """Everything that can be set."""

    home: Path = Path(".toolgate")
    """Where data is kept: database, audit head, custom tools."""
    database_url: str | None = None
    """None: SQLite in `home`. `sqlite:///path/file.db`, `memory://`, or `postgresql://user:password@host/database`."""
    redis_url: str | None = None
    """`redis://host:6379/0`: limits, breakers, cached results and decisions are shared through it."""
    opa_url: str | None = None
    """`http://host:8181`: an OPA server decides in place of the policy engine in this process."""
    tools: dict[str, ToolSettings] = Field(default_factory=dict)
    """Per tool: `enabled`."""
    python_tools: tuple[Path, ...] | None = None
    """Folders of Python files with tools; None: `tools` in `home`."""
    auto_load_custom_tools: bool = True
    """Whether to look into those folders."""
    entry_points: bool = True
    """Whether to load tools that installed packages offer under the entry point group `toolgate.tools`."""
    max_execution_time: float = Field(default=60, gt=0, le=86_400)
    """Seconds that a tool without a timeout of its own may take. E's maxExecutionTime is in milliseconds."""
    shutdown_seconds: float = Field(default=10, ge=0, le=3_600)
    """How long calls that are running when the App closes may take to end."""
    show_token_costs: bool = True
    """Whether lists of tools show what each costs a model to read."""
    token_price: float = Field(default=1.0, ge=0)
    """Dollars for a million tokens of system prompt, for the estimate that `toolgate tools tokens` shows."""
    tier_overrides: dict[str, Tier] = Field(default_factory=dict)
    """Raise the tier of a tool: `{echo: write}`. A tier can't be lowered."""
    sensitive_keys: tuple[str, ...] = ()
    """More key names whose values are masked in records and outputs."""
    scan_secrets: bool = True
    """Whether values are searched for secrets as well (with kingfisher if it is installed)."""
    audit_head_file: Path | None = None
    """Where the head of the audit log is noted outside the database; None: `audit.head` in `home`."""
    metrics: bool = False
    """Count calls for Prometheus."""
    tracing: bool = False
    """Make OpenTelemetry spans."""
    rate_limits: tuple[RateRule, ...] = ()
    """How often calls may be made, besides what tools declare: `[{tenant: acme, by: [user], per_minute: 60}]`."""
    enforcement: Enforcement = Enforcement()
    limits: Limits = Limits()
    breaker: Breaker = Breaker()
    policy: Policy = Policy()
    approvals: Approvals = Approvals()
    budgets: Budgets = Budgets()
    paths: Paths = Paths()
    commands: Commands = Commands()
    secrets: SecretSettings = SecretSettings()
    sandbox: SandboxSettings = SandboxSettings()
    servers: dict[str, ServerSettings] = Field(default_factory=dict)
    """MCP servers, by the name that their tools' names begin with. `toolgate servers add` keeps more in the store."""
    mcp: McpSettings = McpSettings()
    serve: ServeSettings = ServeSettings()
    sessions: SessionSettings = SessionSettings()
    audit: AuditSettings = AuditSettings()

    _read_from: Path | None = None
    """The file that was read."""
    _read_digest: str | None = None
    """Of what was read from it, if nobody named it: it was found in the project folder."""
    _project: Path | None = None
    """The folder in which settings and data were looked for; None: the working directory."""
    _named: frozenset[str] | None = None
    """Which of the settings that lead to files (`_names_in`) a person named, and not a file that was found; None: what is
    set."""

    @field_validator("servers")
    @classmethod
    def _named_servers(cls, servers: dict[str, ServerSettings]) -> dict[str, ServerSettings]:
        for name in servers:
            if not NAME.match(name):
                raise ValueError(f"{name[:80]!r} can't be a server's name: a letter, then up to 63 letters, digits, _ and -")
        return servers

    @field_validator("redis_url", "opa_url")
    @classmethod
    def _known_server(cls, url: str | None, info: ValidationInfo) -> str | None:
        schemes = ("redis://", "rediss://", "unix://") if info.field_name == "redis_url" else ("http://", "https://")
        if url is not None and not url.startswith(schemes):
            raise ValueError(f"must begin with {' or '.join(schemes)}")
        return url

    @classmethod
    def anchor_texts(cls, values: dict[str, Any], base: Path | None) -> None:
        """The file of an SQLite database."""
        url = values.get("database_url")
        if isinstance(url, str) and url.startswith(SQLITE):
            values["database_url"] = SQLITE + anchored_path(url.removeprefix(SQLITE), base)

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("sqlite:///", "memory://", "postgresql://", "postgres://")):
            raise ValueError("must begin with sqlite:///, memory:// or postgresql://")
        return url

    def with_overrides(self, overrides: Mapping[str, Any]) -> "Settings":
        """These settings, with some of them changed; of a group, only what is named."""
        changed = _validated([Layer("the settings", self.model_dump(exclude_unset=True)), Layer(ARGUMENTS, overrides)])
        changed._read_from, changed._read_digest, changed._project = self._read_from, self._read_digest, self._project
        changed._named = self.named | _names_in(overrides)
        return changed

    @property
    def named(self) -> frozenset[str]:
        """Which of the settings that lead to files (`_names_in`) a person named, in a file, a variable or in code."""
        return self._named if self._named is not None else _names_in(self.model_dump(exclude_unset=True))

    @property
    def found_file(self) -> tuple[Path, str] | None:
        """The settings file and the digest of what was read from it, if it was found in the project folder."""
        return None if self._read_from is None or self._read_digest is None else (self._read_from, self._read_digest)

    @property
    def read_from(self) -> Path | None:
        """The settings file; None if there is none."""
        return self._read_from

    @property
    def project(self) -> Path:
        """The folder in which settings and data were looked for, without links."""
        return self._project or working_directory()

    @property
    def database(self) -> str:
        return self.database_url or f"{SQLITE}{self.home / 'toolgate.db'}"

    @property
    def in_memory(self) -> bool:
        return self.database.startswith("memory://")

    @property
    def own_files(self) -> list[Path]:
        """Toolgate's own files, wherever they are: no tool may open them."""
        database = Path(self.database.removeprefix(SQLITE)) if self.database.startswith(SQLITE) else None
        return [file for file in (self.secrets.file, self.audit_head_file, self.audit.place, database) if file is not None]

    @property
    def deciding_files(self) -> list[Path]:
        """What decides what tools may do, and what tools there are: no tool may change it."""
        files = (self.policy.file, *self.policy.observe, self._read_from, self.home / "tools", *self.python_folders)
        return [file for file in files if file is not None]

    @property
    def python_folders(self) -> tuple[Path, ...]:
        return self.python_tools if self.python_tools is not None else (self.home / "tools",)


class Layer(NamedTuple):
    """Values that were read in one place."""

    origin: str
    values: Mapping[str, Any]
    content: bytes | None = None
    """Of the file, if it is one."""


ARGUMENTS = "the arguments"


def load_settings(
    path: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    untrusted: bool = False,
) -> Settings:
    """Reads the settings: file (given, or toolgate.yaml of the project folder), environment, overrides. A file that is found
    is read only if a person trusted it; `untrusted`: also if not, to show what it would do. Raises SettingsError."""
    environment = os.environ if environment is None else environment
    given = path or environment.get("TOOLGATE_SETTINGS")
    project = discover().folder
    file = Path(given) if given else project / FILE
    content = _content(file) if given else _found_content(file, untrusted=untrusted)
    if given and content is None:
        raise SettingsError(f"The settings file {file} does not exist.")
    from_file = Layer(str(file), {} if content is None else _read_file(file, content), content)
    from_variables = Layer("the environment", anchored(_read_environment(environment), Settings, None))
    from_code = Layer(ARGUMENTS, dict(overrides or {}))
    layers = [from_file, from_variables, from_code]
    if project != working_directory() and not any("home" in layer.values for layer in layers):
        layers.append(Layer(str(project), {"home": project / DATA}))
    settings = _validated(layers)
    settings._read_from = file if file.is_file() else None
    settings._read_digest = None if given or content is None else digest(content)
    settings._project = project
    named = (from_file, from_variables, from_code) if given else (from_variables, from_code)
    settings._named = frozenset().union(*(_names_in(layer.values) for layer in named))
    return settings


def _validated(layers: Sequence[Layer]) -> Settings:
    values: dict[str, Any] = {}
    for layer in layers:
        _merge(values, layer.values)
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise _explain(error, layers) from None  # its own words quote the value, which may be a password


def _names_in(layer: Mapping[str, Any]) -> frozenset[str]:
    """Which of the settings that lead to files which Toolgate obeys a layer says."""
    policy = layer.get("policy")
    says = {name: getattr(policy, name) for name in ("file", "observe")} if isinstance(policy, Policy) else policy or {}
    policies = (f"policy.{name}" for name in ("file", "observe") if isinstance(says, Mapping) and says.get(name))
    return frozenset((*(name for name in ("home", "python_tools", "database_url") if layer.get(name)), *policies))


def _found_content(file: Path, *, untrusted: bool) -> bytes | None:
    """The settings file of the project folder, if there is one and a person trusted it as it is. What nobody trusted is not
    even parsed. Raises Untrusted."""
    folder = file.parent
    try:
        content = read_regular(file)
    except FileNotFoundError:
        if file.is_symlink():  # it would make its folder a project, away from the settings above, with nothing to be trusted
            raise SettingsError(f"The settings file {file} can't be read: it is a link to nothing.") from None
        content = None
    except OSError as error:
        raise SettingsError(f"The settings file {file} can't be read: {error.strerror or error}.") from error
    if untrusted or is_named(folder, os.environ):
        return content
    agreed = Records(os.environ).of(folder)
    known = agreed.files.get(FILE) if agreed is not None else None
    if known != (None if content is None else digest(content)):
        happened = "is not trusted" if known is None else "is gone" if content is None else "changed since it was trusted"
        raise Untrusted(
            f"The settings file {FILE} in {folder} {happened}, so Toolgate does nothing here.",
            suggestion=ADVICE,
        )
    return content


def _content(file: Path) -> bytes | None:
    """A settings file that a person named."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"The settings file {file} can't be read: {error.strerror or error}.") from error


def _read_file(file: Path, content: bytes) -> dict[str, Any]:
    """What a settings file says, with its paths taken from the folder that it is in."""
    read = parse(file, content)
    if "maxExecutionTime" in read:
        read["max_execution_time"] = _seconds(read.pop("maxExecutionTime"))
    try:
        values = _document_e(_snake(read))
    except RecursionError:
        raise SettingsError(f"The settings file {file} has a value that holds itself.") from None
    whole: dict[str, Any] = anchored(without_empty_groups(values, Settings), Settings, base_of(file))
    return whole


def _snake(value: Any, *, by_name: bool = False) -> Any:
    """Names in snake_case, except where they are names of tools and the like."""
    if not isinstance(value, dict):
        return value
    names = {str(key): _snake(part, by_name=not by_name and key in BY_NAME) for key, part in value.items()}
    return names if by_name else {snake(key): part for key, part in names.items()}


def _document_e(values: dict[str, Any]) -> dict[str, Any]:
    """Document E keeps some settings among the tools, and counts time in milliseconds."""
    tools = values.get("tools")
    if not isinstance(tools, dict):
        return values
    renamed = {"showTokenCosts": "show_token_costs", "autoLoadCustomTools": "auto_load_custom_tools"}
    for theirs, ours in (*renamed.items(), *((name, name) for name in renamed.values())):
        if theirs in tools:
            values.setdefault(ours, tools.pop(theirs))
    for theirs in ("maxExecutionTime", "max_execution_time"):
        if theirs in tools:
            values.setdefault("max_execution_time", _seconds(tools.pop(theirs)))
    return values


def _seconds(milliseconds: Any) -> Any:
    return milliseconds / 1000 if type(milliseconds) in (int, float) else milliseconds


def _read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX) or name.startswith(SECRET_PREFIX) or name in NOT_SETTINGS:
            continue
        path = name.removeprefix(PREFIX).lower().split("__")
        if path[0] not in Settings.model_fields:
            continue  # TOOLGATE_ is also the prefix of what later parts and other programs read
        inner = read
        for part in path[:-1]:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                raise SettingsError(f"{name} is set, and so is a variable for all of {part!r}: one of them has to go.")
        inner[path[-1]] = _parse(text)
    return read


def _parse(text: str) -> Any:
    if text[:1] in "[{" and text:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
    return text


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, Mapping):
            if not isinstance(into.get(key), dict):
                into[key] = {}  # not the layer's own, which says later where a value was read
            _merge(into[key], value)
        else:
            into[key] = value


def _explain(error: ValidationError, layers: Sequence[Layer]) -> SettingsError:
    first = error.errors(include_url=False)[0]
    path: tuple[Name, ...] = first["loc"]
    name = ".".join(str(part) for part in path)
    origin = _origin(path, layers)
    if first["type"] == "extra_forbidden":
        near = _nearest(path)
        return SettingsError(
            f"There is no setting {name!r} (read from {origin}).",
            suggestion=f"Did you mean {near!r}?" if near else "See docs/reference/settings.md.",
        )
    return SettingsError(
        f"The setting {name!r} (read from {origin}) is wrong: {first['msg'].removeprefix('Value error, ')}."
    )


def _origin(path: Sequence[Name], layers: Sequence[Layer]) -> str:
    """Where a setting was read: the last layer that says it, and in a file the line."""
    layer = max(reversed(layers), key=lambda one: _depth(one.values, path))
    line = None if layer.content is None else line_of(layer.content, path) or line_of(layer.content, ("tools", *path))
    return layer.origin if line is None else f"{layer.origin}, line {line}"


def _depth(values: Any, path: Sequence[Name]) -> int:
    """How much of a path is in some values."""
    for depth, step in enumerate(path):
        try:
            values = values[step]
        except (LookupError, TypeError):
            return depth
    return len(path)


def _nearest(path: Sequence[Name]) -> str | None:
    """The setting that a name which does not exist may stand for: one of its group, or of the same name elsewhere."""
    name, group = str(path[-1]), group_at(Settings, path[:-1])
    near = difflib.get_close_matches(name, group.model_fields if group is not None else (), 1)
    if near:
        return near[0]
    groups = {one: group_at(field.annotation, ()) for one, field in Settings.model_fields.items()}
    elsewhere = [f"{one}.{name}" for one, found in groups.items() if found is not None and name in found.model_fields]
    if name in Settings.model_fields:
        return name
    return elsewhere[0] if len(elsewhere) == 1 else None
