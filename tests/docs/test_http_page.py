"""The page on HTTP has a row for every route of /v1, and no other."""

import re
from pathlib import Path

import pytest

from toolgate.serve.http.resources import RESOURCES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"
UNLISTED = {("GET", "/v1/openapi.json")}
"""Named in the page's first lines."""


@pytest.mark.requirement("DOOR-1")
def test_every_route_has_a_row() -> None:
    rows = sorted(re.findall(r"^\| `(GET|POST|PUT|PATCH|DELETE) (/v1/[^`]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE))
    routes = {(endpoint.method, endpoint.path) for one in RESOURCES for endpoint in one.endpoints}
    assert rows == sorted(routes - UNLISTED)
