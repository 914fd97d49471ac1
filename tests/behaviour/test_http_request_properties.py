"""Arguments of HTTP tools arrive at a server as they were given, whatever they hold: parsed on the other side by rules of
OpenAPI that share no code with what writes them."""

import asyncio
from typing import Any
from urllib.parse import parse_qsl, unquote, unquote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolgate.errors import InvalidInput
from toolgate.model.http_endpoint import FORM, HttpEndpoint
from toolgate.services.http_request import HttpRequest, make_request

pytestmark = pytest.mark.requirement("REG-1")
SEPARATORS = [("form", ","), ("spaceDelimited", "%20"), ("pipeDelimited", "%7C")]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
names = st.text("abcXYZ_", min_size=1, max_size=5).map(lambda name: f"k{name}")
scalars = st.one_of(texts, st.integers(-(2**53), 2**53), st.booleans())
objects = st.dictionaries(names, texts, min_size=1, max_size=4)


def sent(place: str, value: Any, *, style: str | None = None, explode: bool | None = None) -> HttpRequest:
    parameter = {"argument": "v", "place": place, "style": style, "explode": explode}
    url = "https://a.example/x/{v}/y" if place == "path" else "https://a.example/x"
    endpoint = HttpEndpoint.model_validate({"url": url, "parameters": [parameter]})
    return make_request(endpoint, {"v": value}, lambda _one: None)


def query(request: HttpRequest) -> str:
    return request.target.partition("?")[2]


def written(value: Any) -> str:
    return value if isinstance(value, str) else str(value).lower()


@given(scalars)
def test_a_value_in_the_query_arrives(value: Any) -> None:
    assert parse_qsl(query(sent("query", value)), keep_blank_values=True, strict_parsing=True) == [("v", written(value))]


@given(st.lists(texts, min_size=1, max_size=5))
def test_a_list_in_the_query_arrives_item_by_item(value: list[str]) -> None:
    assert parse_qsl(query(sent("query", value)), keep_blank_values=True) == [("v", item) for item in value]


@given(
    st.lists(texts, min_size=1, max_size=5),
    st.sampled_from([("form", ","), ("spaceDelimited", "%20"), ("pipeDelimited", "%7C")]),
)
def test_a_list_in_one_value_is_split_by_its_separator(value: list[str], style: tuple[str, str]) -> None:
    name, _, joined = query(sent("query", value, style=style[0], explode=False)).partition("=")
    items = joined.split(style[1])
    assert name == "v"
    if style[1] == ",":
        assert [unquote(item) for item in items] == value
    else:  # items that hold the separator itself cannot be told apart: OpenAPI says so
        assert unquote(joined) == unquote(style[1]).join(value)


@given(objects)
def test_an_object_in_the_query_arrives_as_pairs_or_in_brackets(value: dict[str, str]) -> None:
    assert dict(parse_qsl(query(sent("query", value)), keep_blank_values=True)) == value
    deep = parse_qsl(query(sent("query", value, style="deepObject")), keep_blank_values=True)
    assert {name.removeprefix("v[").removesuffix("]"): item for name, item in deep} == value


@given(words)
def test_a_value_in_the_path_stays_one_segment_or_is_refused(value: str) -> None:
    try:
        target = sent("path", value).target
    except InvalidInput:
        assert "." in unquote(unquote(unquote(unquote(value)))) or "%" in value
        return
    assert target.count("/") == 3
    assert "?" not in target
    assert "#" not in target
    assert unquote(target.split("/")[2]) == value
    assert target.split("/")[2] not in (".", "..")


@given(st.dictionaries(names, scalars, max_size=4))
def test_a_form_arrives(value: dict[str, Any]) -> None:
    body = {"argument": "v", "media_type": FORM}
    endpoint = HttpEndpoint.model_validate({"method": "POST", "url": "https://a.example/x", "body": body})
    request = make_request(endpoint, {"v": value}, lambda _one: None)
    pairs = [pair.partition("=") for pair in (request.content or b"").decode().split("&") if pair]
    assert {unquote_plus(name): unquote_plus(item) for name, _, item in pairs} == {k: written(v) for k, v in value.items()}


@settings(max_examples=25)
@given(st.dictionaries(names, texts, min_size=1, max_size=4))
def test_a_multipart_form_arrives(value: dict[str, str]) -> None:
    from starlette.datastructures import FormData
    from starlette.requests import Request

    body = {"argument": "v", "media_type": "multipart/form-data"}
    endpoint = HttpEndpoint.model_validate({"method": "POST", "url": "https://a.example/x", "body": body})
    request = make_request(endpoint, {"v": value}, lambda _one: None)

    async def parsed() -> FormData:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": request.content, "more_body": False}

        headers = [(b"content-type", request.headers["Content-Type"].encode())]
        return await Request({"type": "http", "method": "POST", "headers": headers}, receive).form()

    assert dict(asyncio.run(parsed())) == value


@pytest.mark.parametrize(
    ("style", "explode", "value", "segment"),
    [
        ("simple", False, ["a", "b,c"], "a,b%2Cc"),
        ("simple", True, {"a": "1", "b": "2"}, "a=1,b=2"),
        ("label", True, ["a", "b"], ".a.b"),
        ("label", False, {"a": "1"}, ".a,1"),
        ("matrix", False, ["a", "b"], ";v=a,b"),
        ("matrix", True, ["a", "b"], ";v=a;v=b"),
        ("matrix", True, {"a": "1", "b": "2"}, ";a=1;b=2"),
    ],
)
def test_lists_and_objects_in_the_path_are_written_as_openapi_shows_them(
    style: str, explode: bool, value: Any, segment: str
) -> None:
    assert sent("path", value, style=style, explode=explode).target == f"/x/{segment}/y"
