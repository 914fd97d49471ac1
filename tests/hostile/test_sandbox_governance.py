"""Code in the sandbox against the rules round it: what it asks of the host is governed like any call, and is on record."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import indent
from time import time_ns
from typing import Any

import pytest

from tests.patience import until
from tests.secret_use import named
from toolgate import Actor, App, DefinitionError, InvokeContext, Outcome, tool
from toolgate.gates.approval.request import ApprovalRequest
from toolgate.store import audit_log

pytestmark = pytest.mark.requirement("SBX-1", "TIER-8")
ACME, GLOBEX = Actor("acme", user="ann"), Actor("globex", user="gus")
BUILDER = Actor("acme", "builder", "bob")
SECRET = "correct-horse-battery-staple-42"
TRY_ALL = """\
export async function execute(args, context) {
  const { fs, executor } = context.platform;
  const ways = {
    own: () => fs.readFile("notes.txt"),
    dots: () => fs.readFile("../../etc/passwd"),
    linkWithin: () => fs.readFile("within"),
    linkOut: () => executor.execute("ln", ["-s", "../elsewhere/private.txt", "more"]).then(() => fs.readFile("out")),
    writeThroughLink: () => fs.writeFile("out", "changed"),
    command: () => executor.execute("cat", ["notes.txt"]),
  };
  const found = {};
  for (const [name, way] of Object.entries(ways)) {
    try { found[name] = await way(); } catch (error) { found[name] = error.code; }
  }
  return found;
}
"""
RUN = """\
def execute(args, context):
    found = []
    for first, *rest in args["lines"]:
        try:
            found.append(context.platform.executor.execute(first, rest)["exitCode"])
        except Exception as error:
            found.append(error.code)
    return found
"""
TELL_ALL = """\
def execute(args, context):
    text = args["text"]
    print(text)
    context.logger.info("given: " + text)
    context.platform.fs.exists(text)
    raise ValueError(text)
"""


def tool_file(name: str, code: str, *, runtime: str = "python", risk: str = "low", allow: Sequence[str] = ()) -> str:
    permissions = {"riskLevel": risk, **({"allowlist": list(allow)} if allow else {})}
    head = f"name: {name}\ndescription: Attack.\nschema: {{type: object}}\nruntime: {runtime}\n"
    return f"{head}permissions: {json.dumps(permissions)}\ncode: |\n{indent(code, '  ')}"


class Lab:
    """An App with custom tools, a workspace for the session s, and a person who says yes to everything."""

    def __init__(self, app: App, folder: Path) -> None:
        self.app = app
        self.home = folder / "home"
        self.work = folder / "work"
        self.asked: list[ApprovalRequest] = []

    def agree(self, request: ApprovalRequest) -> bool:
        self.asked.append(request)
        return True

    async def call(self, name: str, arguments: dict[str, Any] | None = None, actor: Actor = ACME, **more: Any) -> Outcome:
        return await self.app.invoke(name, arguments or {}, **{"actor": actor, "session": "s", **more})

    async def ends(self, parent: str) -> list[tuple[str, str, dict[str, Any]]]:
        """How the calls ended that a call made: tool, status and record of each, in their order."""
        await self.app.flush()
        rows = [
            (row[5], row[6], json.loads(row[7]))
            for row in await self.app.parts.store.read(audit_log.latest(200))
            if row[2] == "end"
        ]
        return [row for row in rows if row[2].get("parent") == parent]


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    monkeypatch.setenv("TOOLGATE_SECRET_PASSPHRASE", SECRET)
    tools = {
        "try_all": tool_file("try_all", TRY_ALL, runtime="typescript", risk="high", allow=["ln"]),
        "agreed": tool_file("agreed", RUN, risk="high", allow=["touch", "echo*", "sleep", "sudo", "rm", "find"]),
        "unasked": tool_file("unasked", RUN, allow=["touch"]),
        "tell_all": tool_file("tell_all", TELL_ALL),
        "put": tool_file("put", 'def execute(args, context):\n    context.platform.fs.write_file("notes.txt", "other")\n'),
    }
    (tmp_path / "home" / "tools").mkdir(parents=True)
    for name, text in tools.items():
        (tmp_path / "home" / "tools" / f"{name}.yml").write_text(text)
    for name in ("work", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "work" / "notes.txt").write_text("notes")
    (tmp_path / "elsewhere" / "private.txt").write_text("private")
    async with App.open(home=tmp_path / "home", secrets=named("PASSPHRASE", "tell_all", source="custom")) as app:
        lab = Lab(app, tmp_path)
        app.sessions.work_in("s", lab.work, tenant="acme", user="ann")
        app.approvals.add_approver(lab.agree)
        yield lab


def code_of(outcome: Outcome) -> str | None:
    return None if outcome.error is None else outcome.error.code


async def test_what_a_tool_may_not_do_is_denied_to_its_code_and_the_denial_is_on_record(lab: Lab) -> None:
    (lab.work / "within").symlink_to("notes.txt")
    (lab.work / "out").symlink_to("../elsewhere/private.txt")
    outcome = await lab.call("try_all")
    no = "SECURITY_VIOLATION"
    assert outcome.output == {
        "own": "notes", "dots": no, "linkWithin": "notes", "linkOut": no, "writeThroughLink": no, "command": no,
    }, outcome  # fmt: skip
    assert not (lab.work / "more").is_symlink(), "links are not brought in"
    assert (lab.work.parent / "elsewhere" / "private.txt").read_text() == "private"
    denied = [(tool, body["code"]) for tool, status, body in await lab.ends(outcome.id) if status == "denied"]
    assert denied == [("read_file", no), ("read_file", no), ("write_file", no), ("execute_command", no)]


async def test_who_agreed_to_a_tool_agreed_to_its_commands_and_to_nothing_else(lab: Lab) -> None:
    lines = [
        ["touch", "made.csv"], ["echo", "$(id)"], ["echo; id"], ["sudo", "id"], ["rm", "-rf", "."], ["./touch", "x"],
        ["env", "id"], ["find", ".", "-exec", "id", ";"], ["find", ".", "-delete"], ["touch", "/etc/passwd"],
        ["touch", ".env"], ["tou\u0441h", "x"], ["cat", "notes.txt"],
    ]  # fmt: skip
    (lab.work / "touch").write_text("#!/bin/sh\necho shadow > shadow\n")
    (lab.work / "touch").chmod(0o755)
    lab.work.chmod(0o777)
    outcome = await lab.call("agreed", {"lines": lines})
    assert outcome.output == [0, 0] + ["SECURITY_VIOLATION"] * (len(lines) - 2)
    assert [request.tool for request in lab.asked] == ["agreed"]
    assert (lab.work / "made.csv").exists()
    assert not (lab.work / "shadow").exists()
    ends = await lab.ends(outcome.id)
    assert [status for _, status, _ in ends] == ["success", "success"] + ["denied"] * (len(lines) - 2)


async def test_what_nobody_was_asked_about_asks_for_each_command(lab: Lab) -> None:
    lab.work.chmod(0o777)
    outcome = await lab.call("unasked", {"lines": [["touch", "a"], ["touch", "b"]]})
    assert outcome.output == [0, 0]
    assert [(request.tool, request.arguments["args"]) for request in lab.asked] == [
        ("execute_command", ["a"]),
        ("execute_command", ["b"]),
    ]


@pytest.mark.requirement("AGENT-4")
async def test_consent_to_a_program_is_none_to_what_the_tools_that_it_calls_run(lab: Lab) -> None:
    lab.work.chmod(0o777)
    program = 'tools.unasked(lines=[["touch", "a"]])'
    outcome = await lab.call("run_program", {"language": "python", "code": program})
    assert outcome.ok, outcome
    assert [request.tool for request in lab.asked] == ["run_program", "execute_command"]


async def test_a_tool_that_is_off_is_off_for_code_too(lab: Lab) -> None:
    await lab.app.tools.set_enabled("execute_command", False)
    outcome = await lab.call("agreed", {"lines": [["touch", "made"]]})
    assert outcome.output == ["TOOL_NOT_FOUND"]
    assert not (lab.work / "made").exists()


@pytest.mark.requirement("TIER-7")
async def test_one_approval_of_a_tool_lets_its_commands_run_once(tmp_path: Path) -> None:
    (tmp_path / "home" / "tools").mkdir(parents=True)
    (tmp_path / "home" / "tools" / "agreed.yml").write_text(tool_file("agreed", RUN, risk="high", allow=["mkdir"]))
    async with App.open(home=tmp_path / "home") as app:
        waiting = await app.invoke("agreed", {"lines": [["mkdir", "once"]]}, actor=ACME, session="s")
        assert waiting.pending is not None
        await app.approvals.answer(waiting.pending.id, True, actor=Actor(ACME.tenant, user="boss"))
        found = await asyncio.gather(*(app.approvals.resume(waiting.pending.id, actor=ACME) for _ in range(3)))
        assert [outcome.output for outcome in found if outcome.ok] == [[0]]
        assert [code_of(outcome) for outcome in found if not outcome.ok] == ["PERMISSION_DENIED"] * 2


@pytest.mark.requirement("REG-5", "TIER-3")
async def test_code_that_is_sent_in_is_of_tier_execute_and_allows_itself_nothing(lab: Lab) -> None:
    await lab.app.policy.allow_adding_tools("builder")
    fields: dict[str, Any] = {
        "name": "sent", "description": "Harmless.", "kind": "sandbox", "tier": "read_only",
        "input_schema": {"type": "object"}, "program": {"runtime": "python", "code": RUN},
    }  # fmt: skip
    wider = {**fields, "source": "custom", "tenant": None, "program": {**fields["program"], "allowlist": ["touch"]}}
    with pytest.raises(DefinitionError) as caught:
        await lab.app.tools.add_dynamic(wider, BUILDER)
    assert sorted(fault.path for fault in caught.value.faults) == ["program.allowlist", "source", "tenant"]
    made = await lab.app.tools.add_dynamic(fields, BUILDER)
    assert (made.source, made.tenant) == ("dynamic", "acme")
    outcome = await lab.call("sent", {"lines": [["touch", "made"]]}, BUILDER)
    assert outcome.output == ["SECURITY_VIOLATION"], outcome
    assert [(request.tool, request.tier) for request in lab.asked] == [("sent", "execute")]
    assert code_of(await lab.call("sent", {"lines": []}, GLOBEX)) == "TOOL_NOT_FOUND"


async def test_files_of_a_session_are_not_those_of_another_tenant_by_any_way(lab: Lab) -> None:
    assert (await lab.call("write_file", {"path": "own.txt", "content": "of acme"}, session="t")).ok
    (own,) = (lab.home / "sessions").iterdir()
    for path in ("own.txt", str(own / "own.txt"), f"../{own.name}/own.txt"):
        outcome = await lab.call("read_file", {"path": path}, GLOBEX, session="t")
        assert code_of(outcome) in ("INVALID_INPUT", "SECURITY_VIOLATION"), outcome
    look = f"import os\n[sorted(os.listdir({str(own.parent)!r})), os.path.exists({str(own)!r}), os.listdir('.')]"
    outcome = await lab.call("code_execute", {"code": look, "session_files": True}, GLOBEX, session="t")
    folders, seen, here = outcome.output["result"]
    assert own.name not in folders
    assert (seen, here) == (False, [])


@pytest.mark.requirement("SBX-3")
async def test_a_secret_that_code_was_given_is_in_no_outcome_and_on_no_record(lab: Lab) -> None:
    outcome = await lab.call("tell_all", {"text": "{{secret:PASSPHRASE}}"})
    assert code_of(outcome) == "SANDBOX_ERROR"
    assert outcome.error is not None
    assert SECRET not in repr(outcome)
    assert "[REDACTED]" in outcome.error.message
    assert [tool for tool, _, _ in await lab.ends(outcome.id)] == ["list_directory"]
    records = repr(await lab.app.parts.store.read(audit_log.latest(200)))
    assert "given: [REDACTED]" in records
    assert SECRET not in records


@pytest.mark.requirement("SBX-3", "IO-4")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("code_execute", {"code": "[ord(c) for c in '{{secret:OTHER}}']"}),
        ("run_program", {"code": "return '{{secret:OTHER}}'.length"}),
        ("execute_command", {"command": "git commit", "args": ["-m", "{{secret:OTHER}}"]}),
        ("write_file", {"path": "a.txt", "content": "{{secret:OTHER}}"}),
        ("tell_all", {"text": "{{secret:OTHER}}"}),
    ],
)
async def test_what_can_say_a_secret_in_other_words_is_given_it_only_by_name(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, name: str, arguments: dict[str, Any]
) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_OTHER", "hunter2hunter2")
    outcome = await lab.call(name, arguments)
    assert code_of(outcome) == "PERMISSION_DENIED", outcome
    assert "secrets: {use:" in str(outcome.error.suggestion) if outcome.error else False


@pytest.mark.requirement("SBX-3", "IO-4")
async def test_code_can_name_no_secret_where_nobody_sees_it(lab: Lab) -> None:
    code = 'tools.echo(text="{{sec" + "ret:PASSPHRASE}}")["text"]'
    outcome = await lab.call("run_program", {"code": code, "language": "python"})
    assert code_of(outcome) == "SANDBOX_ERROR"
    assert "cannot name secrets" in str(outcome.error)


@pytest.mark.requirement("AGENT-4", "COST-2")
async def test_what_a_programs_calls_call_in_turn_counts_towards_the_same_spending_limit(lab: Lab) -> None:
    @tool(tier="read_only", cost=0.5)
    async def paid() -> int:
        """Costs half a dollar."""
        return 1

    @tool(tier="read_only")
    async def through(ctx: InvokeContext) -> str:
        """Calls it."""
        return (await ctx.call_tool("paid")).status

    lab.app.tools.register_many([paid, through])
    code = "[tools.through(), tools.through(), tools.through()]"
    outcome = await lab.call("run_program", {"code": code, "language": "python", "max_cost_usd": 1.2})
    assert outcome.output["result"] == ["success", "success", "denied"]
    assert outcome.output["cost_usd"] == 1.0


@pytest.mark.requirement("TIER-2")
async def test_what_code_wrote_can_be_put_back_by_the_call_that_wrote_it(lab: Lab) -> None:
    outcome = await lab.call("put")
    assert outcome.ok, outcome
    assert (lab.work / "notes.txt").read_text() == "other"
    ((tool, status, _),) = await lab.ends(outcome.id)
    assert (tool, status) == ("write_file", "success")
    (call_id,) = {
        row[3] for row in await lab.app.parts.store.read(audit_log.latest(200)) if (row[2], row[5]) == ("end", "write_file")
    }
    await lab.app.undo.revert(call_id, actor=ACME)
    assert (lab.work / "notes.txt").read_text() == "notes"


@pytest.mark.requirement("TIER-5", "SBX-3")
async def test_code_can_not_hide_in_what_looks_like_a_secret(lab: Lab) -> None:
    code = '"""-----BEGIN PRIVATE KEY-----\n"""\nprint("hidden")\n"""\n-----END PRIVATE KEY-----"""'
    await lab.call("code_execute", {"code": code})
    [request] = lab.asked
    assert request.arguments["code"] == code
    assert 'print(\\"hidden\\")' in request.text()


def running(mark: str) -> bool:
    """Whether a process of this machine has this word among its arguments."""
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and f"\0{mark}\0".encode() in (folder / "cmdline").read_bytes():
                return True
    return False


@pytest.mark.requirement("SBX-3")
async def test_when_the_caller_goes_away_the_command_of_its_code_goes_too(lab: Lab) -> None:
    mark = f"{time_ns() % 10**9 + 10**9}.25"
    calling = asyncio.ensure_future(lab.call("agreed", {"lines": [["sleep", mark]]}))
    await until(lambda: running(mark), "it runs")
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await until(lambda: not running(mark), "it has ended")
