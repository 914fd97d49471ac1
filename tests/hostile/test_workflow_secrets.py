"""What the author of a workflow can have Toolgate keep and show of the secrets that the workflow is given."""

import json
import logging

import pytest

from tests.behaviour.test_workflow_callbacks import ANN, SECRET, got, n8n, report, said, secret, started
from tests.loopback import Asked, Said
from tests.services import records

__all__ = ["secret"]
pytestmark = pytest.mark.requirement("WF-2")


def echo(asked: Asked) -> Said:
    """Refuses a start with the words of the request."""
    key = asked.json["_metadata"]["callback"]["key"]
    words = f"wrong secret {asked.headers['x-webhook-secret']} {key}"
    return Said(400, {"message": words}, {"x-n8n-execution-id": asked.headers["x-webhook-secret"]})


async def test_a_start_that_is_refused_with_the_secret_keeps_none_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "toolgate")
    async with n8n(echo) as (app, server):
        outcome = await app.invoke("report", {"number": 7}, actor=ANN)
        key = server.asked[0].json["_metadata"]["callback"]["key"]
        kept = await app.workflows.list(actor=ANN)
        seen = json.dumps(outcome.to_dict()) + json.dumps(kept) + await records(app) + caplog.text
    assert [one.state for one in kept] == ["not_started"]
    assert SECRET not in seen
    assert key not in seen


async def test_the_id_of_an_execution_carries_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "toolgate")
    taken = Said(200, {}, {"x-n8n-execution-id": SECRET})
    async with n8n(taken) as (app, server):
        outcome = await app.invoke("report", {"number": 7}, actor=ANN)
        assert SECRET not in json.dumps(outcome.to_dict())
        assert SECRET not in json.dumps(await app.workflows.list(actor=ANN))
        for number in range(2):
            id, key = await started(app, server)
            await report(app, id, key, said(executionId=SECRET if number else key))
            assert not {SECRET, key} & {(await got(app, id)).execution_id}
        seen = await records(app) + caplog.text
    assert SECRET not in seen
    assert key not in seen
