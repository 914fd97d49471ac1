"""A tool with operations: each call is governed by the operation that it names."""

from typing import Any, Literal

import pytest

from toolgate import Actor, Answer, App, ApprovalRequest, Capability, DefinitionError, ErrorCase, GrantTerms, Operation, tool

ran: list[str] = []


@tool(
    tier="read_only",
    operations={
        "look": "read_only",
        "put": "write",
        "sign": Operation(tier="write", requires_confirmation=True),
        "delete": "write",
        "run": "execute",
    },
    capabilities=[Capability(action="delete", description="Delete the box")],
    errors=[ErrorCase("INVALID_INPUT", when="The box is shut.", advice="Open it.")],
)
async def box(operation: Literal["look", "put", "sign", "delete", "run"], thing: str = "") -> str:
    """Do something with a box."""
    ran.append(operation)
    return f"{operation} {thing}"


@pytest.fixture
async def app() -> Any:
    ran.clear()
    async with App.open(database_url="memory://") as app:
        app.register(box)
        yield app


@pytest.mark.requirement("TIER-2")
@pytest.mark.parametrize(
    ("operation", "status", "tier"),
    [
        ("look", "success", "read_only"),
        ("put", "success", "write"),
        ("sign", "pending", "write"),
        ("delete", "pending", "write"),
        ("run", "pending", "execute"),
    ],
)
async def test_a_call_is_governed_by_its_operation(app: App, operation: str, status: str, tier: str) -> None:
    outcome = await app.invoke("box", {"operation": operation})
    assert outcome.status == status
    assert ran == ([operation] if status == "success" else [])
    assert (await app.explain("box", {"operation": operation})).tier == tier
    if outcome.pending is not None:
        (asked,) = await app.approvals.list()
        assert (asked.request.tier, asked.request.destructive) == (tier, operation == "delete")


@pytest.mark.requirement("TIER-2", "IO-1")
@pytest.mark.parametrize("arguments", [{}, {"operation": "burn"}, {"operation": None}, {"operation": ["look"]}])
async def test_a_call_without_a_known_operation_is_refused(app: App, arguments: dict[str, Any]) -> None:
    outcome = await app.invoke("box", arguments)
    assert outcome.error is not None and outcome.error.code == "VALIDATION_ERROR"
    assert not ran
    assert (await app.explain("box", arguments)).verdict == "deny"


@pytest.mark.requirement("TIER-7")
async def test_a_grant_is_for_one_operation(app: App) -> None:
    await app.grants.create("box", GrantTerms("user", seconds=60), operation="sign")
    assert (await app.invoke("box", {"operation": "sign"})).ok
    assert (await app.invoke("box", {"operation": "run"})).status == "pending"
    with pytest.raises(Exception, match="granted by operation: name one of look, put, sign, delete, run"):
        await app.grants.create("box", GrantTerms("user", seconds=60))
    with pytest.raises(Exception, match="destructive"):
        await app.grants.create("box", GrantTerms("user", seconds=60), operation="delete")


@pytest.mark.requirement("TIER-7")
async def test_an_approval_for_one_operation_is_not_for_another(app: App) -> None:
    asked = await app.invoke("box", {"operation": "sign"})
    assert asked.pending is not None
    await app.approvals.answer(asked.pending.id, Answer("approve", by="ada"))
    other = await app.invoke("box", {"operation": "delete"}, approval=asked.pending.id)
    assert not other.ok and not ran
    assert (await app.invoke("box", {"operation": "sign"}, approval=asked.pending.id)).ok


@pytest.mark.requirement("TIER-7")
async def test_a_person_cannot_edit_one_operation_into_another(app: App) -> None:
    def edit(_request: ApprovalRequest) -> Answer:
        return Answer("approve", by="ada", arguments={"operation": "delete", "thing": "all"})

    app.approvals.add_approver(edit)
    outcome = await app.invoke("box", {"operation": "sign"})
    assert not outcome.ok and not ran


@pytest.mark.requirement("POL-1")
async def test_a_policy_on_tiers_sees_the_tier_of_the_operation(tmp_path: Any) -> None:
    ran.clear()
    rego = """package soma.policy
import rego.v1
default allow := false
allow if input.context.tier == "read_only"
"""
    (tmp_path / "tiers.rego").write_text(rego)
    async with App.open(database_url="memory://", policy={"file": tmp_path / "tiers.rego"}) as app:
        app.register(box)
        assert (await app.invoke("box", {"operation": "look"})).ok
        refused = await app.invoke("box", {"operation": "put"})
        assert refused.error is not None and refused.error.code in ("PERMISSION_DENIED", "TOOL_NOT_FOUND")
        assert ran == ["look"]
        assert (await app.explain("box", {"operation": "put"})).verdict == "deny"


@pytest.mark.requirement("TOOL-1")
async def test_clients_are_told_the_most_that_a_tool_may_do(app: App) -> None:
    (told,) = [one for one in await app.tools.export("mcp", Actor("default", user="u")) if one["name"] == "box"]
    assert told["annotations"] == {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}


@pytest.mark.requirement("TOOL-1")
async def test_operations_that_the_schema_does_not_list_are_refused(app: App) -> None:
    @tool(tier="read_only", operations={"look": "read_only"})
    async def other(operation: Literal["look", "burn"]) -> None:
        """Do something."""

    with pytest.raises(DefinitionError, match="operations: they must be the values"):
        app.register(other)


@pytest.mark.requirement("TOOL-1")
@pytest.mark.parametrize(("lists", "shown"), [(False, ["box"]), (True, ["also", "box"])])
async def test_a_second_name_is_listed_to_models_only_if_the_settings_say_so(lists: bool, shown: list[str]) -> None:
    from toolgate.registry.compile import entry_of

    @tool(tier="read_only", alias_of="box")
    async def also(thing: str = "") -> str:
        """Look into the box."""
        return thing

    async with App.open(database_url="memory://", list_aliases=lists) as app:
        app.register(box)
        app.tools.register(entry_of(also, "builtin"))
        listed = [one["name"] for one in await app.tools.export("mcp")]
        assert [name for name in listed if name in ("also", "box")] == shown
        assert (await app.invoke("also", {"thing": "x"})).output == "x"
        await app.tools.disable("box")
        assert "also" not in [one["name"] for one in await app.tools.export("mcp")], "off by either name"


@pytest.mark.requirement("TIER-2")
async def test_an_override_raises_every_operation() -> None:
    ran.clear()
    async with App.open(database_url="memory://", tier_overrides={"box": "execute"}) as app:
        app.register(box)
        for operation in ("look", "put", "run"):
            assert (await app.invoke("box", {"operation": operation})).status == "pending"
            assert (await app.explain("box", {"operation": operation})).tier == "execute"
        assert not ran
