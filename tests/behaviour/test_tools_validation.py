"""`validate_json`: syntax, repeated keys and JSON Schemas of JSON and YAML documents."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.loopback import Asked, Said, site
from toolgate import App, Outcome
from toolgate.sandbox.workspaces import Workspaces

pytestmark = pytest.mark.requirement("BUILTIN-3")
PERSON = {
    "type": "object", "required": ["name"], "additionalProperties": False,
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}}},
}  # fmt: skip


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with App.open(os.devnull, home=tmp_path / ".toolgate") as app:
        app.provide(Workspaces, Workspaces(tmp_path / ".toolgate", tmp_path))
        yield app


async def checked(app: App, **arguments: Any) -> dict[str, Any]:
    outcome = await app.invoke("validate_json", arguments)
    assert outcome.status == "success", outcome.error
    found: dict[str, Any] = outcome.output
    assert found["valid"] is not bool(found["errors"])
    return found


def failed(outcome: Outcome, code: str) -> str:
    assert outcome.error is not None, outcome
    assert outcome.error.code == code, outcome.error
    return outcome.error.message


async def test_a_document_without_a_schema_is_checked_by_its_syntax(app: App) -> None:
    assert (await checked(app, data='{"a": [1, 2.5, null, "é"]}'))["valid"] is True
    [fault] = (await checked(app, data='{\n  "a": 1,\n  "b": tru\n}'))["errors"]
    assert (fault["path"], fault["line"], fault["column"]) == ("b", 3, 8)


async def test_a_name_that_stands_twice_is_a_fault(app: App) -> None:
    [fault] = (await checked(app, data='{"a": {"k": 1,\n "k": 2}}'))["errors"]
    assert (fault["path"], fault["line"], fault["column"]) == ("a.k", 2, 2)
    [fault] = (await checked(app, data="a: 1\nb: 2\na: 3\n", format="yaml"))["errors"]
    assert (fault["line"], fault["column"]) == (3, 1)


async def test_faults_of_a_schema_have_paths_and_places(app: App) -> None:
    found = await checked(app, data='{"tags": ["ok",\n"long"], "x": 1}', schema=PERSON)
    places = {fault["path"]: (fault["line"], fault["column"], fault["message"]) for fault in found["errors"]}
    assert places["tags[1]"] == (2, 1, "must have at most 3 characters")
    assert places["x"][:2] == (2, 15)
    assert places["name"][2] == "is required"
    assert "argument" not in str(found)
    assert (await checked(app, data='{"name": "a", "tags": []}', schema=PERSON))["valid"] is True
    assert (await checked(app, data="1", schema=False))["valid"] is False
    assert (await checked(app, data="1", schema=True))["valid"] is True


async def test_yaml_is_checked_by_the_same_schemas(app: App, tmp_path: Path) -> None:
    (tmp_path / "who.yaml").write_text("name: 7\ntags:\n  - long\n")
    (tmp_path / "person.json").write_text(json.dumps(PERSON))
    found = await checked(app, path="who.yaml", schemaPath="person.json")
    assert {(fault["path"], fault["line"]) for fault in found["errors"]} == {("name", 1), ("tags[0]", 3)}
    [fault] = (await checked(app, data="a: [1\nb: 2", format="yaml"))["errors"]
    assert fault["line"] == 2


@pytest.mark.parametrize(
    "data",
    [
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 10)}]\n" for i in range(9)
        ),
        "a: &a [*a]", "!!python/object/apply:os.system ['id']", "{" * 50_000, "- " * 20_000, "a: 1\n--- \nb: 2", "a: .nan",
        "? [a]\n: 1", "<<: {a: 1}", "\x00",
    ],
)  # fmt: skip
@pytest.mark.sample(4)
async def test_hostile_yaml_is_a_fault_and_never_a_value(app: App, data: str) -> None:
    assert (await checked(app, data=data, format="yaml"))["valid"] is False


async def test_a_schema_reaches_nothing_else(app: App, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('{"type": "string"}')

    async def answer(_: Asked) -> Said:
        return Said(body={"type": "string"})

    async with site(answer) as server:
        url = f"{server.url}/x.json"
        for schema in (
            {"$ref": url}, {"$schema": url}, {"$dynamicRef": url}, {"properties": {"a": {"$id": url, "$schema": url}}},
            {"$defs": {"a": {"$id": server.url, "$ref": "x.json"}}, "$ref": "#/$defs/a"}, {"$id": url, "$ref": "other.json"},
            {"$ref": "file:///etc/passwd"}, {"$ref": (tmp_path / "secret.json").as_uri()}, {"$ref": "secret.json"},
        ):  # fmt: skip
            outcome = await app.invoke("validate_json", {"data": "{}", "schema": schema})
            if outcome.status == "success":
                assert "$ref" not in schema, schema
            else:
                failed(outcome, "INVALID_INPUT")
        assert server.connections == 0


@pytest.mark.parametrize("schema", [{"type": "text"}, 7, [], "{", "[]", {"pattern": "("}, {"$ref": "#/none"}])
@pytest.mark.sample(4)
async def test_what_is_no_schema_is_said(app: App, schema: Any) -> None:
    assert "schema" in failed(await app.invoke("validate_json", {"data": '"a"', "schema": schema}), "INVALID_INPUT")


async def test_a_schema_that_never_ends_is_ended(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolgate.tools.validation.CHECK_SECONDS", 1.5)
    busy = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 8} for n in range(20)}
    schema = {"$defs": {**busy, "d20": {"type": "string"}}, "items": {"$ref": "#/$defs/d0"}}
    outcome = await app.invoke("validate_json", {"data": json.dumps(["a"] * 1000), "schema": schema})
    assert outcome.error is not None
    assert outcome.error.code in ("TIMEOUT", "SANDBOX_ERROR")
    loop = {"$ref": "#"}
    outcome = await app.invoke("validate_json", {"data": "1", "schema": loop})
    assert outcome.status in ("success", "failure", "timeout")


async def test_paths_are_opened_as_read_file_opens_them(app: App, tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("/etc/hostname")
    for name in ("path", "schemaPath"):
        given = {"data": "1"} if name == "schemaPath" else {}
        for path in ("link.json", "../a.json", "/etc/passwd"):
            failed(await app.invoke("validate_json", {**given, name: path}), "SECURITY_VIOLATION")
        failed(await app.invoke("validate_json", {**given, name: "none.json"}), "INVALID_INPUT")


async def test_what_cannot_be_validated_is_said(app: App) -> None:
    assert "nothing" in failed(await app.invoke("validate_json", {}), "INVALID_INPUT")
    both = {"data": "1", "schema": {}, "schemaPath": "a.json"}
    assert "two schemas" in failed(await app.invoke("validate_json", both), "INVALID_INPUT")
    large = {"data": "a: " + "b" * 300_000, "format": "yaml"}
    assert "bytes" in failed(await app.invoke("validate_json", large), "INVALID_INPUT")
