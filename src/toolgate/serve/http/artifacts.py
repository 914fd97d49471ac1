"""/v1/artifacts: outputs that were too long to be given out whole."""

from typing import Any

import msgspec

from toolgate.serve.http.endpoint import ApiRequest, Reply, Resource
from toolgate.serve.problems import HttpProblem

resource = Resource("artifacts")


@resource.get("/v1/artifacts/{id}", permission="own")
async def get_artifact(request: ApiRequest, id: str) -> Any:
    """Get the whole output of a call that was cut, while it is kept: one's own, with the permission read the tenant's."""
    audit, actor = request.app.audit, request.actor
    if request.all_users:
        content = await audit.artifact_of_anybody(id, actor.tenant)
    else:
        content = await audit.artifact(id, actor=actor)
    if content is None:
        raise HttpProblem(404, "There is no such artifact.", suggestion="It may have been removed: limits.artifact_days.")
    return Reply(msgspec.Raw(content))
