"""Who may answer, how many must agree, that nobody approves their own call, and how much people are asked."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.behaviour.asking import ADA, BOSS, Workshop, ask, let_pass, refused
from tests.examples import at_most
from tests.mcp_clients import ERAS, Person, connected, key_for
from tests.serving import serving
from tests.terminal import Terminal
from toolgate import Actor, App
from toolgate.errors import SettingsError
from toolgate.gates.approval.request import Answer, ApprovalError, GrantTerms
from toolgate.model import LOCAL
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("TIER-10")

EVE = Actor("acme", user="eve")


def ruled(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"approvals": {"rules": list(rules), **more}}


async def run(app: App, actor: Actor = ADA) -> Any:
    return await app.invoke("run", {"task": "ls"}, actor=actor)


# -- lists


async def test_only_who_is_named_may_answer() -> None:
    work = Workshop()
    rule = {"tenant": "acme", "tool": "run", "approvers": ["boss"]}
    async with work.move_into(memory_app(**ruled(rule))) as app:
        id = await ask(app)
        assert "  Needs     1 to agree of boss" in (await app.parts.consent.questions.show(id, "acme")).request.text()
        for by in (EVE, Actor("acme", user="local"), ADA):
            for answer in (Answer("approve"), Answer("edit", arguments={"task": "pwd"})):
                with pytest.raises(ApprovalError, match="cannot answer"):
                    await app.parts.consent.questions.answer(id, answer, by, "cli")
        with pytest.raises(ApprovalError, match="cannot answer"):
            await app.parts.consent.questions.answer(id, Answer("reject"), EVE, "cli")
        app.approvals.add_approver(lambda _: Answer("approve", by="eve"))
        assert (await run(app)).status == "pending", "nor does a callback that names another"
        await app.parts.consent.questions.answer(id, Answer("approve"), BOSS, "cli")
        assert (await run(app)).ok
        for tool, tenant in (("send", "acme"), ("run", "globex")):  # which the rule is not for
            given_to = Actor(tenant, user="ada")
            other = await app.invoke(tool, {"to": "x"} if tool == "send" else {"task": "ls"}, actor=given_to)
            assert other.ok, other


async def test_all_rules_that_match_hold() -> None:
    rules = ({"tool": "r*", "approvers": ["boss", "eve"]}, {"tenant": "acme", "approvers": ["eve", "bob"], "quorum": 1})
    async with Workshop().move_into(memory_app(**ruled(*rules))) as app:
        id = await ask(app)
        for user in ("boss", "bob"):
            with pytest.raises(ApprovalError, match="cannot answer"):
                await app.parts.consent.questions.answer(id, Answer("approve"), Actor("acme", user=user), "cli")
        await app.parts.consent.questions.answer(id, Answer("approve"), EVE, "cli")
        assert (await run(app)).ok


@pytest.mark.parametrize(
    "rule",
    [{}, {"tool": "run"}, {"approvers": []}, {"approvers": ["a"], "quorum": 2}, {"approvers": ["a", "a"], "quorum": 2},
     {"approvers": ["bob", "Bob"], "quorum": 2}, {"approvers": ["bob", "b\u043eb ", "eve"], "quorum": 3},
     {"quorum": 0}, {"quorum": 1}, {"who": ["a"]}],
)  # fmt: skip
def test_a_rule_that_can_not_be_met_or_says_nothing_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"approvals\.rules"):
        memory_app(**ruled(rule))


def test_one_person_by_two_names_is_said_to_be_one() -> None:
    with pytest.raises(SettingsError, match="wants 2 to agree, and names 1; Bob and bob count as one person: name more"):
        memory_app(**ruled({"approvers": ["bob", "Bob"], "quorum": 2}))


@pytest.mark.parametrize(
    ("rules", "met"),
    [
        ([{"tool": "r*", "approvers": ["boss"]}, {"tenant": "acme", "approvers": ["eve"]}], False),
        ([{"tool": "run", "approvers": ["boss", "eve"]}, {"tool": "ru*", "quorum": 3}], False),
        ([{"tool": "a", "approvers": ["x", "y"]}, {"approvers": ["y", "z"]}, {"approvers": ["x", "z"]}], False),
        ([{"tool": "run", "approvers": ["boss"]}, {"tool": "send", "approvers": ["eve"]}], True),
        ([{"tenant": "acme", "approvers": ["boss"]}, {"tenant": "globex", "approvers": ["eve"]}], True),
        ([{"tool": "run", "approvers": ["boss", "eve"]}, {"tool": "ru*", "quorum": 2}], True),
    ],
)
def test_rules_that_can_not_be_met_together_are_refused(rules: list[dict[str, Any]], met: bool) -> None:
    if met:
        memory_app(**ruled(*rules))
        return
    with pytest.raises(SettingsError, match="no answer satisfies the rules 1, 2"):
        memory_app(**ruled(*rules))


@pytest.mark.parametrize(
    ("rule", "user", "asked"),
    [
        ({"approvers": ["ada"]}, "ada", False),
        ({"approvers": ["Ada"]}, "ada", False),
        ({"approvers": ["ada", "bob"], "quorum": 2}, "ada", False),
        ({"approvers": ["ada", "bob"], "quorum": 2}, "eve", True),
        ({"approvers": ["ada", "bob"]}, "ada", True),
    ],
)
async def test_a_call_that_only_its_asker_could_approve_is_refused_at_once(rule: Any, user: str, asked: bool) -> None:
    who = Actor("acme", user=user)
    async with Workshop().move_into(memory_app(**ruled(rule))) as app:
        outcome, told = await run(app, who), await app.explain("run", {"task": "ls"}, actor=who)
        assert (outcome.status == "pending") is asked, outcome
        assert told.verdict == ("ask" if asked else "deny")
        if not asked:
            assert outcome.error is not None
            assert (outcome.status, outcome.error.code) == ("denied", "PERMISSION_DENIED")
            assert f"nobody can approve it for {user}" in outcome.error.message
            assert await app.approvals.list(actor=BOSS) == [], "nobody is asked what nobody may answer"
    async with Workshop().move_into(memory_app(**ruled(rule, asker_may_answer="always"))) as app:
        assert (await run(app, who)).status == "pending"


# -- several


async def test_a_quorum_is_of_different_persons_and_one_no_is_enough(database: str, tmp_path: Path) -> None:
    work = Workshop()
    settings = ruled({"tool": "run", "quorum": 2})
    async with work.move_into(App.open(os.devnull, database_url=database, home=tmp_path, **settings)) as app:
        id = await ask(app)
        first = await app.parts.consent.questions.answer(id, Answer("approve"), BOSS, "cli")
        again = await app.parts.consent.questions.answer(id, Answer("approve"), BOSS, "cli")
        assert (first.state, first.agreed, again.state, again.agreed) == ("waiting", ("boss",), "waiting", ("boss",))
        assert (await run(app)).status == "pending"
        for answer in (Answer("edit", arguments={"task": "pwd"}), Answer("approve", grant=GrantTerms("user", 60))):
            with pytest.raises(ApprovalError, match="2 persons must agree"):
                await app.parts.consent.questions.answer(id, answer, EVE, "cli")
        with pytest.raises(ApprovalError, match="cannot answer"):
            await app.parts.consent.questions.answer(id, Answer("approve"), ADA, "mcp")
        done = await app.parts.consent.questions.answer(id, Answer("approve"), EVE, "cli")
        assert (done.state, done.answered_by) == ("approved", "boss, eve")
        assert (await run(app)).ok
        other = await ask(app)
        await app.parts.consent.questions.answer(other, Answer("approve"), BOSS, "cli")
        assert (await app.parts.consent.questions.answer(other, Answer("reject"), EVE, "cli")).state == "rejected"
        assert len(work.ran) == 1


async def test_two_who_agree_at_the_same_moment_in_two_processes_are_two(database: str, tmp_path: Path) -> None:
    works = Workshop(), Workshop()
    settings = ruled({"quorum": 2}) | {"database_url": database}
    async with (
        works[0].move_into(App.open(os.devnull, home=tmp_path / "a", **settings)) as one,
        works[1].move_into(App.open(os.devnull, home=tmp_path / "b", **settings)) as two,
    ):
        for number in range(10):
            task = {"task": str(number)}
            id = await ask(one, arguments=task)
            found = await asyncio.gather(
                one.parts.consent.questions.answer(id, Answer("approve"), BOSS, "cli"),
                two.parts.consent.questions.answer(id, Answer("approve"), EVE, "cli"),
                two.parts.consent.questions.answer(id, Answer("approve"), BOSS, "cli"),
                return_exceptions=True,
            )
            assert (await two.parts.consent.questions.status(id, "acme")).state == "approved", found
            outcomes = await asyncio.gather(*(app.invoke("run", task, actor=ADA) for app in (one, two)))
            assert sorted(outcome.status for outcome in outcomes) == ["pending", "success"]
        assert len(works[0].ran) + len(works[1].ran) == 10


async def test_approvers_of_one_process_are_asked_until_enough_agree() -> None:
    work = Workshop()
    async with work.move_into(memory_app(**ruled({"quorum": 2}))) as app:
        app.approvals.add_approver(lambda _: Answer("approve", by="boss"))
        assert (await run(app)).status == "pending"
        app.approvals.add_approver(lambda _: Answer("approve", by="eve"))
        assert (await run(app)).ok
        assert len(work.ran) == 1


USERS = ("ada", "boss", "eve", "local")
RULES = st.lists(
    st.builds(
        lambda names, quorum: {"approvers": names, "quorum": min(quorum, len(names))} if names else {"quorum": quorum + 1},
        st.lists(st.sampled_from(USERS), unique=True, max_size=4),
        st.integers(1, 3),
    ),
    max_size=2,
)
ANSWERS = st.lists(st.tuples(st.sampled_from(USERS), st.sampled_from(("approve", "approve", "reject"))), max_size=6)


def _expected(answers: list[tuple[str, str]], asker: str, may: set[str], quorum: int) -> str:
    """The state that answers lead to, in their order."""
    agreed: set[str] = set()
    for by, verdict in answers:
        if verdict == "reject" and (by in may or by == asker):
            return "rejected"
        if verdict == "approve" and by in may:
            agreed.add(by)
            if len(agreed) >= quorum:
                return "approved"
    return "waiting"


@given(RULES, st.sampled_from(("never", "local", "always")), st.sampled_from(("ada", "local")), ANSWERS)
@at_most(60)
def test_a_call_runs_exactly_if_enough_of_those_who_may_have_agreed(
    rules: list[dict[str, Any]], asker_may: str, asker: str, answers: list[tuple[str, str]]
) -> None:
    """Quorum by approvers by asker, against what the settings say in as many words."""
    lists = [set(rule["approvers"]) for rule in rules if "approvers" in rule]
    quorum = max((rule["quorum"] for rule in rules), default=1)
    may = {name for name in USERS if all(name in named for named in lists)}
    if lists and len(may) < quorum:
        with pytest.raises(SettingsError, match="no answer satisfies"):
            memory_app(**ruled(*rules))
        return
    if not (asker_may == "always" or (asker_may == "local" and asker == "local" and not rules)):
        may -= {asker}
    expected = _expected(answers, asker, may, quorum)

    async def play() -> None:
        work = Workshop()
        actor = Actor("acme", user=asker)
        async with work.move_into(memory_app(**ruled(*rules, asker_may_answer=asker_may))) as app:
            if lists and len(may) < quorum:
                assert (await run(app, actor)).status == "denied", "nobody could agree to it"
                return
            id = await ask(app, actor=actor)
            state = "waiting"
            for by, verdict in answers:
                if state != "waiting":
                    break
                try:
                    said = await app.parts.consent.questions.answer(id, Answer(verdict), Actor("acme", user=by), "cli")  # type: ignore[arg-type]
                    state = said.state
                except ApprovalError:
                    pass
            assert state == expected
            assert (await run(app, actor)).ok == (expected == "approved")
            assert len(work.ran) == (expected == "approved")

    asyncio.run(play())


SPELLINGS = ("Boss", "\uff42oss", "boss\u2800", "bo\u017fs", " boss", "bos\u0455", "b\u043ess")


@pytest.mark.parametrize("other", SPELLINGS)
async def test_one_person_under_two_spellings_is_no_quorum(other: str) -> None:
    work = Workshop()
    async with work.move_into(memory_app(**ruled({"tool": "run", "quorum": 2}))) as app:
        id = await ask(app)
        await app.parts.consent.questions.answer(id, Answer("approve"), BOSS, "cli")
        for answer, by in ((Answer("approve"), other), (Answer("approve", by=other), "local")):
            again = await app.parts.consent.questions.answer(id, answer, Actor("acme", user=by), "cli")
            assert (again.state, again.agreed) == ("waiting", ("boss",))
        assert (await app.parts.consent.questions.answer(id, Answer("approve"), EVE, "cli")).answered_by == "boss, eve"


@pytest.mark.parametrize("other", ["Ada", "ada\u2800", "\uff41da", "\u0430da"])
async def test_who_asks_does_not_approve_under_another_spelling(other: str) -> None:
    async with Workshop().move_into(memory_app()) as app:
        id = await ask(app)
        with pytest.raises(ApprovalError, match="cannot answer"):
            await app.parts.consent.questions.answer(id, Answer("approve"), Actor("acme", user=other), "cli")
        with pytest.raises(ApprovalError, match="cannot answer"):
            await app.parts.consent.questions.answer(id, Answer("approve", by=other), BOSS, "cli")


# -- one's own


async def test_nobody_approves_their_own_call_but_the_person_at_this_machine() -> None:
    work = Workshop()
    async with work.move_into(memory_app()) as app:
        id = await ask(app)
        for through in ("cli", "python", "http", "console"):
            with pytest.raises(ApprovalError, match="asker_may_answer"):
                await app.parts.consent.questions.answer(id, Answer("approve"), ADA, through)
        with pytest.raises(ApprovalError, match="asker_may_answer"):
            await app.parts.consent.questions.answer(id, Answer("approve", by="ada"), BOSS, "cli")
        with pytest.raises(ApprovalError, match="asker_may_answer"):
            await app.grants.create("run", GrantTerms("user", 60), actor=ADA, by=ADA)
        app.approvals.add_approver(lambda request: Answer("approve", by=request.actor.user))
        assert (await run(app)).status == "pending"
        assert (await run(app, LOCAL)).ok
        assert (await app.parts.consent.questions.answer(id, Answer("reject"), ADA, "cli")).state == "rejected", (
            "but may take it back"
        )


async def test_a_name_with_marks_that_nobody_sees_is_still_the_asker() -> None:
    async with Workshop().move_into(memory_app()) as app:
        app.approvals.add_approver(lambda request: Answer("approve", by=request.actor.user))
        assert (await run(app, Actor("acme", user="ada\u2800"))).status == "pending"


@pytest.mark.parametrize("setting", ["never", "always"])
async def test_a_setting_says_whether_askers_answer(setting: str) -> None:
    async with Workshop().move_into(memory_app(approvals={"asker_may_answer": setting})) as app:
        app.approvals.add_approver(lambda request: Answer("approve", by=request.actor.user))
        status = "success" if setting == "always" else "pending"
        assert [(await run(app, actor)).status for actor in (ADA, LOCAL)] == [status] * 2


@pytest.mark.requirement("MCP-4")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "approvals",
    [{"asker_may_answer": "never"}, {"rules": [{"approvers": ["boss"]}]}, {"rules": [{"tool": "run", "quorum": 2}]}],
)
async def test_a_client_s_person_who_may_not_answer_is_not_asked(era: str, approvals: dict[str, Any]) -> None:
    work, person = Workshop(), Person(approve=True)
    async with work.move_into(memory_app(approvals=approvals)) as app, serving(app) as site:
        key = await key_for(app, ADA, may_approve=True)
        async with connected(site, key, era, elicitation_callback=person) as client:
            assert (await client.call_tool("run", {"task": "ls"})).is_error
        assert person.shown == [] and work.ran == []
        assert len(await app.approvals.list(actor=ADA)) == 1


@pytest.mark.requirement("DOOR-1")
def test_the_command_line_counts_who_agrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    monkeypatch.setenv("TOOLGATE_APPROVALS__RULES", '[{"tool": "write_file", "approvers": ["ann", "bob"], "quorum": 2}]')
    call = ("call", "write_file", "path=a.txt", "content=hello", "--json")
    id = terminal(*call).json["pending"]["id"]
    refused_ = terminal("approvals", "approve", id)
    assert (refused_.code, "local cannot answer" in refused_.err) == (1, True)
    assert terminal(*call, "--yes").code == 3, "nor does --yes count"
    first = terminal("approvals", "approve", id, "--user", "ann", "--run")
    assert (first.code, "Counted 1 of 2" in first.out) == (3, True)
    assert "Agreed    ann" in terminal("approvals", "show", id).out
    assert terminal("approvals", "approve", id, "--user", "bob", "--run").code == 0
    assert (terminal.folder / "a.txt").read_text() == "hello"


# -- grants


async def test_a_grant_stands_in_for_no_quorum_and_for_no_other_approver(database: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"database_url": database, "home": tmp_path}
    async with Workshop().move_into(App.open(os.devnull, **settings)) as app:
        await app.grants.create("run", GrantTerms("user", 60), actor=ADA, by=BOSS)
        assert (await run(app)).ok
    for rule, status in (
        ({"quorum": 2}, "pending"),
        ({"approvers": ["eve"]}, "pending"),
        ({"approvers": ["boss", "eve"]}, "success"),
    ):
        async with Workshop().move_into(App.open(os.devnull, **settings, **ruled(rule))) as app:
            assert (await run(app)).status == status
            verdict = (await app.explain("run", {"task": "ls"}, actor=ADA)).verdict
            assert verdict == {"pending": "ask", "success": "run"}[status]
            if status == "pending":
                with pytest.raises(ApprovalError):
                    await app.grants.create("run", GrantTerms("user", 60), actor=ADA, by=BOSS)


@pytest.mark.parametrize("scope", ["tenant", "persona"])
@pytest.mark.parametrize("how", ["answer", "grant"])
async def test_a_grant_to_all_does_not_cover_who_gave_it(scope: Any, how: str) -> None:
    """Whoever may not approve their own calls could else approve them all by agreeing to somebody else's."""
    work, terms = Workshop(), GrantTerms(scope, 60)
    boss, eve = Actor("acme", "analyst", "boss"), Actor("acme", "analyst", "eve")
    async with work.move_into(memory_app()) as app:
        if how == "grant":
            await app.grants.create("run", terms, actor=ADA, by=boss)
        else:
            await app.parts.consent.questions.answer(await ask(app), Answer("approve", grant=terms), boss, "cli")
        assert (await app.invoke("run", {"task": "theirs"}, actor=eve)).ok
        assert (await app.invoke("run", {"task": "mine"}, actor=boss)).status == "pending"
        assert (await app.explain("run", {"task": "mine"}, actor=boss)).verdict == "ask"
        await app.grants.create("run", terms, actor=boss, by=ADA)
        assert (await app.invoke("run", {"task": "mine"}, actor=boss)).ok, "somebody else's covers them"


async def test_a_grant_of_the_person_at_this_machine_covers_their_own_calls_too() -> None:
    work, me = Workshop(), Actor("acme", user=LOCAL.user)
    async with work.move_into(memory_app()) as app:
        await app.grants.create("run", GrantTerms("tenant", 60), actor=ADA)
        assert (await run(app, me)).ok
        assert (await run(app)).ok


@pytest.mark.requirement("POL-5", "DOOR-1")
async def test_an_exhausted_cap_is_said(tmp_path: Path) -> None:
    from decimal import Decimal

    async with Workshop().move_into(App.open(os.devnull, home=tmp_path)) as app:
        grant = await app.grants.create("send", GrantTerms("user", 60, Decimal("0.25")), actor=ADA, by=BOSS)
        for _ in range(2):
            explained = await app.explain("send", {"to": "bob"}, actor=ADA)
            assert (explained.verdict, "exhausted" in explained.reason) == ("run", False)
            assert (await app.invoke("send", {"to": "bob"}, actor=ADA)).ok
        explained = await app.explain("send", {"to": "bob"}, actor=ADA)
        assert explained.verdict == "ask"
        words = f"the cap of grant {grant.id} is exhausted: $0.20 of $0.25 are spent, and the call may cost $0.10"
        assert words in explained.reason


@pytest.mark.requirement("DOOR-1")
def test_grants_list_says_that_a_cap_is_exhausted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    terminal.add_tools('''
        from toolgate import tool

        @tool(tier="external_api", cost=0.10)
        async def send(to: str) -> str:
            """Send a letter."""
            return to
    ''')
    assert terminal("grants", "add", "send", "--for", "1h", "--cap", "0.15").code == 0
    assert "holds" in terminal("grants", "list").out
    assert terminal("call", "send", "to=bob").code == 0
    listed = terminal("grants", "list")
    assert "exhausted" in listed.out and "$0.10 of $0.15" in listed.out
    assert [one["exhausted"] for one in terminal("grants", "list", "--json").json["grants"]] == [True]
    assert terminal("call", "send", "to=bob").code == 3
    explained = terminal("explain", "send", "to=bob")
    assert (explained.code, "is exhausted: $0.10 of $0.15" in explained.out) == (3, True)


# -- how much people are asked


async def test_people_are_asked_so_much_in_an_hour_and_no_more(database: str, tmp_path: Path) -> None:
    work = Workshop()
    settings = {"approvals": {"questions_per_hour": 3, "tenant_questions_per_hour": 5}}
    async with work.move_into(App.open(os.devnull, database_url=database, home=tmp_path, **settings)) as app:
        asked = [await ask(app, arguments={"task": str(number)}) for number in range(3)]
        assert await ask(app, arguments={"task": "0"}) == asked[0], "the same question again is no new one"
        for id in asked:
            await app.parts.consent.questions.answer(id, Answer("reject"), BOSS, "cli")
        outcome = await app.invoke("run", {"task": "more"}, actor=ADA)
        refused(outcome, "RATE_LIMITED", "3 questions of this user", "not put to anybody")
        assert outcome.error is not None and outcome.error.details is not None
        assert 3_500 < outcome.error.details["retry_after"] <= 3_600
        assert outcome.error.retryable and outcome.pending is None
        assert len(await app.approvals.list(actor=ADA, state=None)) == 3
        for number in range(2):
            await ask(app, arguments={"task": str(number)}, actor=EVE)
        refused(await app.invoke("run", {"task": "x"}, actor=EVE), "RATE_LIMITED", "5 questions of this tenant")
        assert await ask(app, actor=Actor("globex", user="ada")), "another tenant's are its own"
        await app.grants.create("run", GrantTerms("user", 60), actor=ADA, by=BOSS)
        assert (await run(app)).ok, "what is granted asks nobody"
        await let_pass(app, 3_601)
        assert await ask(app, arguments={"task": "later"}, actor=EVE)


@pytest.mark.requirement("DOOR-1")
def test_a_yes_given_along_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    monkeypatch.setenv("TOOLGATE_APPROVALS__QUESTIONS_PER_HOUR", "1")
    for number in range(3):
        assert terminal("call", "write_file", f"path={number}.txt", "content=x", "--yes").code == 0
    assert terminal("call", "write_file", "path=a.txt", "content=x").code == 3
    done = terminal("call", "write_file", "path=b.txt", "content=x", "--json")
    assert (done.code, done.json["error"]["code"]) == (1, "RATE_LIMITED")
