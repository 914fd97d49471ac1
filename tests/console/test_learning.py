"""The console's page of learning: figures, recommendations, feedback and suggestions, also without scripts."""

import pytest

from tests.console.plain_browser import signed_in
from tests.serving import Site
from toolgate import Actor, App, ToolError, tool
from toolgate.learning.feedback import Feedback

pytestmark = pytest.mark.requirement("AUD-4", "DOOR-2")

ANN = Actor("acme", user="ann")
MARKUP = "<img src=x onerror=alert(1)>"


@tool(tier="read_only")
async def broken() -> str:
    """Fail always."""
    raise ToolError("away", code="CONNECTION_ERROR")


async def test_learning_shows_figures_and_takes_feedback_and_answers(app: App, site: Site) -> None:
    app.register(broken)
    for _ in range(10):
        await app.invoke("broken", actor=ANN)
    call = await app.invoke("echo", {"text": "hello"}, actor=ANN)
    said = Feedback(tool_name="echo", success=True, call_id=call.id, comment=MARKUP, task="greet a customer")
    await app.learning.feedback(said, actor=ANN)
    operator = await signed_in(app, site, Actor("acme", user="ann"), "operator")
    page = (await operator.get("/learning?task=greet+customers")).body.decode()
    assert 'title="CONNECTION_ERROR">connection error</span> 10' in page
    assert 'href="/tools/echo"' in page[page.index('id="recommended"') : page.index('id="trend"')]
    assert MARKUP not in page and "&lt;img src=x" in page
    assert "circuit breaker" in page
    assert (await operator.post("/learning/suggestions/breaker:broken", {"verdict": "accept"})).status == 303
    assert app.tools.get("broken").target == "broken"
    assert (await operator.post("/learning/suggestions/breaker:echo", {"verdict": "accept"})).status == 404
    given = await operator.post("/learning/feedback", {"tool_name": "echo", "success": "no", "comment": "wrong"})
    assert given.status == 303
    assert [one.comment for one in await app.learning.said(tenant="acme")] == ["wrong", MARKUP]
    unknown = await operator.post("/learning/feedback", {"tool_name": "no_such_tool", "success": "no"})
    assert unknown.status == 404
    assert 'value="no_such_tool"' in unknown.body.decode() and 'id="fault-tool_name"' in unknown.body.decode()
    assert (await operator.post("/learning/feedback", {"tool_name": "echo", "comment": "x" * 3_000})).status == 422


async def test_learning_shows_others_nothing_of_a_tenant(app: App, site: Site) -> None:
    call = await app.invoke("echo", {"text": "hello"}, actor=ANN)
    said = Feedback(tool_name="echo", success=True, call_id=call.id, comment="private words", task="greet a customer")
    await app.learning.feedback(said, actor=ANN)
    for actor in (Actor("other", user="ann"), Actor("acme", user="bob")):
        other = await signed_in(app, site, actor, "caller")
        page = (await other.get("/learning?task=greet+customers")).body.decode()
        assert "private words" not in page and 'id="suggestions"' not in page
        assert (await other.post("/learning/suggestions/breaker:echo", {"verdict": "accept"})).status == 403
