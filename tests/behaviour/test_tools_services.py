"""What the tools of external services have in common: definitions, examples, and what needs the HTTP client."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.loopback import Site, site
from tests.services import CREDENTIALS, every_address, every_service, failed
from toolgate import App, extras
from toolgate.errors import SettingsError
from toolgate.settings import load_settings
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("BUILTIN-3")
TOOLS = {
    "stripe_create_payment": "STRIPE_SECRET_KEY",
    "sendgrid_send_email": "SENDGRID_API_KEY",
    "vercel_deploy": "VERCEL_TOKEN",
    "netlify_deploy": "NETLIFY_AUTH_TOKEN",
    "supabase_query": "SUPABASE_KEY",
}


@pytest.fixture
async def service() -> AsyncIterator[Site]:
    async with site(every_service) as made:
        yield made


@pytest.fixture
async def app(service: Site, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(f"TOOLGATE_SECRET_{name}", value)
    async with memory_app(services=every_address(service.url)) as app:
        app.approvals.add_approver(lambda _request: True)
        yield app


@pytest.mark.parametrize("name", TOOLS)
async def test_every_example_runs(app: App, service: Site, tmp_path: Path, name: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "index.html").write_text("x")
    examples = app.parts.catalog.resolve(name, "default").tool.examples
    assert examples
    for example in examples:
        outcome = await app.invoke(name, example.arguments, workspace=tmp_path)
        assert outcome.status == "success", (example, outcome.error)
    assert service.asked


@pytest.mark.parametrize(("name", "secret"), TOOLS.items())
async def test_a_definition_says_what_it_needs_and_what_goes_wrong(app: App, name: str, secret: str) -> None:
    entry = app.parts.catalog.resolve(name, "default")
    auth = entry.tool.requires_auth
    assert auth is not None
    assert (auth.config_key, auth.required) == (secret, True)
    assert (auth.setup_url or "").startswith("https://")
    assert {"INVALID_INPUT", "MISSING_AUTH", "OUTCOME_UNKNOWN"} <= {case.code for case in entry.tool.errors}
    governed = (entry.operations or {"": entry}).values()
    assert all(one.asks for one in governed)
    assert all(one.tier in ("external_api", "execute") for one in governed)


@pytest.mark.parametrize("name", TOOLS)
async def test_without_the_http_client_the_answer_names_the_extra(
    app: App, service: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(extras.EXTRAS, "http", extras.EXTRAS["http"]._replace(modules=("not_installed_anywhere",)))
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "index.html").write_text("x")
    example = app.parts.catalog.resolve(name, "default").tool.examples[0]
    outcome = await app.invoke(name, example.arguments, workspace=tmp_path)
    assert "toolgate[http]" in failed(outcome, "INVOCATION_ERROR").message
    assert outcome.metrics.cost_usd == 0.0
    assert service.asked == []


@pytest.mark.parametrize(
    "url",
    ["http://api.example.com", "ftp://api.example.com", "https://user:password@api.example.com", "https://api.example.com?a=b",
     "https://api.example.com#a", "api.example.com", "http://10.0.0.1", "https://", "http://127.0.0.1.example.com"],
)  # fmt: skip
def test_a_credential_is_sent_to_no_address_that_is_not_safe(url: str) -> None:
    with pytest.raises(SettingsError, match="base_url"):
        load_settings(None, {"services": {"stripe": {"base_url": url}}})


@pytest.mark.parametrize(
    "url", ["https://api.example.com/", "http://127.0.0.1:8080", "http://localhost:1", "http://[::1]:1"]
)
def test_an_address_on_this_machine_needs_no_encryption(url: str) -> None:
    settings = load_settings(None, {"services": {"stripe": {"base_url": url}}})
    assert settings.services.stripe.base_url == url.rstrip("/")
