"""What a definition says, and what is refused with the path of its fault."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest

from toolgate import (
    App,
    Auth,
    CacheRule,
    Capability,
    Cost,
    DefinitionError,
    RateLimit,
    Retry,
    Settings,
    Tool,
    UnitCost,
    tool,
)
from toolgate.model import TIERS, Category
from toolgate.registry.compile import compile_entry, definition
from toolgate.store import audit_log
from toolgate.store.database import Rows, Transaction
from toolgate.testing import memory_app

EVERYTHING: dict[str, Any] = {
    "name": "weather",
    "version": "2.1.0-rc.1+build.5",
    "description": "Say what the weather is.",
    "category": "api",
    "tier": "external_api",
    "documentation": "https://example.com/weather",
    "requires_auth": Auth(type="oauth", required=False, config_key="WEATHER_KEY", setup_url="https://example.com/key"),
    "requires_permission": "tool:weather",
    "cost": Cost(
        model="subscription",
        fixed=Decimal("0.0025"),
        per_unit=UnitCost(unit="character", price=Decimal("0.00000014"), field="place"),
        billing_url="https://example.com/bill",
        free_tier_limit=100,
    ),
    "capabilities": (
        Capability(
            action="read",
            description="Reads",
            requires_confirmation=True,
            estimated_cost=Decimal("0.01"),
            estimated_time_ms=300,
        ),
    ),
    "retry": Retry(max_attempts=2, backoff_ms=10, multiplier=1.5, max_delay_ms=50, codes=("TIMEOUT",)),
    "timeout": 12.5,
    "cache": CacheRule(ttl=30, scope="user"),
    "rate_limit": RateLimit(per_minute=1, per_hour=2, per_day=3),
    "concurrency": 4,
    "target": "weather.example.com",
    "tags": ("executor", "sky"),
}


def said(fields: dict[str, Any]) -> dict[str, Any]:
    @tool(**fields)
    async def any_name(place: str) -> str:
        """Not the description."""
        return place

    return json.loads(memory_app().register(any_name).model_dump_json())  # type: ignore[no-any-return]


def stored(name: str) -> Transaction[Rows]:
    return (yield "SELECT definition, version, tier, category, source, description, params FROM tool_catalog "
            "WHERE name = :name", {"name": name})  # fmt: skip


@pytest.mark.requirement("TOOL-1")
@pytest.mark.parametrize("field", EVERYTHING)
def test_every_field_of_a_definition_is_what_the_decorator_was_told(field: str) -> None:
    expected = json.loads(Tool(**EVERYTHING).model_dump_json())
    assert said(EVERYTHING)[field] == expected[field] != getattr(Tool(name="x", description="x"), field)


@pytest.mark.requirement("TOOL-1", "REG-2")
async def test_the_whole_definition_is_on_record_and_can_be_read_back_from_there() -> None:
    async with memory_app() as app:
        given = Tool(**EVERYTHING, output_schema={"type": "string"}, annotations={"title": "Sky"}, declared_tokens=7)
        app.register(compile_entry(given, None))
        await app.flush()
        ((text, version, tier, category, source, description, params),) = await app.parts.store.read(stored("weather"))
    assert definition(json.loads(text)) == given
    assert (version, tier, category, source) == ("2.1.0-rc.1+build.5", "external_api", "api", "python")
    assert (description, json.loads(params)) == ("Say what the weather is.", given.input_schema)


@pytest.mark.requirement("TOOL-1")
def test_short_forms_mean_the_long_ones() -> None:
    short = {"cost": 0.1, "retry": 4, "cache": 60, "requires_auth": "KEY", "capabilities": ["read"], "tier": "read_only"}
    read = said(short)
    assert read["cost"] == {
        "model": "usage_based", "fixed": "0.1", "per_unit": None, "billing_url": None, "free_tier_limit": None,
        "free_tier_period": "month",
    }  # fmt: skip
    assert (read["retry"]["max_attempts"], read["cache"]["ttl"]) == (4, 60.0)
    assert (read["requires_auth"]["config_key"], read["requires_auth"]["type"]) == ("KEY", "api_key")
    assert [capability["action"] for capability in read["capabilities"]] == ["read"]
    assert [capability["action"] for capability in said({"capabilities": "read"})["capabilities"]] == ["read"]


@pytest.mark.requirement("TOOL-1")
def test_there_are_ten_categories_and_four_tiers() -> None:
    for category in get_args(Category):
        assert said({"category": category})["category"] == category
    for tier in TIERS:
        assert said({"tier": tier})["tier"] == tier
    assert (len(get_args(Category)), TIERS) == (10, ("read_only", "write", "execute", "external_api"))


BAD: list[tuple[dict[str, Any], str]] = [
    *(({"name": name}, "name") for name in ("", "1st", "a b", "a.b", "ä", "a\n", "x" * 65, 7)),
    *(({"version": version}, "version") for version in ("1", "1.0", "v1.0.0", "01.0.0", "1.0.0 ", "1.0.0-", 1)),
    ({"category": "weather"}, "category"),
    ({"tier": "harmless"}, "tier"),
    ({"description": ""}, "description"),
    ({"timeout": 0}, "timeout"),
    ({"concurrency": 0}, "concurrency"),
    ({"colour": "red"}, "colour"),
    ({"cost": {"fixed": -1}}, "cost.fixed"),
    ({"retry": {"codes": ["NO_SUCH"]}}, "retry.codes"),
    ({"capabilities": [{"action": "ok"}, {"action": ""}]}, "capabilities.1.action"),
    ({"requires_auth": {"config_key": "K", "type": "hope"}}, "requires_auth.type"),
    ({"rate_limit": {"per_minute": 0}}, "rate_limit.per_minute"),
    ({"tier": "write", "cache": {"ttl": 1}}, "cache"),
    ({"annotations": {"title": object()}}, "annotations"),
    ({"annotations": {"title": 2**70}}, "annotations"),
    ({"description": "half \ud800"}, "description"),
    ({"description": "a\0b"}, ""),
    ({"input_schema": {"type": "array"}}, "input_schema.type"),
]
SCHEMAS: list[tuple[Any, str]] = [
    ({"properties": {"a": {"properties": {"b": {"type": "txt"}}}}}, "properties.a.properties.b.type"),
    ({"properties": {"a": {"minimum": "low"}}}, "properties.a.minimum"),
    ({"properties": {"a": {"pattern": "["}}}, "properties.a.pattern"),
    ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "properties.a.$ref"),
    ({"properties": {"a": {"$ref": "http://127.0.0.1:9/x.json"}}}, "properties.a.$ref"),
    ({"properties": {"a": {"items": [{"$ref": "file:///etc/passwd"}]}}}, "properties.a.items"),
    ({"$schema": "http://127.0.0.1:9/schema"}, "$schema"),
    ({"required": "a"}, "required"),
    ({"properties": {"a": {"default": object()}}}, ""),
    ({"description": "long" * 100_000}, ""),
]


def refused(fields: dict[str, Any]) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        compile_entry(definition({"name": "bad", "description": "Bad.", **fields}), None)
    return caught.value


@pytest.mark.requirement("TOOL-3", "TOOL-1")
@pytest.mark.parametrize(("fields", "path"), BAD)
def test_a_bad_definition_is_refused_with_the_path_of_its_fault(fields: dict[str, Any], path: str) -> None:
    assert [fault.path for fault in refused(fields).faults] == [path]


@pytest.mark.requirement("TOOL-3")
@pytest.mark.parametrize("field", ["input_schema", "output_schema"])
@pytest.mark.parametrize(("schema", "path"), SCHEMAS)
def test_what_is_no_schema_is_refused_with_its_path(field: str, schema: dict[str, Any], path: str) -> None:
    assert [fault.path for fault in refused({field: schema}).faults] == [f"{field}.{path}" if path else field]


@pytest.mark.requirement("TOOL-3")
def test_every_fault_is_named_not_only_the_first() -> None:
    error = refused({"name": "a b", "version": "x", "tier": "none"})
    assert [fault.path for fault in error.faults] == ["name", "version", "tier"]
    assert "version: not a semantic version" in str(error)


@pytest.mark.requirement("TOOL-3")
def test_a_backslash_u_in_a_pattern_is_no_nul_character() -> None:
    made = definition({"name": "ok", "description": "Fine.", "input_schema": {"description": r"matches \u0000"}})
    assert compile_entry(made, None).fingerprint


@pytest.mark.requirement("TOOL-3")
def test_a_function_whose_parameters_cannot_be_named_is_refused() -> None:
    def takes_any(*values: int) -> int:
        """Add."""
        return sum(values)

    def by_place(a: int, /) -> int:
        """Give it back."""
        return a

    def yields() -> Any:
        """Count."""
        yield 1

    for function, path in (
        (takes_any, "input_schema.properties.values"),
        (by_place, "input_schema.properties.a"),
        (yields, ""),
    ):
        with pytest.raises(DefinitionError) as caught:
            tool(function)
        assert [fault.path for fault in caught.value.faults] == [path]


class Opaque:
    """Nothing that JSON has a form for."""


@pytest.mark.requirement("TOOL-3")
def test_a_hint_without_a_schema_is_refused_where_it_stands() -> None:
    def takes(a: int, b: Opaque) -> int:  # noqa: ARG001
        """Take it."""
        return a

    def gives() -> Opaque:
        """Give it."""
        return Opaque()

    for function, path in ((takes, "input_schema.properties.b"), (gives, "output_schema")):
        with pytest.raises(DefinitionError) as caught:
            tool(function)
        assert [fault.path for fault in caught.value.faults] == [path]


@pytest.mark.requirement("TOOL-3")
@pytest.mark.parametrize("cost", ["much", "-1", "NaN"])
def test_a_cost_that_is_no_sum_is_refused(cost: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        said({"cost": cost})
    assert [fault.path for fault in caught.value.faults] == ["cost.fixed"]


@pytest.mark.requirement("TOOL-3")
def test_a_hook_that_is_none_or_cannot_be_made_is_refused() -> None:
    class Broken:
        def __init__(self) -> None:
            raise RuntimeError("no")

        def will_execute(self, ctx: Any) -> None: ...

    for hook in (Broken, object()):
        with pytest.raises(DefinitionError) as caught:
            said({"hooks": [hook]})
        assert [fault.path for fault in caught.value.faults] == ["hooks"]


@pytest.mark.requirement("TOOL-3")
def test_what_is_not_declared_is_refused_with_what_to_do() -> None:
    with pytest.raises(DefinitionError, match="Put @tool"):
        memory_app().register(len)


GOOD = (
    'from toolgate import tool\n@tool(tier="read_only")\ndef {name}() -> str:\n    """Say a name."""\n    return "{name}"\n'
)
FILES: dict[str, tuple[str, str]] = {
    "syntax.py": ("def (", "it does not compile: invalid syntax"),
    "raises.py": ("raise RuntimeError('at import')", "RuntimeError: at import"),
    "leaves.py": ("raise SystemExit(3)", "SystemExit: 3"),
    "version.py": (GOOD.format(name="old").replace('"read_only"', '"read_only", version="one"'), "version: not a semantic"),
    "undescribed.py": (GOOD.format(name="mute").replace('"""Say a name."""', ""), "description:"),
    "taken.py": (GOOD.format(name="first"), "the name is taken by a tool of source python"),
}


@pytest.mark.requirement("TOOL-3", "REG-1")
async def test_bad_files_are_named_with_what_is_wrong_and_the_rest_of_the_folder_loads(tmp_path: Path) -> None:
    (tmp_path / "a_first.py").write_text(GOOD.format(name="first"))
    proxy = "class P:\n    def __getattr__(self, name): raise RuntimeError('unbound')\np = P()\n"
    (tmp_path / "z_last.py").write_text(GOOD.format(name="last") + proxy)
    (tmp_path / "_private.py").write_text("raise RuntimeError('not to be read')")
    for name, (text, _) in FILES.items():
        (tmp_path / name).write_text(text)
    async with App.open(Settings(home=tmp_path / "home", python_tools=(tmp_path,), entry_points=False)) as app:
        found = {tool.name for tool in await app.tools.list(source="python")}
        outcome = await app.invoke("last")
        problems = {problem.where: problem.why for problem in app.tools.problems}
    assert found == {"first", "last"}
    assert outcome.output == "last"
    assert len(problems) == len(FILES)
    for name, (_, words) in FILES.items():
        assert [words in why for where, why in problems.items() if str(tmp_path / name) in where] == [True], name


@pytest.mark.requirement("IO-2")
@pytest.mark.parametrize("rule", [True, {}, {"type": ["integer", "string"]}, {"type": "object"}])
async def test_an_argument_of_which_a_schema_says_little_may_hold_a_secret_and_is_masked(rule: Any) -> None:
    schema = {"properties": {"password": rule}, "additionalProperties": False}
    async with memory_app() as app:
        app.register(compile_entry(Tool(name="loose", description="Loose.", tier="read_only", input_schema=schema), None))
        await app.invoke("loose", {"password": {"inner": "hunter22"} if rule == {"type": "object"} else "hunter22"})
        await app.flush()
        rows = await app.parts.store.read(audit_log.latest(10, tool="loose"))
    assert rows
    assert not [row for row in rows if "hunter22" in row[7]]
