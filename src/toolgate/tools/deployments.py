"""`vercel_deploy` and `netlify_deploy`: a folder of the working directory becomes a site."""

import asyncio
import re
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from toolgate.errors import InvalidInput
from toolgate.model import Auth, Capability, Cost, ErrorCase, Example
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tests_credential, tool
from toolgate.services import netlify, vercel
from toolgate.services.deployer import Deployer, Site
from toolgate.services.netlify import Netlify
from toolgate.services.service_api import is_accepted
from toolgate.services.vercel import Vercel
from toolgate.threads import to_thread
from toolgate.tools.call_folder import folder_of
from toolgate.tools.site_folder import MAX_SKIPPED_NAMES, read_site

DEPLOY_SECONDS = 300.0
CLOSING_SECONDS = 15.0
"""Left at the end of the time for the log and the answer."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}\Z")
MAX_VARIABLES = 100
MAX_VARIABLE_CHARS = 65_536
PROJECT = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}\Z")


class Deployed(TypedDict):
    """What became of the deployment. `skipped` are files that are never deployed: links, secrets."""

    deploymentId: str
    url: str
    status: Literal["ready", "building", "error"]
    buildLogs: str
    skipped: list[str]


_ERRORS = [
    ErrorCase("INVALID_INPUT", "the folder is missing, empty or too large, or the platform refuses it", "Correct it."),
    ErrorCase("MISSING_AUTH", "the platform does not accept the token", "Set another token."),
    ErrorCase("PERMISSION_DENIED", "the token may not deploy there", "Use a token of the owner."),
    ErrorCase("RATE_LIMITED", "the platform gets too many requests", "Wait for retry_after seconds."),
    ErrorCase("OUTCOME_UNKNOWN", "the deployment may have been made, and no clear answer came", "Look at the dashboard."),
]


async def _accepts_vercel(credential: str, ctx: InvokeContext) -> bool:
    return await is_accepted(ctx.get(Vercel).check(credential))


@tool(
    tier="external_api",
    category="deployment",
    target="vercel",
    timeout=DEPLOY_SECONDS,
    tags=["deploy"],
    requires_auth=Auth(type="bearer_token", config_key="VERCEL_TOKEN", setup_url=vercel.SETUP_URL),
    cost=Cost(model="subscription", billing_url="https://vercel.com/account/billing"),
    capabilities=[
        Capability(
            action="deploy",
            description="Deploy project to Vercel",
            requires_confirmation=True,
            estimated_time_ms=45_000,
        )
    ],
    errors=_ERRORS,
    examples=[Example(name="a preview of a folder", arguments={"projectPath": "src", "project": "docs-site"})],
)
@tests_credential(_accepts_vercel)
async def vercel_deploy(
    ctx: InvokeContext,
    projectPath: str,
    production: bool = False,
    envVars: dict[str, str] | None = None,
    project: str | None = None,
) -> Deployed:
    """Deploy a folder of the working directory to Vercel.

    Args:
        projectPath: The folder.
        production: Whether it goes live; without it, a preview.
        envVars: Environment variables of the deployment.
        project: Vercel's name of the project; without it, the folder's.
    """
    for name, value in (envVars or {}).items():
        if VARIABLE.match(name) is None or len(value) > MAX_VARIABLE_CHARS:
            raise InvalidInput(f"{name[:60]!r} is not a valid name of a variable, or its value is too long.")
    if len(envVars or {}) > MAX_VARIABLES:
        raise InvalidInput(f"More than {MAX_VARIABLES} variables are not taken.")
    named = project if project is not None else _slug(PurePosixPath(projectPath).name)
    if PROJECT.match(named) is None:
        raise InvalidInput("The project has no name.", suggestion="Give project: small letters, digits, ., _ and -.")
    return await _deploy(ctx, ctx.get(Vercel), projectPath, ".vercelignore", named, production, envVars)


async def _accepts_netlify(credential: str, ctx: InvokeContext) -> bool:
    return await is_accepted(ctx.get(Netlify).check(credential))


@tool(
    tier="external_api",
    category="deployment",
    target="netlify",
    timeout=DEPLOY_SECONDS,
    tags=["deploy"],
    requires_auth=Auth(type="bearer_token", config_key="NETLIFY_AUTH_TOKEN", setup_url=netlify.SETUP_URL),
    cost=Cost(model="subscription", billing_url="https://app.netlify.com/account/billing"),
    capabilities=[
        Capability(
            action="deploy",
            description="Deploy a folder to Netlify",
            requires_confirmation=True,
            estimated_time_ms=30_000,
        )
    ],
    errors=_ERRORS,
    examples=[Example(name="a draft of a folder", arguments={"projectPath": "src", "site": "docs-site.netlify.app"})],
)
@tests_credential(_accepts_netlify)
async def netlify_deploy(
    ctx: InvokeContext,
    projectPath: str,
    site: Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9.-]{0,252}$")],
    production: bool = False,
) -> Deployed:
    """Deploy a folder of built files of the working directory to a site of Netlify.

    Args:
        projectPath: The folder.
        site: The id or domain of the site.
        production: Whether it goes live; without it, a draft.
    """
    return await _deploy(ctx, ctx.get(Netlify), projectPath, None, site, production, None)


async def _deploy(
    ctx: InvokeContext,
    deployer: Deployer,
    path: str,
    ignore_file: str | None,
    project: str,
    production: bool,
    env: dict[str, str] | None,
) -> Deployed:
    deadline = asyncio.get_running_loop().time() + max(ctx.time_limit - CLOSING_SECONDS, 1.0)
    folder = await to_thread(read_site, await folder_of(ctx), path, ignore_file)
    ctx.used(path)
    made = await deployer.deploy(ctx.credential, Site(project, folder.files, production, env or {}), deadline=deadline)
    return {
        "deploymentId": made.id,
        "url": made.url,
        "status": made.status,
        "buildLogs": made.log,
        "skipped": folder.skipped[:MAX_SKIPPED_NAMES],
    }


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:100]
