"""GET /v1/openapi.json: the description of /v1 in OpenAPI 3.1, made from the declarations of its routes."""

from collections.abc import Iterable
from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec

from toolgate.serve.http.endpoint import MAX_PATH_PARAMETER_CHARS, ROLE_NAMES, ApiRequest, Endpoint, Resource
from toolgate.serve.problems import OWN_TITLES
from toolgate.version import VERSION

resource = Resource("api")

REF = "#/components/schemas/{name}"
PROBLEM = "application/problem+json"
COMMON_PROBLEMS = (400, 401, 403, 404, 405, 408, 413, 421, 422, 500, 503)
"""Statuses that every route can answer with."""
DESCRIPTION = (
    "Every call passes one pipeline: policy, validation, approval, budget, sandbox, audit. Tenant and persona come from the "
    "credential. Lists are pages: send the cursor `next` of a page to get the next one; lists that are always short have no "
    "`next`. Errors are problem documents (RFC 9457) with a `code`, what is wrong and what to do."
)


class Problem(msgspec.Struct, frozen=True):
    """A request that was refused (RFC 9457)."""

    title: str
    status: int
    code: str
    detail: str
    suggestion: str | None = None
    request_id: str | None = None


@resource.get("/v1/openapi.json", permission="own")
async def get_openapi(request: ApiRequest) -> dict[str, Any]:
    """Get this description."""
    return request.http.openapi


def document(resources: Iterable[Resource]) -> dict[str, Any]:
    """Gives the OpenAPI document of these resources."""
    endpoints = [endpoint for one in resources for endpoint in one.endpoints]
    kinds: list[Any] = [Problem]
    for endpoint in endpoints:
        kinds += [kind for kind in (endpoint.body, endpoint.gives) if kind is not None]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    shapes = dict(zip(map(_identity, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, shapes)
    _open_objects([paths, components])
    for component in components.values():
        for field in component.get("properties", {}).values():
            field.pop("default", None)  # which generators take for a field that is always there
    return {
        "openapi": "3.1.0",
        "info": {"title": "Toolgate", "version": VERSION, "description": DESCRIPTION},
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "tags": [{"name": one.tag} for one in resources],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key (`tg_…`), or a token of a trusted issuer.",
                }
            },
        },
    }


def _open_objects(schema: Any) -> None:
    """Says of objects whose fields are not named that they may have any: generators of clients take them for empty ones."""
    if isinstance(schema, list):
        for one in schema:
            _open_objects(one)
    elif isinstance(schema, dict):
        if schema.get("type") == "object" and not {"properties", "additionalProperties"} & schema.keys():
            schema["additionalProperties"] = True
        for one in schema.values():
            _open_objects(one)


def _identity(kind: Any) -> str:
    return repr(kind)


def _operation(endpoint: Endpoint, shapes: dict[str, Any]) -> dict[str, Any]:
    summary, _, rest = endpoint.summary.partition("\n")
    described = f"{rest.strip()}\n\nRole: {ROLE_NAMES[endpoint.permission]}.".strip()
    operation: dict[str, Any] = {
        "operationId": endpoint.id,
        "tags": [endpoint.tag],
        "summary": summary.rstrip("."),
        "description": described,
        "parameters": [*_parameters(endpoint)],
        "responses": _responses(endpoint, shapes),
    }
    if endpoint.body is not None:
        required = any(field.required for field in msgspec.structs.fields(endpoint.body))
        content = {"application/json": {"schema": shapes[_identity(endpoint.body)]}}
        operation["requestBody"] = {"required": required, "content": content}
    elif endpoint.max_body is not None:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _parameters(endpoint: Endpoint) -> Iterable[dict[str, Any]]:
    for name in endpoint.path_parameters:
        schema = {"type": "string", "minLength": 1, "maxLength": MAX_PATH_PARAMETER_CHARS}
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    for name, schema, required in _query_schema(endpoint.query):
        yield {"name": name, "in": "query", "required": required, "schema": schema}
    yield {
        "name": "tenant",
        "in": "query",
        "required": False,
        "description": "Of operators: the tenant that the request is about, or * for all.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 256},
    }
    if endpoint.takes_key:
        schema = {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[ -~]+$"}
        yield {"name": "Idempotency-Key", "in": "header", "required": False, "schema": schema}


@cache
def _query_schema(query: type[msgspec.Struct]) -> tuple[tuple[str, dict[str, Any], bool], ...]:
    found = []
    for field in msgspec.structs.fields(query):
        (schema,), components = msgspec.json.schema_components([field.type], ref_template=REF)
        assert not components, f"{query.__name__}.{field.name}: a query parameter is a plain value"
        options = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
        if len(options) == 1:  # a parameter that is left out is null; the text null is a text
            schema = options[0]
        if "enum" in schema:
            schema = {**schema, "enum": [one for one in schema["enum"] if one is not None]}
        found.append((field.encode_name, schema, field.required))
    return tuple(found)


def _responses(endpoint: Endpoint, shapes: dict[str, Any]) -> dict[str, Any]:
    content = {} if endpoint.gives is None else {"content": {endpoint.media_type: {"schema": _shape(endpoint, shapes)}}}
    found: dict[str, dict[str, Any]] = {str(endpoint.status): {"description": HTTPStatus(endpoint.status).phrase, **content}}
    for status, when in endpoint.also.items():
        found[str(status)] = {"description": when, **content}
    if endpoint.method == "GET" and endpoint.status == 200:
        found["304"] = {"description": "It has not changed since the ETag that If-None-Match named."}
    problems = {*COMMON_PROBLEMS, *endpoint.problems}
    if endpoint.body is not None or endpoint.max_body is not None:
        problems.add(415)
    if endpoint.method not in ("GET", "POST"):
        problems.add(412)
    problem = {PROBLEM: {"schema": {"$ref": REF.format(name="Problem")}}}
    for status in sorted(problems):
        if str(status) in found:
            found[str(status)] = {**found[str(status)], "content": {**found[str(status)].get("content", {}), **problem}}
        else:
            title = OWN_TITLES.get(status) or HTTPStatus(status).phrase
            found[str(status)] = {"description": title, "content": problem}
    return dict(sorted(found.items()))


def _shape(endpoint: Endpoint, shapes: dict[str, Any]) -> Any:
    if endpoint.media_type == "application/json":
        return shapes[_identity(endpoint.gives)]
    return {"type": "string"} if endpoint.media_type.startswith("text/") else {"type": "string", "format": "binary"}
