"""`http_fetch`: the content of a web page, as text. Addresses are judged by `network.http_client`, whatever the URL says."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from toolgate.errors import Failed, InvalidInput, TimedOut, ToolError
from toolgate.extras import is_installed
from toolgate.jsontext import valid_text
from toolgate.model import Capability, ErrorCase, Example
from toolgate.network.http_client import HttpClient
from toolgate.network.http_response import HttpResponse
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.sandbox.helper_process import run_helper
from toolgate.services.call_checks import CallCheck, check_encrypted

MAX_PAGE_BYTES = 2_000_000
MAX_TEXT_CHARS = 100_000
READ_SECONDS = 5.0
READABLE = "toolgate.tools.web_page:readable"
HTML_TYPES = ("text/html", "application/xhtml+xml")
TEXT_TYPES = ("application/json", "application/xml", "application/javascript", "application/yaml", "application/x-ndjson")
PAGE_ACCEPT = "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,*/*;q=0.5"

PageUrl = Annotated[str, Field(json_schema_extra={"x-path": False, "format": "uri"})]


class FetchedPage(TypedDict):
    """What is at a URL. `url` is where redirects led to; `truncated`: there is more than was read."""

    url: str
    status: int
    content_type: str
    title: str
    content: str
    truncated: bool


def _check_url(ctx: InvokeContext) -> None:
    """Raises for a URL that is refused as it is written. A secret reference in it is judged when it is known."""
    url = (ctx.arguments or {}).get("url")
    if isinstance(url, str) and "{{" not in url:
        ctx.get(HttpClient).check(url)


URL_CHECK = CallCheck("network", _check_url, "its URL may be requested")


def service_error(response: HttpResponse, host: str) -> ToolError:
    """The error of an answer whose status says that something went wrong."""
    advice = {
        401: "Check the credential: it is missing, wrong or expired.",
        403: "The credential does not allow this, or the site refuses programs.",
        404: "Check the URL.",
        429: "Wait before the next request.",
    }.get(response.status)
    words = " ".join(valid_text(response.text()).split())[:300] if _is_text(response) else ""
    return ToolError(
        f"{host} answered with status {response.status}{f': {words}' if words else '.'}",
        retryable=response.status in (408, 425, 429) or response.status >= 500,
        suggestion=advice,
        details={"status": response.status},
    )


def _is_text(response: HttpResponse) -> bool:
    kind = response.media_type
    if not kind:
        return b"\x00" not in response.body[:4_096]
    return kind.startswith("text/") or kind in TEXT_TYPES or kind.endswith(("+json", "+xml"))


@tool(
    tier="external_api",
    category="api",
    timeout=70,
    tags=["executor", "web"],
    hooks=[URL_CHECK],
    capabilities=[Capability(action="fetch", description="Fetch the content of a URL", estimated_time_ms=2_000)],
    errors=[
        ErrorCase(
            "SECURITY_VIOLATION", "the URL or a redirect leads to a private address", "use a public host, or `network.allow`"
        ),
        ErrorCase("INVALID_INPUT", "the URL is not valid, or its content is not text", "correct it"),
        ErrorCase("INVOCATION_ERROR", "the site answers with an error status", "see the status in the details"),
        ErrorCase("CONNECTION_ERROR", "the host cannot be reached", "check the host, try again later"),
        ErrorCase("TIMEOUT", "the site takes longer than timeout", "try again with a longer timeout"),
    ],
    examples=[Example(name="Read a page", arguments={"url": "https://api.example.com/page"})],
)
async def http_fetch(
    ctx: InvokeContext,
    url: PageUrl,
    timeout: Annotated[float, Field(gt=0, le=60)] = 10,
    method: Literal["GET", "HEAD"] = "GET",
    format: Literal["markdown", "text", "raw"] = "markdown",  # noqa: A002 - the name for callers
) -> FetchedPage:
    """Fetch URL content: the readable text of a public web page.

    Args:
        url: http or https.
        timeout: Seconds.
        method: HEAD gives status and type only.
        format: markdown or text, without menus; raw is the source.
    """
    client: HttpClient = ctx.get(HttpClient)
    check_encrypted(ctx, client, url)
    response = await client.request(
        method,
        url,
        headers={"accept": PAGE_ACCEPT},
        timeout=min(timeout, ctx.time_limit),
        max_bytes=MAX_PAGE_BYTES,
        cut=True,
        tenant=ctx.actor.tenant,
    )
    host = response.url.split("/")[2]
    ctx.used(host)
    if response.status >= 400:
        raise service_error(response, host)
    kind = response.media_type
    page: FetchedPage = {
        "url": response.url, "status": response.status, "content_type": kind, "title": "", "content": "",
        "truncated": response.truncated,
    }  # fmt: skip
    if method == "HEAD":
        return page
    if not _is_text(response):
        raise InvalidInput(
            f"The content is {kind or 'binary'}, which is not text.", suggestion="Fetch a page or a text file."
        )
    text = valid_text(response.text())
    if format != "raw" and (
        kind in HTML_TYPES or (not kind and text.lstrip()[:15].lower().startswith(("<!doctype", "<html")))
    ):
        return await _as_read(ctx, page, text, markdown=format == "markdown")
    page["content"] = text[:MAX_TEXT_CHARS]
    page["truncated"] = response.truncated or len(text) > MAX_TEXT_CHARS
    return page


async def _as_read(ctx: InvokeContext, page: FetchedPage, html: str, *, markdown: bool) -> FetchedPage:
    asked = {"html": html, "url": page["url"], "markdown": markdown, "most": MAX_TEXT_CHARS}
    packages = ("trafilatura",) if is_installed("documents") else ()
    try:
        seconds = min(READ_SECONDS, ctx.time_limit)
        read = await run_helper(
            READABLE, asked, tenant=ctx.actor.tenant, packages=packages, seconds=seconds, memory_mb=1_024
        )
    except (TimedOut, Failed):
        raise ToolError("The page is too much to be read.", suggestion='Fetch it with format "raw".') from None
    page["title"], page["content"] = valid_text(read["title"]), valid_text(read["text"])
    page["truncated"] = page["truncated"] or read["truncated"]
    return page
