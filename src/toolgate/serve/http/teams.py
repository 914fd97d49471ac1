"""/v1/teams: the tools of the organisation, reviewed here, and bundles that are published for other installations."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from toolgate.errors import plural
from toolgate.serve.http.endpoint import ApiModel, ApiRequest, ApiView, Reply, Resource
from toolgate.serve.problems import HttpProblem
from toolgate.teams.review import TeamTool

resource = Resource("teams")

Fingerprint = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
READ_SCOPE = "teams:read"
"""The scope of a key with which another installation gets a bundle."""


class OrganisationView(ApiView, frozen=True):
    """The organisation, and how its bundle stands here."""

    enabled: bool
    org_id: str | None
    source: str | None
    """The address of its bundle."""
    version: int | None
    key_id: str | None
    created_at: datetime | None
    expires_at: datetime | None
    expired: bool
    """True: a newer one is overdue. What was accepted stays in use."""
    received_at: datetime | None
    tried_at: datetime | None
    failure: str | None
    """The reason that the last look for a newer one gave nothing."""
    live: int
    waiting: int
    refuses_local_tools: bool


class TeamToolView(ApiView, frozen=True):
    """A tool of the organisation, or its rule on local tools, for whoever reviews it."""

    name: str
    kind: Literal["tool", "rule"]
    state: Literal["new", "changed", "accepted", "rejected"]
    live: bool
    hash: str
    """Of what is shown: only that can be accepted or rejected."""
    found: str
    """The file, as the newest bundle has it."""
    accepted: str | None
    """The file that was accepted."""
    enforced: bool
    accepted_enforced: bool
    version: int
    accepted_version: int | None
    accepted_by: str | None
    accepted_at: datetime | None
    tier: str | None
    accepted_tier: str | None
    description: str
    input_schema: dict[str, Any]
    runtime: str | None
    commands: list[str]
    hosts: list[str]
    secrets: list[str]
    warnings: list[str]
    problem: str | None
    """The reason why it can't be used even if it is accepted."""
    diff: list[str]
    consequences: list[str]


class TeamsView(ApiView, frozen=True):
    """The organisation and its tools."""

    organisation: OrganisationView
    tools: list[TeamToolView]


class ReceivedView(ApiView, frozen=True):
    """The changes that a bundle brought."""

    version: int
    is_new: bool
    new: list[str]
    changed: list[str]
    removed: list[str]


class ReviewedFingerprints(ApiModel, frozen=True):
    """Tools that a person has looked at."""

    hashes: Annotated[list[Fingerprint], msgspec.Meta(min_length=1, max_length=1_000)]
    """The fingerprints that were shown."""


@resource.get("/v1/teams", permission="operate")
async def get_teams(request: ApiRequest) -> TeamsView:
    """Get the organisation, its tools, what of them waits, and each difference to what was accepted."""
    return await _view(request)


async def _view(request: ApiRequest) -> TeamsView:
    teams = request.app.teams
    status = await teams.status()
    tools = await teams.list() if status.enabled else []
    return TeamsView(
        organisation=msgspec.convert(status.to_dict(), OrganisationView, strict=False),
        tools=[msgspec.convert(one.to_dict(), TeamToolView, strict=False) for one in tools],
    )


@resource.post("/v1/teams/sync", permission="operate", problems=(409,))
async def sync_teams(request: ApiRequest) -> ReceivedView:
    """Get the organisation's newest bundle from where the settings say. What it brings waits to be accepted."""
    received = await request.app.teams.sync(operator=request.sender)
    return msgspec.convert(received._asdict(), ReceivedView)


@resource.post("/v1/teams/accept", permission="operate", problems=(409,))
async def accept_team_tools(request: ApiRequest, body: ReviewedFingerprints) -> TeamsView:
    """Accept tools as they were shown, by their fingerprints. If one has changed since, none is accepted."""
    chosen = await _chosen(request, body)
    if len(await request.app.teams.accept(chosen, operator=request.sender)) < len(chosen):
        raise HttpProblem(409, "A tool changed at this moment, and nothing was accepted.", suggestion="Look again.")
    return await _view(request)


@resource.post("/v1/teams/reject", permission="operate", problems=(409,))
async def reject_team_tools(request: ApiRequest, body: ReviewedFingerprints) -> TeamsView:
    """Reject tools as they were shown: a change that waits is not taken; what is in use as it is, is used no more."""
    await request.app.teams.reject(await _chosen(request, body), operator=request.sender)
    return await _view(request)


async def _chosen(request: ApiRequest, body: ReviewedFingerprints) -> list[TeamTool]:
    there = {one.hash: one for one in await request.app.teams.list()}
    unknown = [one for one in body.hashes if one not in there]
    if unknown:
        raise HttpProblem(
            409,
            f"{plural(len(unknown), 'fingerprint')} of those named is none of a tool in the newest bundle.",
            suggestion="It has changed: get the tools again, and look.",
        )
    return [there[one] for one in dict.fromkeys(body.hashes)]


@resource.delete("/v1/teams", permission="operate", problems=(409,))
async def remove_teams(request: ApiRequest) -> None:
    """Take all tools of the organisation out of use, and forget what was accepted. An older bundle is refused as before."""
    await request.app.teams.remove(operator=request.sender)


@resource.get("/v1/teams/{org_id}/bundle", permission="own")
async def get_bundle(request: ApiRequest, org_id: str) -> Any:
    """Get the bundle that is published here for an organisation, with a key that has the scope teams:read."""
    if READ_SCOPE not in request.credential.actor.scopes:
        raise HttpProblem(
            403,
            f"This needs the scope {READ_SCOPE}.",
            suggestion=f"`toolgate keys create NAME --role guest --scope {READ_SCOPE}`",
        )
    found = await request.app.teams.published(org_id)
    if found is None:
        raise HttpProblem(404, "No bundle is published here for this organisation.", suggestion="`toolgate teams publish`")
    return Reply(msgspec.Raw(found.bundle.encode()))
