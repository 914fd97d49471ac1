"""The tools of external services with arguments and answers that no honest caller and no honest service sends."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import at_most
from tests.from_schema import ANYTHING, values
from tests.loopback import Asked, Said, Site, site
from tests.services import CREDENTIALS, PROJECT, every_address
from toolgate import App
from toolgate.errors import CODES
from toolgate.services import deployer, stripe
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("BUILTIN-3")
TOOLS = ("stripe_create_payment", "sendgrid_send_email", "vercel_deploy", "netlify_deploy", "supabase_query")
PATHS = {
    "stripe_create_payment": ("/v1/payment_intents",),
    "sendgrid_send_email": ("/v3/mail/send",),
    "vercel_deploy": ("/v2/files", "/v13/deployments", "/v3/deployments/"),
    "netlify_deploy": ("/api/v1/sites/", "/api/v1/deploys/"),
    "supabase_query": ("/rest/v1/", f"/v1/projects/{PROJECT}/database/query"),
}
FIELDS = (
    "id",
    "url",
    "readyState",
    "state",
    "required",
    "error",
    "errors",
    "message",
    "code",
    "client_secret",
    "status",
    "type",
)
BODIES = st.one_of(
    ANYTHING.map(json.dumps).map(str.encode),
    st.dictionaries(st.sampled_from(FIELDS), ANYTHING | st.sampled_from(["READY", "ready", "dpl_1", "../x"])).map(
        lambda body: json.dumps(body).encode()
    ),
    st.binary(max_size=40),
    st.sampled_from([b"", b"[" * 5_000, b"null", b'{"error": null}', b'{"errors": [null, {"field": {}}]}', b"9" * 5_000]),
)
ANSWERS = st.builds(
    Said,
    st.sampled_from([200, 201, 202, 204, 206, 302, 400, 401, 402, 403, 404, 409, 418, 422, 429, 500, 503]),
    BODIES,
    st.fixed_dictionaries(
        {}, optional={"retry-after": st.sampled_from(["1", "x", "-1", "1e400"]), "x-message-id": st.just("m")}
    ),
)


class Anything:
    """A service that answers as it is told."""

    def __init__(self) -> None:
        self.answers: list[Said] = []
        self.site: Site | None = None

    async def __call__(self, _asked: Asked) -> Said:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
async def service() -> AsyncIterator[Anything]:
    made = Anything()
    async with site(made) as made.site:
        yield made


@pytest.fixture
async def app(service: Anything, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(f"TOOLGATE_SECRET_{name}", value)
    monkeypatch.setattr(stripe, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(deployer, "POLL_SECONDS", (0.001, 0.001, 0.001))
    assert service.site is not None
    addresses = every_address(service.site.url)
    async with memory_app(services=addresses, budgets={"external_api_daily": None}, breaker={"failures": 10**6}) as app:
        app.approvals.add_approver(lambda _request: True)
        for entry in app.parts.catalog.entries():
            if entry.retry is not None:  # the pauses between attempts are not what is looked at
                object.__setattr__(entry.retry, "backoff_ms", 0)
        yield app


def aimed(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Random arguments, with as much sense in them that some get as far as the service."""
    if name == "sendgrid_send_email" and len(arguments["subject"]) % 2:
        return {
            **arguments,
            "to": "ann@example.com",
            "from": "shop@example.com",
            "subject": "x",
            "text": arguments["subject"],
        }
    if name in ("vercel_deploy", "netlify_deploy"):
        return {**arguments, "projectPath": "site", **({"project": "x"} if name == "vercel_deploy" else {})}
    if name == "supabase_query" and arguments.get("operation") in (None, "query"):
        return {**arguments, "query": "SELECT 1"}
    return {**arguments, "table": "notes"} if name == "supabase_query" else arguments


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.parametrize("name", TOOLS)
@settings(at_most(30), suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_whatever_is_asked_and_answered_the_outcome_is_valid(
    app: App, service: Anything, tmp_path: Any, name: str, data: st.DataObject
) -> None:
    (tmp_path / "site").mkdir(exist_ok=True)
    (tmp_path / "site" / "index.html").write_text("x")
    schema = app.parts.catalog.resolve(name, "default").tool.input_schema
    service.answers = data.draw(st.lists(ANSWERS, min_size=1, max_size=5))
    arguments = aimed(name, data.draw(values(schema)))
    outcome = await app.invoke(name, arguments, workspace=tmp_path, timeout=20)
    text = outcome.to_json().decode()
    if outcome.error is not None:
        assert outcome.error.code in CODES
        assert outcome.error.code not in ("UNEXPECTED_ERROR", "OUTPUT_INVALID"), (outcome.error, arguments, service.answers)
        assert "raised" not in outcome.error.message, (outcome.error, arguments, service.answers)
        assert len(outcome.error.message) < 2_000
    for credential in CREDENTIALS.values():
        assert credential not in text
    assert service.site is not None
    for asked in service.site.asked:
        assert asked.path.startswith(PATHS[name]), asked
