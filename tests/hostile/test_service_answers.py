"""Answers of services that are made to break their clients: headers and addresses that no parser takes."""

from pathlib import Path

import pytest

from tests.loopback import Said, site
from tests.services import CREDENTIALS, every_address, scripted
from toolgate.network.service_answers import DEFAULT_RETRY_AFTER_SECONDS, retry_after
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("BUILTIN-3")


@pytest.mark.parametrize(
    "value",
    [
        "Mon, 16 Nov 2009 13:32:02 +99999999999999999999", "Mon, 16 Nov 2009 13:32:02 -99999999999", "nan", "inf", "-1",
        "1e400", "9" * 5_000, "Mon, 99 Nov 2009 13:32:02 GMT", ", , , ,",
    ],
)  # fmt: skip
def test_a_time_to_wait_that_makes_no_sense_is_the_default(value: str) -> None:
    assert retry_after({"retry-after": value}) == DEFAULT_RETRY_AFTER_SECONDS


@pytest.mark.parametrize("url", ["https://[", "https://a]b", "https://\u2100.com", "javascript:alert(1)", 5, None])
async def test_a_deployment_that_was_made_is_told_whatever_its_address_is(
    url: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_NETLIFY_AUTH_TOKEN", CREDENTIALS["NETLIFY_AUTH_TOKEN"])
    (tmp_path / "src").mkdir()
    (tmp_path / "src/index.html").write_text("hello")
    made = Said(200, {"id": "d1", "state": "ready", "required": [], "deploy_ssl_url": url})
    async with site(scripted([made])) as service, memory_app(services=every_address(service.url)) as app:
        app.approvals.add_approver(lambda _request: True)
        outcome = await app.invoke("netlify_deploy", {"projectPath": "src", "site": "docs.netlify.app"}, workspace=tmp_path)
        assert outcome.ok, outcome.error
        assert outcome.output["deploymentId"] == "d1"
