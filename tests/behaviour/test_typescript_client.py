"""A TypeScript client that openapi-typescript generates from the OpenAPI document compiles strictly, and calls a server."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.npm import Npm, packages
from tests.serving import Site, serving
from toolgate import Actor
from toolgate.testing import memory_app

PROGRAM = """
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

const [url, key] = process.argv.slice(2) as [string, string];
const client = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });
const { data: page } = await client.GET("/v1/tools", { params: { query: { limit: 500 } } });
const tools: string[] = (page?.items ?? []).map((tool) => tool.name);
const { data: called } = await client.POST("/v1/tools/{name}/invoke", {
  params: { path: { name: "echo" } },
  body: { arguments: { text: "from TypeScript" } },
});
const { error } = await client.GET("/v1/jobs/{id}", { params: { path: { id: "nothing" } } });
const refused: components["schemas"]["Problem"] | undefined = error;
const { data: said } = await client.POST("/v1/feedback", { body: { tool_name: "echo", success: true } });
const { data: learned } = await client.GET("/v1/learning", { params: { query: { days: 7 } } });
const learnt: number | undefined = learned?.tools.length;
console.log(JSON.stringify([tools.includes("echo"), called?.output, refused?.code, said?.is_weighed, typeof learnt]));

// @ts-expect-error there is no such route
await client.GET("/v1/nothing");
// @ts-expect-error a field that must be there is missing
() => client.POST("/v1/feedback", { body: { tool_name: "echo" } });
// @ts-expect-error a verdict is none of those that there are
() => client.POST("/v1/approvals/{id}", { params: { path: { id: "x" } }, body: { verdict: "perhaps" } });
"""
OPTIONS = {
    "strict": True, "exactOptionalPropertyTypes": True, "noUncheckedIndexedAccess": True, "target": "es2022",
    "module": "nodenext", "types": [], "lib": ["es2022", "dom"], "outDir": "made",
}  # fmt: skip
NODE = "declare const process: { argv: string[] };\n"
"""All that the program takes from Node, whose types are no part of what is tested."""


async def run(npm: Npm, folder: Path, *command: str) -> str:
    """What a program says that must succeed."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=npm.environment(folder), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(240):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()[-4_000:]
    return said.decode()


async def generate(npm: Npm, folder: Path, site: Site) -> None:
    """Writes the client, the program that uses it, and how they are compiled."""
    answer = await site("GET", "/v1/openapi.json")
    (folder / "openapi.json").write_bytes(answer.body)
    (folder / "package.json").write_text(json.dumps({"type": "module"}))
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": OPTIONS, "files": ["program.ts", "node.d.ts"]}))
    (folder / "program.ts").write_text(PROGRAM)
    (folder / "node.d.ts").write_text(NODE)
    (folder / "node_modules").symlink_to(npm.folder / "node_modules")
    await run(npm, folder, *npm.command("openapi-typescript"), "openapi.json", "--output", "api.d.ts")


@pytest.mark.requirement("DOOR-1", "DOOR-5")
@pytest.mark.matrix("it installs and runs a compiler")
@pytest.mark.timeout(1_200)
async def test_a_generated_client_compiles_strictly_and_calls_tools(tmp_path: Path) -> None:
    npm = packages()
    async with memory_app(home=tmp_path / "home") as app, serving(app) as site:
        await site.with_key(app, Actor("acme", user="ann"), roles=["caller", "viewer"])
        await generate(npm, tmp_path, site)
        await run(npm, tmp_path, *npm.command("typescript", "tsc"))
        assert site.key is not None
        said = await run(npm, tmp_path, str(npm.node), "made/program.js", f"http://{site.host}", site.key)
        assert json.loads(said) == [True, {"text": "from TypeScript"}, "NOT_FOUND", False, "number"]
        await app.keys.close()
