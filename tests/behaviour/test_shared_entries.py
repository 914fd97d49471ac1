"""Apps of one process share what is compiled of built-in tools. Each has exactly the entries that it would have alone."""

from typing import Any

import msgspec
import pytest

from toolgate import App
from toolgate.model import LOCAL, Entry
from toolgate.pipeline.stage_marks import StageMarks
from toolgate.registry.decorator import declared
from toolgate.registry.python_source import PackageSource, _codes_of, _modules_of
from toolgate.store.catalog import known_tools
from toolgate.testing import memory_app

PACKAGE = "toolgate.tools"
SETTINGS: dict[str, dict[str, Any]] = {
    "as they are": {},
    "tiers": {
        "tier_overrides": {"calculator": "execute", "git": "external_api", "read_file": "write", "scheduler": "write"}
    },
    "other tiers": {"tier_overrides": {"calculator": "write", "execute_command": "external_api"}},
    "seconds": {"max_execution_time": 7},
    "seconds in the sandbox": {"sandbox": {"seconds": 5}},
    "prices": {"model": {"input_price": "3.0", "output_price": "15"}},
    "the same prices, written otherwise": {"model": {"input_price": "3.00", "output_price": "15.0"}},
    "hosts": {"npm": {"hosts": ["npm.example.com"]}},
    "other hosts": {"registries": {"npm": "https://registry.example.com:8443/"}},
    "sent out": {"events": {"url": "nats://127.0.0.1:4222"}, "tools": {"calculator": {"route": "events"}}},
    "details": {"audit": {"details": {"rules": [{"tool": "git*", "keep": "output"}, {"tier": "write"}]}}},
    "hook seconds": {"limits": {"hook_seconds": 1}, "rate_limits": [{"per_minute": 5}]},
}


def app_of(settings: str) -> App:
    return memory_app(**SETTINGS[settings])


def codes() -> list[Any]:
    return [code for module in _modules_of(PACKAGE) for code in _codes_of(module)]


def forget_all() -> None:
    """Have the next App compile all built-in tools itself."""
    for code in codes():
        found = declared(code)
        assert found is not None
        found.compiled.clear()
        found.definitions.clear()


def entries_of(app: App) -> dict[str, Entry]:
    loaded = list(PackageSource(PACKAGE, "builtin", app.parts.rules).load())
    assert all(isinstance(one, Entry) for one in loaded)
    return {one.name: one for one in loaded if isinstance(one, Entry)}


def fields_of(entry: Entry, app: App) -> dict[str, Any]:
    """Every field of an entry, as values that are equal exactly where two entries mean the same. Validators are compared as
    objects: there is one for each text of a schema."""
    fields = msgspec.structs.asdict(entry)
    made = msgspec.structs.asdict(entry.implementation)
    fields["tool"] = entry.tool.model_dump(mode="json")
    fields["implementation"] = made | {"instance": type(made["instance"])}
    fields["hooks"] = [hook_fields(hook, app) for hook in entry.hooks]
    guards = entry.guards
    fields["guards"] = None if guards is None else (guards.schema, guards.tier, guards.blocked, guards.queries)
    inner = entry.operations
    fields["operations"] = None if inner is None else {name: fields_of(one, app) for name, one in inner.items()}
    return fields


def hook_fields(hook: Any, app: App) -> tuple[Any, ...]:
    if not isinstance(hook, StageMarks):
        return (type(hook),)
    assert hook._mask == app.parts.redactor.mask, "the stages of one App are masked by another"
    return type(hook), hook.output_bytes, hook._without


def all_fields(settings: str) -> dict[str, dict[str, Any]]:
    app = app_of(settings)
    return {name: fields_of(entry, app) for name, entry in entries_of(app).items()}


@pytest.mark.requirement("TOOL-5", "TIER-7")
def test_every_field_of_an_entry_is_what_an_app_alone_in_its_process_compiles() -> None:
    alone = {}
    for settings in SETTINGS:
        forget_all()
        alone[settings] = all_fields(settings)
    forget_all()
    for order in (SETTINGS, [*SETTINGS][::-1]):  # the second time, all of it has been compiled before
        for settings in order:
            assert all_fields(settings) == alone[settings], settings
    assert len(alone["as they are"]) > 40
    for settings in SETTINGS:
        if settings not in ("as they are", "hook seconds"):
            assert alone[settings] != alone["as they are"], f"{settings}: they make no difference"


@pytest.mark.requirement("TOOL-5", "TIER-7")
async def test_apps_with_other_settings_have_other_tiers_and_fingerprints_side_by_side() -> None:
    async with app_of("as they are") as plain, app_of("tiers") as raised, app_of("other tiers") as other:
        found = [app.parts.catalog.resolve("calculator", LOCAL.tenant) for app in (plain, raised, other)]
        assert [entry.tier for entry in found] == ["read_only", "execute", "write"]
        assert len({entry.fingerprint for entry in found}) == 3
        said = [await app.invoke("calculator", {"expression": "1+1"}) for app in (plain, raised, other)]
        assert [outcome.pending is not None for outcome in said] == [False, True, False]
        known = [await app.parts.store.read(known_tools()) for app in (plain, raised, other)]
        assert [rows["calculator"][0] for rows in known] == [entry.fingerprint for entry in found]


@pytest.mark.requirement("TOOL-1")
async def test_what_one_app_changes_in_a_definition_is_changed_in_no_other() -> None:
    async with app_of("as they are") as first:
        entry = first.parts.catalog.resolve("git", LOCAL.tenant)
        entry.tool.input_schema["properties"].clear()
        entry.tool.operations.clear()
        entry.defaults["operation"] = "push"
        async with app_of("as they are") as second:
            later = second.parts.catalog.resolve("git", LOCAL.tenant)
            assert later.tool.input_schema["properties"] and later.tool.operations and "operation" not in later.defaults
            assert later.fingerprint == entry.fingerprint


@pytest.mark.requirement("TOOL-1")
async def test_the_hooks_of_a_built_in_tool_are_made_for_each_app_by_its_own_resolver() -> None:
    made: list[Any] = []

    def resolve(kind: type) -> Any:
        made.append(kind())
        return made[-1]

    async with app_of("as they are") as first:
        second = app_of("as they are")
        second.resolve_hooks_with(resolve)
        async with second:
            hooks = [app.parts.catalog.resolve("deep_reasoning", LOCAL.tenant).hooks for app in (first, second)]
            assert hooks[1][0] in made and len(hooks[0]) == len(hooks[1]) == 1 and hooks[0] != hooks[1]
