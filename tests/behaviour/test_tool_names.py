"""Names: exact, short, taken once. Tiers: raised by whatever admits more risk, never lowered."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate import DefinitionError, Tool, tool
from toolgate.mcp.catalog_entries import prefixed
from toolgate.model import SOURCES, TIERS, TOOL_NAME, Entry, Source, Tier
from toolgate.registry.compile import DefinitionRules, compile_entry, entry_of
from toolgate.registry.effective_tier import effective_tier
from toolgate.testing import memory_app


@tool(tier="read_only")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.requirement("TOOL-4")
@pytest.mark.parametrize(
    "name",
    ["Add", "ADD", " add", "add ", "add\n", "add\0", "\u0430dd", "\uff41dd", "a\u200bdd", "ad", "addd", "a*", "add/", ""],
)
async def test_a_name_that_is_not_exactly_the_tools_name_is_no_tool(name: str) -> None:
    async with memory_app() as app:
        app.register(add)
        assert (await app.invoke("add", {"a": 1, "b": 2})).output == 3
        outcome = await app.invoke(name, {"a": 1, "b": 2})
    assert outcome.error is not None
    assert outcome.error.code == "TOOL_NOT_FOUND"


@pytest.mark.requirement("TOOL-4")
@given(name=st.text(max_size=70))
def test_a_name_is_a_letter_then_letters_digits_underscores_and_hyphens_64_at_most(name: str) -> None:
    rest = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    good = 1 <= len(name) <= 64 and set(name) <= rest and name[0].isalpha()
    assert bool(TOOL_NAME.match(name)) == good


@pytest.mark.requirement("TOOL-4")
def test_a_name_may_have_64_characters_and_no_more() -> None:
    assert Tool(name="x" * 64, description="Long.").name == "x" * 64
    with pytest.raises(ValueError, match="at most 64 characters"):
        Tool(name="x" * 65, description="Longer.")


def entry(source: Source) -> Entry:
    tenant = "acme" if source == "dynamic" else None
    return compile_entry(Tool(name="taken", description=f"From {source}.", source=source, tenant=tenant), None)


PAIRS = [(first, second) for index, first in enumerate(SOURCES) for second in SOURCES[index:]]


@pytest.mark.requirement("TOOL-4")
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_of_two_tools_of_one_name_the_later_source_is_refused(first: Source, second: Source) -> None:
    app = memory_app()
    app.register(entry(first))
    with pytest.raises(DefinitionError, match=f"the name is taken by a tool of source {first}"):
        app.register(entry(second))
    assert app.parts.catalog.resolve("taken", "acme").tool.source == first


@pytest.mark.requirement("TOOL-4")
@pytest.mark.parametrize(("first", "second"), [(first, second) for first, second in PAIRS if first != second])
def test_it_is_refused_also_if_it_was_there_before(first: Source, second: Source) -> None:
    app = memory_app()
    app.register(entry(second))
    app.register(entry(first))
    assert app.parts.catalog.resolve("taken", "acme").tool.source == first
    if second != "dynamic":
        assert [problem.where for problem in app.tools.problems] == ["taken"]
        assert f"the name is taken by a tool of source {first}" in app.tools.problems[0].why


@pytest.mark.requirement("TOOL-4")
async def test_a_builtin_keeps_its_name_whoever_came_before_it() -> None:
    async def echo() -> str:
        """Not the real one."""
        return "mine"

    app = memory_app()
    app.register(tool(tier="read_only")(echo))
    async with app:
        assert (await app.invoke("echo", {"text": "theirs"})).output == {"text": "theirs"}
        assert [("'echo'" in problem.why, __file__ in problem.where) for problem in app.tools.problems] == [(True, True)]


PARTS = st.text(max_size=80) | st.from_regex(r"[a-z_]{1,70}", fullmatch=True)


@pytest.mark.requirement("TOOL-4")
@given(server=PARTS, name=PARTS)
def test_the_name_of_a_tool_of_an_mcp_server_is_always_a_name_and_always_the_same(server: str, name: str) -> None:
    made = prefixed(server, name)
    assert TOOL_NAME.match(made)
    assert made == prefixed(server, name)
    plain = f"mcp_{server}_{name}"
    assert made == plain if server and name and TOOL_NAME.match(plain) else made != plain


@pytest.mark.requirement("TOOL-4")
@given(first=st.tuples(PARTS, PARTS), second=st.tuples(PARTS, PARTS))
def test_two_tools_of_mcp_servers_share_a_name_only_if_it_is_their_plain_one(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    if prefixed(*first) == prefixed(*second):
        assert "_".join(first) == "_".join(second)


@pytest.mark.requirement("TOOL-4")
def test_names_that_look_alike_once_shortened_stay_apart() -> None:
    long = "x" * 80
    pairs = [("a", long), ("a", long + "y"), ("a_x", long[:-2]), ("a ", "b"), ("a.", "b"), ("a", "ä"), ("a", "\ud800"),
             ("a\0", "b"), ("a", "\0b"), ("", ""), ("_", "")]  # fmt: skip
    assert len({prefixed(*pair) for pair in pairs}) == len(pairs)
    assert prefixed("filesystem", "read_file") == "mcp_filesystem_read_file"


# ------------------------------------------------------------------------------------------------------------- tiers

HINTS = st.fixed_dictionaries(
    {}, optional={name: st.booleans() for name in ("readOnlyHint", "destructiveHint", "openWorldHint", "idempotentHint")}
)
TIER = st.sampled_from(TIERS)
ACTION = st.sampled_from(["read", "list", "delete", "remove_file", "drop", "truncate"])


def made(tier: Tier, hints: dict[str, bool], actions: list[str]) -> Tool:
    capabilities = [{"action": action} for action in actions]
    return Tool.model_validate(
        {"name": "t", "description": "T.", "tier": tier, "annotations": hints, "capabilities": capabilities}
    )


@pytest.mark.requirement("TOOL-5")
@given(tier=TIER, hints=HINTS, actions=st.lists(ACTION), override=st.none() | TIER)
def test_the_effective_tier_is_never_below_what_anything_admits(
    tier: Tier, hints: dict[str, bool], actions: list[str], override: Tier | None
) -> None:
    rank = TIERS.index(effective_tier(made(tier, hints, actions), override))
    assert rank >= TIERS.index(tier)
    if override is not None:
        assert rank >= TIERS.index(override)
    writes = hints.get("readOnlyHint") is False or hints.get("destructiveHint") or set(actions) - {"read", "list"}
    assert rank >= (TIERS.index("write") if writes else 0)
    assert rank >= (TIERS.index("external_api") if hints.get("openWorldHint") else 0)


@pytest.mark.requirement("TOOL-5")
@given(tier=TIER, hints=HINTS, actions=st.lists(ACTION), more=st.lists(ACTION), override=TIER)
def test_to_admit_more_never_lowers_the_tier(
    tier: Tier, hints: dict[str, bool], actions: list[str], more: list[str], override: Tier
) -> None:
    before = TIERS.index(effective_tier(made(tier, hints, actions)))
    risky = {**hints, "openWorldHint": True}
    for after in (
        effective_tier(made(tier, hints, actions + more)),
        effective_tier(made(tier, hints, actions), override),
        effective_tier(made(tier, risky, actions)),
        effective_tier(made(TIERS[min(TIERS.index(tier) + 1, 3)], hints, actions)),
    ):
        assert TIERS.index(after) >= before


@pytest.mark.requirement("TOOL-5")
@given(tier=TIER)
def test_nothing_else_raises_it(tier: Tier) -> None:
    harmless = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}
    assert effective_tier(made(tier, {}, [])) == effective_tier(made(tier, harmless, ["read"])) == tier


@pytest.mark.requirement("TOOL-5")
@pytest.mark.parametrize(
    ("override", "tier", "status"),
    [("write", "write", "success"), ("execute", "execute", "pending"), (None, "read_only", "success")],
)
async def test_an_override_in_the_settings_raises_the_tier_that_governs_the_call(
    override: str | None, tier: str, status: str
) -> None:
    async with memory_app(tier_overrides={"add": override} if override else {}) as app:
        app.register(add)
        outcome = await app.invoke("add", {"a": 1, "b": 2})
        assert (app.parts.catalog.resolve("add", "default").tier, outcome.status) == (tier, status)


@pytest.mark.requirement("TOOL-5")
def test_an_override_cannot_lower_a_tier_and_must_be_one() -> None:
    def wipe() -> None:
        """Wipe."""

    declared: Any = tool(tier="external_api")(wipe)
    assert entry_of(declared, rules=DefinitionRules({"wipe": "read_only"})).tier == "external_api"
    with pytest.raises(DefinitionError) as caught:
        entry_of(declared, rules=DefinitionRules({"wipe": "harmless"}))
    assert [fault.path for fault in caught.value.faults] == ["tier"]
