"""`toolgate init`: makes the working directory a project, with a settings file in which every setting is a comment."""

import errno
import os
from pathlib import Path
from typing import NamedTuple

import typer

from toolgate.cli.context import Usage, global_options
from toolgate.cli.output import Unwritable, as_json, emit, note, say
from toolgate.discovery import SETTINGS_FILE, discover
from toolgate.errors import SettingsError
from toolgate.project import Project
from toolgate.settings import Settings, load_settings
from toolgate.store.data_folder import make_home
from toolgate.trust import working_directory

NEXT = (
    ("toolgate doctor", "checks that everything works"),
    ("toolgate call echo text=hello", "calls a tool"),
    ("toolgate tools new NAME", "writes a tool of your own"),
)


class CreatedProject(NamedTuple):
    """The project that was made, and what stands in its way."""

    folder: Path
    data: Path | None
    """The data folder, if it is ready."""
    trusted: bool
    untrusted: list[str]
    """The files that were there already and nobody has trusted."""
    before: Path | None
    """The project that commands here used until now."""


def init(ctx: typer.Context) -> int:
    """Make this folder a project by writing toolgate.yaml. In it, the settings that people change first are comments."""
    place = global_options(ctx)
    if place.settings is not None or place.home is not None:
        raise Usage("`toolgate init` writes to the working directory: it takes neither --settings nor --home.")
    made = _make(working_directory())
    if as_json():
        data = None if made.data is None else str(made.data)
        emit({"folder": str(made.folder), "settings": str(made.folder / SETTINGS_FILE), "data": data,
              "trusted": made.trusted, "untrusted": made.untrusted})  # fmt: skip
    else:
        _tell(made)
    return 0


def _make(folder: Path) -> CreatedProject:
    load_settings(os.devnull)  # a wrong variable is told before anything is written
    before = discover().folder
    _write(folder / SETTINGS_FILE)
    settings = load_settings(untrusted=True)
    project = Project(settings)
    trusted = True
    try:
        project.add(folder / SETTINGS_FILE, TEMPLATE.encode())
        # Only the file that this command wrote: what came with a clone is for the person to look at.
        changes = [] if project.is_named else project.changes()
        untrusted = [change.found.name for change in changes if change.state in ("new", "changed")]
    except SettingsError as error:
        note((str(error), "yellow"))
        trusted, untrusted = False, []
    data = _make_data(settings, project) if trusted and not untrusted else None
    return CreatedProject(folder, data, trusted, untrusted, None if before == folder else before)


def _write(file: Path) -> None:
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(TEMPLATE)
    except FileExistsError:
        there = FileExistsError(errno.EEXIST, "it exists already and was not changed")
        raise Unwritable(file, there) from None
    except OSError as error:
        raise Unwritable(file, error) from error


def _make_data(settings: Settings, project: Project) -> Path | None:
    """The data folder, as the first call would make it."""
    if settings.in_memory:
        return None
    make_home(settings.home)
    project.adopt()
    return settings.home.absolute()


def _tell(made: CreatedProject) -> None:
    say(("✓ ", "green"), f"{made.folder / SETTINGS_FILE} is written. Every setting in it is a comment: the defaults hold.")
    if made.data is not None:
        say(("✓ ", "green"), f"{made.data} is ready for data. Git ignores it.")
    if made.trusted:
        say(("✓ ", "green"), f"{SETTINGS_FILE} is trusted as it is now. After a change to it, run `toolgate trust`.")
    if made.untrusted:
        they, them = ("it was", "it") if len(made.untrusted) == 1 else ("they were", "them")
        say(("! ", "yellow"), f"Not trusted, because {they} here already: {', '.join(made.untrusted)}.")
        say(f"  Look at {them}, then run `toolgate trust`. Until then Toolgate does nothing here.")
    if made.before is not None:
        say(
            ("! ", "yellow"),
            f"Commands here used the project {made.before} until now, with its data. This is one of its own.",
        )
    if os.environ.get("TOOLGATE_SETTINGS"):
        say(("! ", "yellow"), f"TOOLGATE_SETTINGS names another settings file: {SETTINGS_FILE} is not read while it is set.")
    if not made.untrusted:
        say("\nNext:", lines=True)
        for command, does in NEXT:
            say(f"  {command:<31}", (does, "dim"))


# -- the settings file: those that people change first, one to a line, all of them comments

TEMPLATE = """\
# Settings of Toolgate for this folder and those below it. Each setting is a comment: remove its # to set it,
# then run `toolgate trust`, because settings are obeyed only as you last saw them.
# Relative paths lead from this file. All settings, and variables for them: docs/reference/settings.md

# Where data is kept: database, audit log, custom tools. Default: .toolgate
#home: .toolgate

# The database. Default: SQLite in home. For example PostgreSQL:
#database_url: postgresql://toolgate:password@localhost/toolgate

# Shares limits, circuit breakers and caches between processes. Default: none. For example:
#redis_url: redis://localhost:6379/0

# Folders of Python files with tools. Default: tools in home. For example:
#python_tools: [tools]

# Seconds that a tool without a timeout of its own may take. Default: 60
#max_execution_time: 60

# Tools whose tier is raised, and with it what a call needs. Default: none. For example:
#tier_overrides: {write_file: execute}

# More names of keys whose values are masked in records and outputs. Default: none. For example:
#sensitive_keys: [iban, badge_no]

# How often calls may be made. Default: as tools say. For example:
#rate_limits: [{by: [user], per_minute: 60}]

# The time zone of callers who name none. Default: UTC. For example:
#timezone: Europe/Berlin

# Count calls for Prometheus (toolgate[telemetry]). Default: false
#metrics: false

tools:
  # Tools that nobody may call, by name. Default: all are enabled. For example:
  #docker_run: {enabled: false}

limits:
  # Characters of one text in an output; what is cut can be fetched for a while. Default: 10000
  #output_string: 10000
  # Items of one list in an output. Default: 100
  #output_items: 100
  # Calls of one tenant that may run at once. Default: without limit. For example:
  #tenant_concurrency: 20

approvals:
  # Seconds until an approval that is not given, or not used, is void. Default: 3600
  #expire_seconds: 3600
  # Whether people approve their own calls: never, local (the person at this machine) or always. Default: local
  #asker_may_answer: local
  # Who must agree, by tenant and tool. Default: anybody who may. For example:
  #rules: [{tool: deploy, approvers: [ann, bob], quorum: 2}]

budgets:
  # Dollars that each user may spend a day on tools of tier external_api. Default: 10
  #external_api_daily: 10
  # Where days and months begin. Default: UTC
  #timezone: UTC

policy:
  # A Rego file of package soma.policy that decides who may call what. Default: the shipped one. For example:
  #file: policy.rego

commands:
  # Beginnings of commands that execute_command may run. Default: six, such as npm run. For example:
  #allow: [git status, npm run, make test]

paths:
  # More files that no tool may open. Default: those that are known to hold secrets. For example:
  #sensitive: ['*.sqlite', /srv/private/*]

secrets:
  # Which tools a secret may be given to, and for which tenant. Default: none. For example:
  #use: {API_TOKEN: [{tool: rest_api_call, tenant: default, hosts: [api.example.com]}]}

model:
  # The language model of deep_reasoning; its key is the secret MODEL_API_KEY. Default: none. For example:
  #name: gpt-5-mini

network:
  # Hosts on private networks that http_fetch and rest_api_call may reach, with their port. Default: none. For example:
  #allow: ['wiki.internal:443']

sandbox:
  # What holds code that nobody vouches for: auto, bubblewrap, namespaces, landlock or docker. Default: auto
  #backend: auto
  # Seconds that one run may take. Default: 30
  #seconds: 30
  # Megabytes of memory for one run. Default: 256
  #memory_mb: 256

mcp:
  # Whether MCP servers are used. Default: true
  #enabled: true

servers:
  # MCP servers whose tools are offered once they are accepted. Default: none. For example:
  #files: {preset: filesystem, read: [docs]}

serve:
  # The address that `toolgate serve` listens on. Default: 127.0.0.1, this machine alone
  #host: 127.0.0.1
  # Its port. Default: 8700
  #port: 8700
"""
