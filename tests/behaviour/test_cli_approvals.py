"""`toolgate approvals`, `toolgate grants`, and the person at the terminal who is asked by `toolgate call`."""

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.teletype import Teletype
from tests.terminal import Done, Terminal

pytestmark = pytest.mark.requirement("TIER-5", "TIER-6", "TIER-7", "DOOR-1")

TOOLS = '''
    from decimal import Decimal
    from pathlib import Path

    from toolgate import tool
    from toolgate.model import Cost

    def note(line: str) -> None:
        with Path("ran.txt").open("a") as file:
            file.write(line + "\\n")

    @tool(tier="external_api", cost=Cost(fixed=Decimal("0.25")))
    async def send(to: str, password: str = "") -> str:
        """Send a letter."""
        note(to)
        return f"sent to {to}"

    @tool(tier="write")
    async def delete_letter(name: str) -> str:
        """Delete a letter."""
        note(f"deleted {name}")
        return f"deleted {name}"
'''


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    made = Terminal(tmp_path, monkeypatch, capsys)
    made.add_tools(TOOLS)
    return made


def ran(terminal: Terminal) -> list[str]:
    file = terminal.folder / "ran.txt"
    return file.read_text().splitlines() if file.exists() else []


def pending(done: Done) -> str:
    assert done.code == 3, done
    id: str = done.json["pending"]["id"]
    return id


CAPS_REFUSED = ("much", "-1", "NaN", "1e999999", "1e-999999", "0.0000000001", "1000000000", "Infinity", "", "1,5")

# -- approvals


def test_a_pending_call_is_listed_shown_approved_and_run(terminal: Terminal) -> None:
    id = pending(terminal("call", "send", "to=bob", "--user", "ada", "--json"))
    assert ran(terminal) == []
    listed = terminal("approvals", "list")
    assert listed.code == 0
    assert all(word in listed.out for word in (id, "waiting", "send", '{"password":"","to":"bob"}', "default/ada"))
    shown = terminal("approvals", "show", id[:7])
    for words in ("send 1.0.0", "Send a letter.", '"to": "bob"', "$0.25", "external_api", "Expires", id):
        assert words in shown.out
    done = terminal("approvals", "approve", id, "--reason", "fine", "--user", "boss")
    assert (done.code, "Approved" in done.out) == (0, True)
    assert ran(terminal) == []
    (approved,) = terminal("approvals", "list", "--state", "approved", "--json").json["approvals"]
    assert (approved["id"], approved["answered_by"], approved["answer_reason"]) == (id, "boss", "fine")
    called = terminal("call", "send", "--approval", id, "--user", "ada")
    assert (called.code, called.out) == (0, "sent to bob\n")
    assert ran(terminal) == ["bob"]
    assert terminal("call", "send", "--approval", id, "--user", "ada").code == 1
    assert f"approved by boss through cli ({id})" in terminal("audit", "tail", "--json").out


def test_approve_can_run_the_call_as_the_one_who_asked(terminal: Terminal) -> None:
    asked = ("call", "send", "to=bob", "--tenant", "acme", "--persona", "p", "--user", "ada", "--session", "s", "--json")
    id = pending(terminal(*asked))
    assert terminal("approvals", "approve", id, "--tenant", "globex", "--run").code == 1, "another tenant's"
    done = terminal("approvals", "approve", id, "--run")
    assert (done.code, done.out) == (0, "sent to bob\n")
    last = json.loads(terminal("audit", "tail", "--json").lines[-1])
    assert (last["tenant"], last["body"]["persona"], last["body"]["user"], last["body"]["session"]) == (
        "acme",
        "p",
        "ada",
        "s",
    )
    again = terminal("approvals", "approve", id, "--tenant", "acme", "--run", "--json")
    assert (again.code, again.json["error"]["code"]) == (1, "APPROVAL_ERROR")
    assert ran(terminal) == ["bob"]


def test_approve_can_edit(terminal: Terminal) -> None:
    id = pending(terminal("call", "send", "to=everybody", "--json"))
    wrong = terminal("approvals", "approve", id, "--edit", '{"whom": "bob"}')
    assert (wrong.code, ran(terminal)) == (1, [])
    assert "edited arguments cannot be used" in wrong.err
    assert "--edit must be a JSON object" in terminal("approvals", "approve", id, "--edit", "[]").err
    done = terminal("approvals", "approve", id, "--edit", '{"to": "bob"}', "--run", "--json")
    assert done.json["output"] == "sent to bob"
    assert ran(terminal) == ["bob"]
    shown = terminal("approvals", "show", id).out
    assert "Edited to" in shown


def test_what_was_masked_is_approved_and_run_by_who_knows_it(terminal: Terminal) -> None:
    given = ("to=bob", "password=correct horse battery")
    who = ("--tenant", "acme", "--persona", "p q", "--user", "ada")
    id = pending(terminal("call", "send", *given, *who, "--json"))
    done = terminal("approvals", "approve", id, "--tenant", "acme", "--run")
    assert (done.code, done.out, ran(terminal)) == (1, "", [])
    assert "send is approved now, but cannot be run from here" in done.err
    options = f"--approval {id} --tenant acme --user ada --persona 'p q'"
    assert f"toolgate call send KEY=VALUE … {options}`" in done.err
    assert terminal("approvals", "show", id, "--tenant", "acme", "--json").json["state"] == "approved"
    assert terminal("call", "send", *given, "--approval", id, *who).code == 0
    assert ran(terminal) == ["bob"]


def test_an_edit_without_what_was_masked_can_be_run_from_here(terminal: Terminal) -> None:
    id = pending(terminal("call", "send", "to=bob", "password=correct horse battery", "--json"))
    done = terminal("approvals", "approve", id, "--edit", '{"to": "eve", "password": ""}', "--run")
    assert (done.code, ran(terminal)) == (0, ["eve"])


def test_what_is_suggested_is_about_the_same_tenant(terminal: Terminal) -> None:
    assert "see toolgate approvals list --tenant acme." in terminal("approvals", "show", "x", "--tenant", "acme").err
    assert "see toolgate grants list." in terminal("grants", "revoke", "x").err


def test_people_are_told_local_time_and_programs_utc(terminal: Terminal) -> None:
    id = pending(terminal("call", "send", "to=bob", "--json"))
    kolkata = {"TZ": "Asia/Kolkata"}
    at = datetime.fromisoformat(terminal.run("approvals", "show", id, "--json", environment=kolkata).json["expires_at"])
    assert at.utcoffset() == timedelta(0)
    local = f"{at.astimezone(ZoneInfo('Asia/Kolkata')):%Y-%m-%d %H:%M} IST"
    assert f"Expires   {local}" in terminal.run("approvals", "show", id, environment=kolkata).out
    assert f"  {local}" in terminal.run("approvals", "list", environment=kolkata).out


def test_reject_tells_the_caller_why(terminal: Terminal) -> None:
    id = pending(terminal("call", "send", "to=bob", "--json"))
    assert "Rejected" in terminal("approvals", "reject", id, "--reason", "not today").out
    called = terminal("call", "send", "to=bob", "--approval", id, "--json")
    assert (called.code, called.json["error"]["code"]) == (1, "USER_CANCELLED")
    assert "not today" in called.json["error"]["message"]
    assert ran(terminal) == []


@pytest.mark.parametrize(
    "command", [("approvals", "show"), ("approvals", "approve"), ("approvals", "reject"), ("grants", "revoke")]
)
@pytest.mark.parametrize("id", ["nothing", "", "\x1b[2J", "' OR 1=1 --"])
@pytest.mark.sample(4)
def test_an_id_that_does_not_exist_is_an_error(terminal: Terminal, command: tuple[str, str], id: str) -> None:
    terminal("call", "send", "to=bob")
    done = terminal(*command, "--", id)
    assert done.code == 1, done
    assert "There is no" in done.err
    assert "\x1b" not in done.err


def test_the_beginning_of_an_id_must_be_of_one(terminal: Terminal) -> None:
    for to in ("a", "b"):
        terminal("call", "send", f"to={to}")
    done = terminal("approvals", "approve", "ap_")
    assert (done.code, "More than one id of approvals" in done.err) == (1, True)
    assert len(terminal("approvals", "list", "--json").json["approvals"]) == 2


def test_bad_options_are_usage_errors(terminal: Terminal) -> None:
    id = pending(terminal("call", "send", "to=bob", "--json"))
    wrong: list[tuple[str, ...]] = [
        ("--for", "soon"), ("--for", "0h"), ("--for", "-1h"), ("--for", "1"), ("--for", ""), ("--for", "9999999999s"),
        ("--cap", "1"), ("--edit", "{"), ("--edit", "[]"), ("--reason", "\x1b"),
        *(("--for", "1h", f"--cap={amount}") for amount in CAPS_REFUSED),
    ]  # fmt: skip
    for words in wrong:
        assert terminal("approvals", "approve", id, *words).code == 2, words
    for words in (("--for", "900d"), ("--session-grant",)):
        assert terminal("approvals", "approve", id, *words).code == 1, words
    assert terminal("approvals", "show", id, "--json").json["state"] == "waiting"
    assert terminal("grants", "list", "--all", "--json").json == {"grants": []}


# -- grants


def test_grants_are_made_listed_and_revoked(terminal: Terminal) -> None:
    made = terminal("grants", "add", "send", "--for", "1h", "--cap", "0.50", "--reason", "letters day", "--json").json
    assert (made["user"], made["cap_usd"]) == ("local", 0.5)
    assert [terminal("call", "send", f"to={n}").code for n in range(3)] == [0, 0, 3]
    listed = terminal("grants", "list")
    assert all(word in listed.out for word in (made["id"], "exhausted", "send", "user local", "2 uses", "$0.50 of $0.50"))
    assert terminal("grants", "revoke", made["id"][:8]).out.endswith(f"({made['id']}), used 2 times\n")
    assert terminal("grants", "list", "--json").json == {"grants": []}
    (revoked,) = terminal("grants", "list", "--all", "--json").json["grants"]
    assert (revoked["revoked_by"], revoked["uses"]) == ("local", 2)
    assert terminal("grants", "revoke", made["id"]).code == 1


@pytest.mark.parametrize(
    ("words", "whom"),
    [
        ((), {"user": "local"}),
        (("--user", "ada"), {"user": "ada"}),
        (("--persona", "p"), {"persona": "p"}),
        (("--persona", "p", "--user", "ada"), {"persona": "p", "user": "ada"}),
        (("--session", "s"), {"user": "local", "session": "s"}),
        (("--whole-tenant",), {}),
    ],
)
def test_a_grant_is_for_whom_the_options_say(terminal: Terminal, words: tuple[str, ...], whom: dict[str, str]) -> None:
    made = terminal("grants", "add", "send", "--for", "5m", *words, "--json").json
    assert {name: made[name] for name in ("persona", "user", "session") if made[name] is not None} == whom


@pytest.mark.parametrize("amount", CAPS_REFUSED)
@pytest.mark.sample(4)
def test_a_cap_that_is_no_amount_is_a_usage_error_and_grants_nothing(terminal: Terminal, amount: str) -> None:
    done = terminal("grants", "add", "send", "--for", "1h", f"--cap={amount}", "--json")
    assert (done.code, done.json["error"]["code"]) == (2, "USAGE_ERROR")
    assert done.json["error"]["message"].startswith("--cap: ")
    assert terminal("grants", "list", "--all", "--json").json == {"grants": []}


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
def test_one_use_is_not_called_uses(terminal: Terminal) -> None:
    made = terminal("grants", "add", "send", "--for", "1w", "--json").json
    terminal("call", "send", "to=bob")
    listed = terminal("grants", "list").out
    assert ("1 use, $0.25" in listed, "1 uses" in listed) == (True, False)
    assert terminal("grants", "revoke", made["id"]).out.endswith("used 1 time\n")


def test_what_destroys_is_not_granted(terminal: Terminal) -> None:
    done = terminal("grants", "add", "delete_letter", "--for", "1h")
    assert (done.code, "destructive" in done.err) == (1, True)
    id = pending(terminal("call", "delete_letter", "name=x", "--json"))
    assert terminal("approvals", "approve", id, "--for", "1h", "--run").code == 1
    assert ran(terminal) == []


def test_approving_for_a_while_grants_it(terminal: Terminal) -> None:
    id = pending(terminal("call", "send", "to=a", "--session", "s", "--json"))
    terminal("approvals", "approve", id, "--session-grant", "--run")
    assert terminal("call", "send", "to=b", "--session", "s").code == 0
    assert terminal("call", "send", "to=c", "--session", "t").code == 3
    assert ran(terminal) == ["a", "b"]


def test_a_grant_is_for_the_approved_arguments_and_so_many_calls(terminal: Terminal) -> None:
    id = pending(terminal("call", "send", "to=a", "--json"))
    assert "--same-arguments is for grants" in terminal("approvals", "approve", id, "--same-arguments").err
    assert "--uses is for grants" in terminal("approvals", "approve", id, "--uses", "2").err
    assert terminal("approvals", "approve", id, "--for", "1h", "--same-arguments", "--uses", "1", "--run").code == 0
    assert [terminal("call", "send", f"to={to}").code for to in ("b", "a", "a")] == [3, 0, 3]
    listed = terminal("grants", "list").out
    assert all(words in listed for words in ("exhausted", '"to":"a"', "1 use of 1"))
    made = terminal("grants", "add", "send", "--for", "1h", "--uses", "2", "--args", '{"to": "c"}')
    assert "send with these arguments to user local until" in made.out
    assert "at most 2 calls" in made.out
    assert [terminal("call", "send", f"to={to}").code for to in ("d", "c")] == [3, 0]
    refused = terminal("grants", "add", "send", "--for", "1h", "--args", '{"two": "c"}')
    assert (refused.code, "cannot be granted" in refused.err) == (1, True)
    assert terminal("grants", "add", "send", "--for", "1h", "--uses", "0").code == 2
    assert ran(terminal) == ["a", "a", "c"]


# -- toolgate call


def test_yes_is_an_answer_and_recorded_as_one(terminal: Terminal) -> None:
    assert terminal("call", "send", "to=bob", "--user", "ada", "--yes").code == 0
    assert ran(terminal) == ["bob"]
    (used,) = terminal("approvals", "list", "--state", "used", "--json").json["approvals"]
    assert (used["answered_by"], used["answered_through"]) == ("local", "--yes")


def test_yes_is_for_the_call_itself_and_not_for_what_it_calls(terminal: Terminal) -> None:
    terminal.add_tools(
        '''
        from toolgate import InvokeContext, tool

        @tool(tier="execute")
        async def outer(ctx: InvokeContext) -> str:
            """Send a letter and itself again."""
            return (await ctx.call_tool("send", {"to": "bob"})).status
        ''',
        "outer",
    )
    assert pending(terminal("call", "outer", "--yes", "--json"))
    assert ran(terminal) == []


def test_where_there_is_no_terminal_nobody_is_asked(terminal: Terminal) -> None:
    done = terminal.run("call", "send", "to=bob", stdin=b"y\n" * 10)
    assert (done.code, ran(terminal)) == (3, [])
    assert "APPROVAL_REQUIRED" in done.err


# -- a person at a terminal


CHOICES = "> "


@pytest.fixture
def person(terminal: Terminal) -> Iterator[Any]:
    started: list[Teletype] = []

    def call(*words: str, columns: int = 200) -> Teletype:
        started.append(Teletype(terminal, "call", *words, columns=columns))
        return started[-1]

    yield call
    for teletype in started:
        assert teletype.ended, teletype.shown


@pytest.mark.parametrize("typed", ["y", "YES"])
def test_a_person_sees_what_it_is_about_and_says_yes(terminal: Terminal, person: Any, typed: str) -> None:
    call = person("send", "to=bob", "password=correct horse battery", "--user", "ada")
    call.type(after=CHOICES, keys=f"{typed}\n")
    assert call.end() == 0, call.shown
    for words in (
        "send 1.0.0",
        "Send a letter.",
        '"to": "bob"',
        '"password": "correct horse battery"',
        "$0.25",
        "[h] yes, for one hour",
    ):
        assert words in call.shown
    assert "[s]" not in call.shown, "there is no session"
    assert ran(terminal) == ["bob"]
    (used,) = terminal("approvals", "list", "--state", "used", "--json").json["approvals"]
    assert (used["answered_by"], used["answered_through"]) == ("local", "terminal")


@pytest.mark.requirement("DOOR-6")
def test_a_slip_decides_nothing_and_the_question_is_asked_again(terminal: Terminal, person: Any) -> None:
    call = person("send", "to=bob", columns=80)
    for typed in ("", "yy", "s", "\u202e"):
        call.type(after=CHOICES, keys=f"{typed}\n")
    call.type(after=CHOICES, keys="y\n")
    assert call.end() == 0, call.shown
    assert '"yy" is not one of the answers. Type y, n, e or h; Ctrl-C rejects the call.' in call.shown
    slips = [line for line in call.shown.splitlines() if "is not one of the answers" in line]
    assert "\u202e" not in slips[-1], "what was typed turns no writing around"
    assert ran(terminal) == ["bob"]


@pytest.mark.requirement("DOOR-6")
def test_the_end_of_the_input_is_a_no_and_the_call_can_be_made_again(terminal: Terminal, person: Any) -> None:
    call = person("delete_letter", "name=x")
    call.type(after=CHOICES, keys="nope\n")
    call.type(after=CHOICES, keys="\x04")
    assert call.end() == 1, call.shown
    assert "\nUSER_CANCELLED" in call.shown, "on a line of its own"
    assert "Why not?" not in call.shown, "nobody is there to say it"
    assert ran(terminal) == []
    again = person("delete_letter", "name=x")
    again.type(after=CHOICES, keys="y\n")
    assert again.end() == 0, again.shown
    assert ran(terminal) == ["deleted x"]


def test_a_no_has_a_reason(terminal: Terminal, person: Any) -> None:
    call = person("send", "to=bob")
    call.type(after=CHOICES, keys="n\n")
    call.type(after="Why not?", keys="too expensive\n")
    assert call.end() == 1
    assert "rejected by local: too expensive" in call.shown
    assert ran(terminal) == []


def test_interrupting_the_question_means_no(terminal: Terminal, person: Any) -> None:
    call = person("send", "to=bob")
    call.interrupt(after=CHOICES)
    assert call.end() == 1, call.shown
    assert "USER_CANCELLED" in call.shown
    assert ran(terminal) == []
    assert len(terminal("approvals", "list", "--state", "rejected", "--json").json["approvals"]) == 1


def test_what_was_typed_before_the_question_is_no_answer_to_it(terminal: Terminal, person: Any) -> None:
    call = person("send", "to=bob")
    call.type(after="", keys="y\ny\ny\n")
    call.type(after=CHOICES, keys="\x04")
    assert call.end() == 1, call.shown
    assert ran(terminal) == []


def test_a_person_edits_the_arguments(terminal: Terminal, person: Any) -> None:
    call = person("send", "to=everybody")
    call.type(after=CHOICES, keys="e\n")
    for wrong in ("{oops", "-", "[]", '{"whom": "bob"}', '{"to": 3}', "@nowhere"):
        call.type(after="JSON on one line", keys=f"{wrong}\n")
    call.type(after="JSON on one line", keys='{"to": "eve"}\n')
    call.type(after="[y] yes, with these arguments", keys="e\n")
    call.type(after="JSON on one line", keys='{"to": "bob"}\n')
    call.type(after="[y] yes, with these arguments", keys="y\n")
    assert call.end() == 0, call.shown
    lines = [line.strip() for line in call.shown.splitlines()]
    for difference in ('-  "to": "everybody"', '+  "to": "eve"', '-  "to": "eve"', '+  "to": "bob"'):
        assert difference in lines, call.shown
    assert ran(terminal) == ["bob"]
    told = ("That is not JSON", "That must be a JSON object", "Invalid arguments", "to: ", "cannot be read")
    assert all(words in call.shown for words in told), call.shown
    assert not any(words in call.shown for words in ("--args", "Prompt", "cannot be taken"))


def test_a_person_who_writes_a_mask_that_stands_for_nothing_is_asked_again(terminal: Terminal, person: Any) -> None:
    call = person("send", "to=everybody", "password=correct horse battery")
    call.type(after=CHOICES, keys="e\n")
    call.type(after="JSON on one line", keys='{"to": "[REDACTED]", "password": "[REDACTED]"}\n')
    call.type(after="JSON on one line", keys='{"to": "bob", "password": "correct horse battery"}\n')
    call.type(after="[y] yes, with these arguments", keys="y\n")
    assert call.end() == 0, call.shown
    assert "to: [REDACTED] stands for nothing there" in call.shown
    assert ran(terminal) == ["bob"]


@pytest.mark.parametrize("session", [(), ("--session", "s")])
def test_the_choices_fit_a_narrow_terminal(person: Any, session: tuple[str, ...]) -> None:
    call = person("send", "to=bob", *session, columns=80)
    call.type(after=CHOICES, keys="y\n")
    assert call.end() == 0, call.shown
    choices = [line for line in call.shown.splitlines() if re.search(r"\[[ynesh]\] ", line)]
    assert len(choices) == (2 if session else 1)
    assert all(len(line) <= 80 for line in choices), choices


@pytest.mark.parametrize(("key", "session"), [("h", None), ("s", "s1")])
def test_a_person_says_yes_for_a_while(terminal: Terminal, person: Any, key: str, session: str | None) -> None:
    words = ("--session", session) if session else ()
    call = person("send", "to=a", *words)
    call.type(after=f"[{key}]", keys=f"{key}\n")
    assert call.end() == 0, call.shown
    assert terminal("call", "send", "to=b", *words).code == 0, "no longer asked"
    (held,) = terminal("grants", "list", "--json").json["grants"]
    assert (held["session"], held["uses"]) == (session, 1)


def test_no_grant_is_offered_for_what_destroys(terminal: Terminal, person: Any) -> None:
    call = person("delete_letter", "name=x", "--session", "s")
    call.type(after=CHOICES, keys="h\n")
    call.type(after=CHOICES, keys="\x04")
    assert call.end() == 1, call.shown
    assert not re.search(r"\[[sh]\]", call.shown)
    assert ran(terminal) == []
    assert terminal("grants", "list", "--all", "--json").json == {"grants": []}
