"""The program that the official suite runs to look at us as a client: Toolgate's own engine, as a call would use it.

The suite gives the address of a server as the last argument, and in the environment the scenario and what belongs to it. For
nearly all scenarios the same is done: say what the server has, use all of it once, and log in where that is wanted, with a
"browser" that follows where it is sent and comes back to the port that a login listens on.
"""

import asyncio
import json
import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from toolgate.errors import CallError
from toolgate.mcp.client.errors import InputRequired
from toolgate.mcp.client.oauth.login import LoginFailed, login
from toolgate.mcp.client.servers import UpstreamServers
from toolgate.sandbox.engine import Sandbox
from toolgate.settings import OAuthSettings, ServerSettings

NAME = "suite"
LOGINS = 3
"""How often a login is tried for one thing, before it is given up."""
DOCUMENT = "https://conformance-test.local/client-metadata.json"
ECHO = "json_schema_echo"
CALLS = {"add_numbers": {"a": 5, "b": 3}}
SAMPLES: dict[str, Any] = {"string": "text", "integer": 3, "number": 1.5, "boolean": True, "array": [], "object": {}}


class Person:
    """Whoever calls: can be asked, and takes what is proposed."""

    capabilities: Mapping[str, Any] = {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {},
        "roots": {"listChanged": True},
    }
    input_responses: Mapping[str, Any] | None = None
    request_state: str | None = None
    log_level: str | None = None
    can_come_again = False

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Not of interest here."""

    async def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Not of interest here."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer with the defaults that the question has."""
        if method == "sampling/createMessage":
            return {"role": "assistant", "model": "none", "content": {"type": "text", "text": "an answer"}}
        if method == "roots/list":
            return {"roots": [{"uri": "file:///workspace", "name": "workspace"}]}
        wanted = params.get("requestedSchema", {}).get("properties", {})
        content = {name: _sample(schema) for name, schema in wanted.items()}
        return {"action": "accept", "content": content}

    def remind(self, state: str | None, requests: Mapping[str, Any]) -> None:
        """Is not told to come again."""

    def goes_on(self) -> None:
        """Waits all the same."""


class Browser:
    """Follows a login's redirects to the end, as a browser does whose person says yes."""

    def __init__(self) -> None:
        self._going: set[asyncio.Task[None]] = set()

    def __call__(self, url: str) -> None:
        task = asyncio.get_running_loop().create_task(asyncio.to_thread(self._follow, url))
        self._going.add(task)
        task.add_done_callback(self._going.discard)

    def _follow(self, url: str) -> None:
        with suppress(urllib.error.HTTPError), urllib.request.urlopen(url, timeout=20) as answer:
            answer.read()


def _sample(schema: Mapping[str, Any]) -> Any:
    """A value that fits a schema, roughly: its default, its first choice, or one of its type."""
    if "default" in schema:
        return schema["default"]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    return SAMPLES.get(kind[0] if isinstance(kind, list) else str(kind), "text")


def _arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _sample(schema.get("properties", {}).get(name, {})) for name in schema.get("required", ())}


class Visit:
    """One visit to the suite's server."""

    def __init__(self, servers: UpstreamServers, settings: ServerSettings, secrets: dict[str, str]) -> None:
        self._servers, self._settings, self._secrets = servers, settings, secrets
        self._logins = 0

    async def all(self, calls: list[Mapping[str, Any]] | None) -> None:
        """Use everything that the server has."""
        tools = await self._logged_in(lambda: self._servers[NAME].listed("tools"))
        if calls is None:
            calls = [{"name": tool["name"], "arguments": _call_of(tool, tools)} for tool in tools]
        for call in calls:
            await self._ask("tools/call", call)
        has = (await self._servers[NAME].about()).capabilities
        if "resources" in has:
            for resource in await self._servers[NAME].listed("resources"):
                await self._ask("resources/read", {"uri": resource["uri"]})
        if "prompts" in has:
            for prompt in await self._servers[NAME].listed("prompts"):
                given = {one["name"]: "text" for one in prompt.get("arguments") or ()}
                await self._ask("prompts/get", {"name": prompt["name"], "arguments": given})

    async def _ask(self, method: str, params: Mapping[str, Any]) -> None:
        person, given = Person(), dict(params)
        for _ in range(10):
            try:
                answer = await self._logged_in(partial(self._servers[NAME].request, method, given, caller=person))
            except InputRequired as more:
                given = dict(params)
                if more.requests:
                    answers = {
                        name: await person.ask(one["method"], one.get("params", {})) for name, one in more.requests.items()
                    }
                    given["inputResponses"] = answers
                if more.state is not None:
                    given["requestState"] = more.state
            except CallError as error:
                _say(f"{method} {params.get('name', '')}: {error}")
                return
            else:
                _say(f"{method} {params.get('name', '')}: {str(answer)[:200]}")
                return

    async def _logged_in(self, ask: Any) -> Any:
        while True:
            try:
                return await ask()
            except CallError as error:
                if error.code != "MISSING_AUTH" or self._settings.oauth is None or self._logins == LOGINS:
                    raise
                _say(f"a login is wanted: {error}")
                self._logins += 1
                try:
                    await self._log_in()
                except LoginFailed as failed:  # the person is told that the server has moved, and accepts it
                    if failed.other_issuer is None:
                        raise
                    await self._log_in(failed.other_issuer)
                with suppress(CallError):  # what is wrong still, the next try shows
                    await self._servers[NAME].restart()

    async def _log_in(self, accept_issuer: str | None = None) -> None:
        read, keep = self._secrets.get, self._secrets.__setitem__
        await login(
            NAME, self._settings, read, keep, Browser(),
            tokens=read, browser=False, wait_seconds=30, accept_issuer=accept_issuer,
        )  # fmt: skip


def _call_of(tool: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if tool["name"] == ECHO:  # wants to have another tool's schema back, as it came
        return {"schema": next(one["inputSchema"] for one in tools if one["name"] != ECHO)}
    return CALLS.get(tool["name"]) or _arguments(tool.get("inputSchema", {}))


def _say(words: str) -> None:
    sys.stderr.write(f"{words}\n")


def _oauth(context: Mapping[str, Any], scenario: str) -> OAuthSettings | None:
    if not scenario.startswith("auth/"):
        return None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return OAuthSettings(
        grant="client_credentials" if "client-credentials" in scenario else "authorization_code",
        client_id=context.get("client_id"),
        client_secret="{{secret:CLIENT}}" if context.get("client_secret") else None,
        client_metadata_url=DOCUMENT,
        redirect_port=port,
    )


async def main(url: str) -> int:
    """Visit the server; 0 if all went as it should."""
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    settings = ServerSettings(url=url, oauth=_oauth(context, scenario), start_seconds=20, restarts=0)
    secrets = {"CLIENT": context["client_secret"]} if context.get("client_secret") else {}
    sandbox = Sandbox()
    servers = UpstreamServers(secrets=secrets.get, sandbox=sandbox, home=None, keep=secrets.__setitem__, tokens=secrets.get)
    servers.set(NAME, settings)
    try:
        await Visit(servers, settings, secrets).all(context.get("toolCalls"))
    except (CallError, LoginFailed) as error:
        _say(f"{type(error).__name__}: {error}")
        return 1
    finally:
        await servers.close()
        await sandbox.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
