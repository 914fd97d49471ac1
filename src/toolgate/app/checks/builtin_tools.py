"""The checks of what built-in tools need from outside: a search engine, keys of services, programs. Nothing is asked over
the network, and none of it is a fault: a tool that lacks something refuses its calls and says what."""

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from toolgate.app.app import App
from toolgate.app.checks import Check
from toolgate.errors import StoreError
from toolgate.model import LOCAL
from toolgate.sandbox.runtimes.shell import find_program

PROGRAMS = {"git": ("git", "git_commit"), "node": ("npm_install",), "npm": ("npm_install",)}
"""Programs that tools run in the sandbox, and whose they are."""
MCP_SEARCH = "web_search"


async def builtin_checks(app: App) -> AsyncIterator[Check]:
    yield _search(app)
    for check in _services(app):
        yield check
    yield _programs(app)


def _search(app: App) -> Check:
    url = app.settings.search.searxng_url
    if url is not None:
        return Check("search", "ok", f"search_engine asks the SearXNG at {urlsplit(url).netloc.rpartition('@')[2]}")
    if app.parts.catalog.find(MCP_SEARCH, LOCAL.tenant) is not None:
        return Check("search", "ok", f"search_engine asks the tool {MCP_SEARCH}")
    advice = (
        "The setting search.searxng_url names a SearXNG; `toolgate servers add brave-search` adds another search engine."
    )
    return Check("search", "unused", "not set up: search_engine is refused", advice)


def _services(app: App) -> list[Check]:
    """The tools whose service has a key, and those whose has none."""
    ready, lacking = [], []
    for entry in app.parts.catalog.entries():
        auth = entry.tool.requires_auth
        if entry.tool.source != "builtin" or auth is None or not app.parts.catalog.is_on(entry.name):
            continue
        try:
            found = app.parts.secrets.find(auth.config_key, LOCAL)
        except StoreError:  # the line of the credentials says so
            found = None
        if found:
            ready.append(entry.name)
        else:
            lacking.append(f"{entry.name} ({auth.config_key})")
    checks = [Check("services", "ok", f"with a key: {', '.join(ready)}")] if ready else []
    if lacking:
        words = f"no key is set for {', '.join(lacking)}"
        checks.append(Check("services", "unused", words, "`toolgate secrets set NAME` sets one."))
    return checks


def _programs(app: App) -> Check:
    absent = [name for name in PROGRAMS if find_program(name, app.settings.sandbox.programs) is None]
    if not absent:
        return Check("programs", "ok", f"found: {', '.join(PROGRAMS)}")
    tools = dict.fromkeys(tool for name in absent for tool in PROGRAMS[name])
    words = f"not found: {', '.join(absent)}; {', '.join(tools)} cannot be used"
    return Check("programs", "unused", words, "Install them, or name their folder in the setting sandbox.programs.")
