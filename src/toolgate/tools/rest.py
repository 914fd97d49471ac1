"""`rest_api_call`: one request to a REST or GraphQL API."""

import time
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from toolgate.errors import InvalidInput, ToolError
from toolgate.jsontext import valid_text
from toolgate.model import Capability, ErrorCase, Example
from toolgate.network.http_client import HttpClient
from toolgate.network.service_answers import answered_value, shown_headers
from toolgate.pipeline.context import InvokeContext
from toolgate.registry.decorator import tool
from toolgate.services.call_checks import check_encrypted
from toolgate.tools.web import URL_CHECK, service_error

MAX_ANSWER_BYTES = 2_000_000
MAX_GRAPHQL_ERRORS = 5
MAX_ERROR_CHARS = 300

NONE: dict[str, Any] = {}
ApiUrl = Annotated[str, Field(json_schema_extra={"x-path": False})]
"""Not `format: uri`: a secret reference may stand in it."""
Body = Annotated[Any, Field(json_schema_extra={"x-path": False})]


class ApiAnswer(TypedDict):
    """What the API answered; the body is parsed if it is JSON. The duration is in milliseconds."""

    status: int
    headers: dict[str, str]
    body: Any
    duration: int


@tool(
    tier="external_api",
    category="api",
    timeout=130,
    tags=["rest", "graphql"],
    hooks=[URL_CHECK],
    capabilities=[
        Capability(
            action="request", description="Make an HTTP request to a REST or GraphQL API", requires_confirmation=True
        )
    ],
    errors=[
        ErrorCase(
            "SECURITY_VIOLATION", "the URL leads to a private address, or a secret would go unencrypted",
            "use https and a public host",
        ),
        ErrorCase("INVALID_INPUT", "the URL, a header or the body is not valid", "correct it"),
        ErrorCase("INVOCATION_ERROR", "the API answers with an error status, or with GraphQL errors", "see the details"),
        ErrorCase("CONNECTION_ERROR", "the host cannot be reached", "check the host, try again later"),
        ErrorCase("TIMEOUT", "the API takes longer than timeout", "check what was done before repeating a write"),
    ],
    examples=[
        Example(
            name="Create something",
            arguments={"method": "POST", "url": "https://api.example.com/items", "body": {"name": "lamp"}},
        ),
        Example(
            name="Ask GraphQL",
            arguments={
                "url": "https://api.example.com/graphql",
                "query": "query($id: ID!) { item(id: $id) { name } }",
                "variables": {"id": "7"},
            },
        ),
    ],
)  # fmt: skip
async def rest_api_call(
    ctx: InvokeContext,
    url: ApiUrl,
    method: Literal["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"] = "GET",
    headers: dict[str, str] = NONE,
    params: dict[str, Any] = NONE,
    body: Body = None,
    query: str = "",
    variables: dict[str, Any] = NONE,
    timeout: Annotated[float, Field(gt=0, le=120_000)] = 30_000,
) -> ApiAnswer:
    """Make an HTTP request to a REST or GraphQL API.

    Args:
        url: http or https.
        method: POST for GraphQL.
        headers: Credentials as secret references: {{secret:NAME}}.
        params: For the URL's query string.
        body: JSON, or text.
        query: GraphQL, in place of body.
        variables: Of query.
        timeout: Milliseconds.
    """
    client: HttpClient = ctx.get(HttpClient)
    check_encrypted(ctx, client, url)
    content, kind = _content(method, body, query, variables)
    given = dict(headers)
    if kind and not any(name.lower() == "content-type" for name in given):
        given["content-type"] = kind
    if not any(name.lower() == "accept" for name in given):
        given["accept"] = "application/json, */*;q=0.5"
    started = time.monotonic()
    response = await client.request(
        "POST" if query else method, url, headers=given, query=_plain(params), content=content,
        timeout=min(timeout / 1_000, ctx.time_limit), max_bytes=MAX_ANSWER_BYTES, tenant=ctx.actor.tenant,
    )  # fmt: skip
    duration = round((time.monotonic() - started) * 1_000)
    host = response.url.split("/")[2]
    ctx.used(host)
    if response.status >= 400:
        raise service_error(response, host)
    answer = answered_value(response)
    if query:
        _check_graphql(answer, host)
    return {"status": response.status, "headers": shown_headers(response), "body": answer, "duration": duration}


def _content(method: str, body: Any, query: str, variables: dict[str, Any]) -> tuple[bytes, str | None]:
    if query:
        if body is not None:
            raise InvalidInput("There are a body and a GraphQL query.", suggestion="Give one of them.")
        asked = {"query": query, "variables": variables} if variables else {"query": query}
        return orjson.dumps(asked), "application/json"
    if variables:
        raise InvalidInput("There are variables without a GraphQL query.", suggestion="Give query, or params for the URL.")
    if body is None:
        return b"", None
    if method in ("GET", "HEAD"):
        raise InvalidInput(f"A {method} request has no body.", suggestion="Give params, or another method.")
    if not isinstance(body, str):
        return orjson.dumps(body), "application/json"
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.encode(), "text/plain; charset=utf-8"
    return body.encode(), "application/json"  # models often write JSON as text


def _plain(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters as text: booleans as JSON has them, and no objects."""
    found: dict[str, Any] = {}
    for name, value in params.items():
        values = value if isinstance(value, list) else [value]
        if any(isinstance(one, dict | list) for one in values):
            raise InvalidInput(
                f"The parameter {name[:64]!r} holds an object.", suggestion="Give text, numbers or a list of them."
            )
        found[name] = [one if isinstance(one, str) else orjson.dumps(one).decode() for one in values if one is not None]
    return found


def _check_graphql(answer: Any, host: str) -> None:
    """GraphQL says what went wrong in an answer of status 200."""
    if not isinstance(answer, dict) or not ("data" in answer or "errors" in answer):
        raise ToolError(f"{host} did not answer as a GraphQL API does.", suggestion="Check the URL.")
    errors = answer.get("errors")
    if not errors:
        return
    listed = errors if isinstance(errors, list) else [errors]
    words = [_message(error) for error in listed[:MAX_GRAPHQL_ERRORS]]
    raise ToolError(
        f"The GraphQL API answered with {'an error' if len(listed) == 1 else f'{len(listed)} errors'}: {'; '.join(words)}",
        suggestion="Correct the query or its variables.",
        details={"errors": words, "has_data": answer.get("data") is not None},
    )


def _message(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    path = error.get("path") if isinstance(error, dict) else None
    where = f" (at {'.'.join(str(part) for part in path[:10])})" if isinstance(path, list) and path else ""
    return valid_text(str(message))[:MAX_ERROR_CHARS] + where[:100]
