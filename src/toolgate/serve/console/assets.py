"""The files that pages load: style sheet, scripts, icon. Their addresses have their hash, so browsers keep them for good."""

import gzip
from functools import cache
from hashlib import sha256
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from toolgate.serve.problems import HttpProblem

STATIC = Path(__file__).with_name("static")
KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
HASH_CHARS = 12
ASSET_HEADERS = {
    "cache-control": "public, max-age=31536000, immutable",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "vary": "Accept-Encoding",
    "content-security-policy": "default-src 'none'",
}


class Asset:
    """A file as it is sent: plain, and compressed."""

    def __init__(self, path: Path) -> None:
        self.content = path.read_bytes()
        self.compressed = gzip.compress(self.content, 9, mtime=0)
        self.kind = KINDS[path.suffix]
        self.url = f"/assets/{sha256(self.content).hexdigest()[:HASH_CHARS]}/{path.name}"


@cache
def _assets() -> dict[str, Asset]:
    return {path.name: Asset(path) for path in sorted(STATIC.iterdir()) if path.suffix in KINDS}


def asset_url(name: str) -> str:
    """The address of a file. Raises KeyError: a template names one that is not there."""
    return _assets()[name].url


async def asset(request: Request) -> Response:
    found = _assets().get(request.path_params["name"])
    if found is None or found.url != request.scope["path"]:
        raise HttpProblem(404, "There is nothing at this address.")
    if request.method not in ("GET", "HEAD"):
        raise HttpProblem(405, f"{request.method} is not allowed at this address: use GET.", headers={"allow": "GET"})
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.compressed, media_type=found.kind, headers={**ASSET_HEADERS, "content-encoding": "gzip"})
    return Response(found.content, media_type=found.kind, headers=ASSET_HEADERS)


async def favicon(_: Request) -> Response:
    """For browsers that look for an icon by themselves, on answers that are no pages."""
    return RedirectResponse(asset_url("icon.svg"), 302, headers={"cache-control": "public, max-age=86400"})


routes = [Route("/assets/{hash}/{name}", asset, methods=["GET"]), Route("/favicon.ico", favicon, methods=["GET"])]
