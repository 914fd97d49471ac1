"""Servers that Toolgate knows by name: document A's four, under the names that they have today, and a few more.

A preset is settings like those that a person writes: what they write comes on top of it. Versions are exact, because what is
started should be what was looked at. Tools get document A's names, permissions and costs. Limits are the usual ones (30 s,
256 MB, 1 MB): started and listed in the jail, each of these takes between 58 and 108 MB. One that needs more says why.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from toolgate.mcp.entries import PresetTool
from toolgate.model import UnitCost
from toolgate.screening.queries import PGOPTIONS


class RequiredSecret(NamedTuple):
    """Something that only the person who adds a server has."""

    secret: str
    """Under which name it is kept."""
    what: str
    url: str | None = None
    """Where to get it."""


class Preset(NamedTuple):
    """A server that is known."""

    name: str
    about: str
    settings: dict[str, Any]
    needs: tuple[RequiredSecret, ...] = ()
    folders: Literal["arguments", "calls"] | None = None
    """The place in its arguments for the folders that it works on, those of `read` and `write`; None: it works on none."""
    extras: Mapping[str, PresetTool] = {}
    advice: str | None = None
    reaches: str | None = None
    """The secret that holds the address of what it works on."""


READ, CHANGE = {"tier": "read_only"}, {"tier": "write"}
FILES_READ = (
    "read_file", "read_text_file", "read_media_file", "read_multiple_files", "list_directory", "list_directory_with_sizes",
    "directory_tree", "search_files", "get_file_info", "list_allowed_directories",
)  # fmt: skip
FILES_CHANGE = ("write_file", "edit_file", "create_directory", "move_file")
GIT_READ = ("git_status", "git_diff_unstaged", "git_diff_staged", "git_diff", "git_log", "git_show", "git_branch")
GIT_CHANGE = ("git_add", "git_commit", "git_create_branch", "git_checkout", "git_reset")
SEARCH = {"tier": "external_api", "cost": Decimal("0.01")}
SEARCHES = ("local_search", "place_search", "video_search", "image_search", "news_search", "summarizer", "llm_context")
"""What Brave's server has besides brave_web_search."""


def _all() -> Iterator[Preset]:
    yield Preset(
        "brave-search",
        "Search the web (web_search).",
        {
            "npm": "@brave/brave-search-mcp-server@2.1.4",
            "command": ["--transport", "stdio"],
            "env": {"BRAVE_API_KEY": "{{secret:BRAVE_API_KEY}}"},
            "domains": ["api.search.brave.com"],
            "tier": "external_api",
            "requires_permission": "tool:web_search",
            "tools": {
                "brave_web_search": {**SEARCH, "name": "web_search"},
                **{f"brave_{kind}": SEARCH for kind in SEARCHES},
            },
        },
        (
            RequiredSecret(
                "BRAVE_API_KEY", "a key of the Brave Search API", "https://api-dashboard.search.brave.com/app/keys"
            ),
        ),
        extras={
            "brave_web_search": PresetTool(UnitCost(unit="record", price=Decimal("0.001"), field="count"), "search"),
        },
    )
    yield Preset(
        "filesystem",
        "Read and change files in the folders that it is given with --read and --write.",
        {
            "npm": "@modelcontextprotocol/server-filesystem@2026.8.31",
            "network": "none",
            "output_bytes": 16_777_216,  # a picture of 12 MB comes as base64 in one message
            "blocked": ["/etc", "/var", "/root", ".env", "credentials"],
            "requires_permission": "tool:filesystem",
            "tools": dict.fromkeys(FILES_READ, READ) | dict.fromkeys(FILES_CHANGE, CHANGE),
        },
        folders="arguments",
    )
    yield Preset(
        "postgres",
        "Read-only SQL queries of a PostgreSQL database (query_database).",
        {
            "npm": "@modelcontextprotocol/server-postgres@0.6.2",
            "command": ["{{secret:POSTGRES_MCP_URL}}"],
            "env": {"PGOPTIONS": PGOPTIONS},
            "requires_permission": "tool:database_query",
            "tools": {
                "query": {
                    "name": "query_database",
                    "tier": "external_api",
                    "cost": Decimal("0.001"),
                    "timeout": 30,
                },
            },
        },
        (RequiredSecret("POSTGRES_MCP_URL", "the address of the database: postgresql://user:password@host:5432/database"),),
        extras={"query": PresetTool(category="database", queries=("sql",))},
        advice="Let the database's user be one that may only read. In settings, name its host: `domains: [host:5432]`.",
        reaches="POSTGRES_MCP_URL",
    )
    yield Preset(
        "github",
        "Repositories, issues and pull requests of GitHub.",
        {
            "npm": "@modelcontextprotocol/server-github@2025.4.8",
            "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "{{secret:GITHUB_TOKEN}}"},
            "domains": ["api.github.com"],
            "output_bytes": 4_194_304,  # GitHub gives files of up to 1 MB, as base64 inside of JSON inside of JSON
            "tier": "external_api",
            "requires_permission": "tool:github",
        },
        (RequiredSecret("GITHUB_TOKEN", "a personal access token", "https://github.com/settings/tokens"),),
    )
    yield Preset(
        "fetch",
        "Fetch a page of the web as Markdown. Name the hosts that it may reach with --domain.",
        {"pypi": "mcp-server-fetch==2026.10.24", "tier": "external_api"},
        extras={"fetch": PresetTool(category="api")},
    )
    yield Preset(
        "git",
        "Look at and work on git repositories in the folders that it is given with --read and --write.",
        {
            "pypi": "mcp-server-git==2026.10.19",
            "network": "none",
            "tools": dict.fromkeys(GIT_READ, READ) | dict.fromkeys(GIT_CHANGE, CHANGE),
        },
        folders="calls",
    )
    yield Preset(
        "time",
        "The time here and elsewhere.",
        {
            "pypi": "mcp-server-time==2026.10.19",
            "network": "none",
            "tools": dict.fromkeys(("get_current_time", "convert_time"), READ),
        },
    )
    yield Preset(
        "memory",
        "A graph of what should be remembered.",
        {
            "npm": "@modelcontextprotocol/server-memory@2026.8.31",
            "network": "none",
            "tools": dict.fromkeys(("read_graph", "search_nodes", "open_nodes"), READ),
        },
        advice="It keeps its graph in the file that --env MEMORY_FILE_PATH=PATH names, in a folder given with --write.",
    )
    yield Preset(
        "everything",
        "The server that shows all that MCP has, for trying things out.",
        {"npm": "@modelcontextprotocol/server-everything@2026.8.31", "network": "none"},
    )


PRESETS: dict[str, Preset] = {preset.name: preset for preset in _all()}
