"""Attacks on the pages as a whole, over HTTP: forms of those who may not, texts that hide or break, work without an end."""

import asyncio
import csv
import io
import re
import time
from typing import Any
from urllib.parse import quote

import pytest

from tests.console.hostile_world import ANN, fill
from tests.console.plain_browser import signed_in
from tests.serving import Site
from toolgate import Actor, App, tool
from toolgate.gates.approval.request import GrantTerms, visible
from toolgate.gates.quota.budget_accounts import new_budget
from toolgate.model import NANO
from toolgate.model.roles import Role
from toolgate.serve.console.site import ROUTES

pytestmark = pytest.mark.requirement("DOOR-2", "DOOR-3")

FORMS: dict[str, list[dict[str, str]]] = {
    "/approvals/{id}": [
        {"verdict": "approve", "run": "yes", "seen": "whole"},
        {"verdict": "edit", "arg-0": "5", "arg-1": "x"},
        {"verdict": "grant", "scope": "tenant", "seconds": "3600", "same_arguments": "false"},
        {"verdict": "reject"},
    ],
    "/audit": [{}],
    "/budgets": [{"limit_usd": "1", "period": "day"}, {"limit_usd": "1", "period": "day", "each_tenant": "yes"}],
    "/budgets/{id}": [{"limit_usd": "9"}],
    "/budgets/{id}/remove": [{}],
    "/calls/{id}/again": [{"key": "k"}],
    "/calls/{id}/undo": [{"force": "yes"}],
    "/grants/{id}/revoke": [{}],
    "/jobs/{id}/change": [{"act": "cancel"}, {"act": "retry"}],
    "/keys": [{"name": "k", "roles": "operator"}, {"name": "k", "roles": "caller", "user": "ann"}],
    "/keys/{id}": [{}],
    "/learning/feedback": [{"tool_name": "tell", "success": "no", "call_id": "x"}],
    "/learning/suggestions/{id}": [{"verdict": "accept"}, {"verdict": "reject"}],
    "/openapi/{name}": [{"action": "refresh"}, {"action": "remove", "sure": "yes"}, {"hash": "0"}],
    "/policy/data": [
        {"change": "deny", "denied_tool": "tell"},
        {"change": "restrict", "tenant_name": "acme"},
        {"change": "persona", "persona_name": "ops", "can_add_tools": "yes"},
        {"change": "flag", "flag_tool": "tell", "flag_persona": "ops", "enabled": "no"},
    ],
    "/policy/what-if": [{"rego": "package soma.policy", "days": "1"}],
    "/schedules/{id}": [{"act": "run"}, {"act": "pause"}, {"act": "remove"}],
    "/secrets": [{"secret_name": "A", "value": "b"}],
    "/servers": [{"name": "s", "kind": "command", "what": "true"}],
    "/servers/{name}": [{"action": "remove", "sure": "yes"}],
    "/sign-ins/{id}": [{}],
    "/teams": [{"action": "sync"}, {"action": "accept", "hash": "0"}, {"action": "remove", "sure": "yes"}],
    "/tools/{name}/remove": [{}],
    "/tools/{name}/flag": [{"enabled": "no", "whose": whose, "persona": "ops"} for whose in ("everybody", "persona")],
}
OWN = {"/schedules/new", "/sign-out", "/theme", "/tools/{name}"}
"""Forms about oneself."""
HEAD = "package soma.policy\nimport rego.v1\ndefault allow := false\n"


ADMINS = {
    "/budgets", "/budgets/{id}", "/budgets/{id}/remove", "/calls/{id}/again", "/jobs/{id}/change", "/keys", "/keys/{id}",
    "/learning/feedback", "/schedules/{id}", "/secrets",
}  # fmt: skip
"""Forms about things of a tenant, for its admins."""


def _is_for_one_tenant(form: dict[str, str]) -> bool:
    return form.get("roles") != "operator" and "each_tenant" not in form


async def _things(app: App, site: Site) -> dict[str, str]:
    """One of each thing of acme's that a form can change, by the address of the form."""
    made = await fill(app)
    await app.budgets.set(new_budget("month", NANO, tenant="acme"))
    budget = next(row for row in await app.budgets.limits() if row.tenant == "acme")
    grant = await app.grants.create("pay", GrantTerms("user", 3600.0), actor=ANN, by=Actor("acme", user="lead"))
    await signed_in(app, site, Actor("acme", user="victim"), "operator")
    browser = (await app.sign_ins.list("acme"))[-1]
    return made | {
        "/budgets/{id}": budget.id, "/budgets/{id}/remove": budget.id, "/grants/{id}/revoke": grant.id,
        "/sign-ins/{id}": browser.id, "/calls/{id}/undo": made["/calls/{id}/again"],
        "/jobs/{id}/change": made["/jobs/{id}"], "/tools/{name}/flag": "tell", "/servers/{name}": "s",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tenant", "user", "role", "own"),
    [
        ("acme", "mallory", "caller", set()),
        ("acme", "mallory", "viewer", set()),
        ("acme", "mallory", "approver", {"/approvals/{id}", "/grants/{id}/revoke"}),
        ("acme", "mallory", "admin", {*ADMINS, "/approvals/{id}", "/grants/{id}/revoke"}),
        ("other", "ann", "caller", set()),
        ("other", "ann", "approver", set()),
        ("other", "ann", "admin", {"/budgets", "/keys", "/secrets"}),
    ],
)
async def test_no_form_changes_what_is_not_theirs(
    app: App, site: Site, tenant: str, user: str, role: Role, own: set[str]
) -> None:
    """Every form, with the hidden field of a sign-in that holds, at the ids of another tenant's or user's things, and with
    the tenant and the persona of an operator's pages. `own`: forms that the role is for, in the sender's own tenant."""
    things = await _things(app, site)
    assert FORMS.keys() | OWN == {route.path for route in ROUTES if route.method == "POST"}
    mallory = await signed_in(app, site, Actor(tenant, user=user), role)
    await app.flush()
    before = (await app.audit.end()).seq
    let = set()
    for path, forms in FORMS.items():
        address = re.sub(r"\{\w+\}", things.get(path, "x"), path)
        for chosen in ("", "?tenant=acme", "?tenant=other", "?tenant=*", "?persona=ops"):
            for form in forms:
                answer = await mallory.post(address + chosen, form)
                assert answer.status < 500, (path, form, answer.body)
                is_own = path in own and chosen in ("", f"?tenant={tenant}", "?persona=ops") and _is_for_one_tenant(form)
                if answer.status < 400 and not is_own:
                    let.add((path + chosen, str(form), answer.status))
    assert not let
    await app.flush()
    rows = await app.audit.end()
    if not own:
        assert rows.seq == before, "something was changed"


# -- texts that break pages


@pytest.mark.matrix("it takes seconds, while quicker tests of its module hold the same promise")
@pytest.mark.parametrize("text", ['{"text": "\\ud800"}', '{"\\udfff": 1}', '{"text": {"a": ["\\uDC00"]}}'])
async def test_half_a_character_in_arguments_is_a_fault_of_the_form(app: App, site: Site, text: str) -> None:
    """JSON can name one half of a surrogate pair, which no page can hold."""
    await fill(app)
    ann = await signed_in(app, site, ANN, "operator")
    for form in ("json", "fields"):
        answer = await ann.get(f"/tools/tell?form={form}&arguments={quote(text)}")
        assert answer.status == 200
        assert (form == "json") == (b"This is not JSON" in answer.body)
    for action in ("run", "explain", "json", "fields"):
        for field in ("json", "rest"):
            answer = await ann.post("/tools/tell", {"action": action, field: text})
            assert answer.status == 422, (action, field)
            assert b"This is not JSON" in answer.body


UNSEEN = "\u034f\u17b4\u180b\u2800\U000e0100\U000e01ef\U0001d159\ufffc"
"""Marks and symbols that Python calls printable, and nobody sees."""


async def test_nothing_is_hidden_in_characters_that_count_as_printable(app: App, site: Site) -> None:
    """Text can be written into another, one byte in each variation selector, so that no approver sees it."""
    hidden = "".join(chr(0xE0100 + byte - 16) for byte in b"send it to eve")
    for one in (*UNSEEN, hidden):
        assert visible(f"a{one}b").isascii()
    await fill(app)
    asked = await app.invoke("pay", {"amount": 3, "note": f"hello{hidden}{UNSEEN}"}, actor=ANN)
    assert asked.pending is not None
    bob = await signed_in(app, site, Actor("acme", user="bob"), "approver")
    page = (await bob.get(f"/approvals/{asked.pending.id}")).body.decode()
    assert not [hex(ord(char)) for char in hidden + UNSEEN if char in page]
    assert "U+E01" in page


async def test_marks_that_pile_up_on_a_letter_are_written_out(app: App, site: Site) -> None:
    """They would be drawn over the lines around it, while the accents that languages have stay."""
    await fill(app)
    pile = "Z" + "\u0335" * 200
    asked = await app.invoke("pay", {"amount": 3, "note": f"{pile} ệ nghe\u0301\u0323"}, actor=ANN)
    assert asked.pending is not None
    bob = await signed_in(app, site, Actor("acme", user="bob"), "approver")
    page = (await bob.get(f"/approvals/{asked.pending.id}")).body.decode()
    assert page.count("\u0335") < 20
    assert page.count("U+0335") >= 190
    assert "nghe\u0301\u0323" in page


# -- files


async def test_no_cell_of_a_file_is_a_formula(app: App, site: Site) -> None:
    await fill(app)
    for begin in ("=", "+", "-", "@", "\t=", "\r=", "\n=", "\uff1d", "\uff0b", "\uff0d", "\uff20"):
        await app.invoke("pay", {"amount": 3, "note": f"{begin}cmd|' /C calc'!A0"}, actor=ANN)
    bob = await signed_in(app, site, Actor("acme", user="bob"), "approver")
    text = (await bob.get("/approvals?format=csv")).body.decode()
    rows = [*csv.DictReader(io.StringIO(text, newline=""))]
    notes = [row["arguments.note"] for row in rows if "calc" in row["arguments.note"]]
    assert len(notes) == 11
    assert all(note.startswith("'") for note in notes)


async def test_a_file_of_arguments_with_many_names_stays_small(app: App, site: Site) -> None:
    """Each of many calls has thousands of names of its own: a column for each would be millions of cells."""

    @tool(tier="external_api", description="Takes anything.")
    async def take(values: dict[str, Any]) -> str:
        return str(len(values))

    app.register(take)
    for number in range(10):
        await app.invoke("take", {"values": {f"n{number}_{key}": key for key in range(3_000)}}, actor=ANN)
    bob = await signed_in(app, site, Actor("acme", user="bob"), "approver")
    answer = await bob.get("/approvals?format=csv")
    rows = [*csv.reader(io.StringIO(answer.body.decode(), newline=""))]
    assert len(rows) == 11
    assert len(rows[0]) <= 200
    assert "n9_2999" in answer.body.decode()


# -- policies that never end


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("count(numbers.range(1, 3000000000)) > 0", id="memory"),
        pytest.param('input.resource == "echo"; count(numbers.range(1, 3000000000)) > 0', id="memory for a real call only"),
        pytest.param(
            "count([1 | some a in numbers.range(1, 9000); some b in numbers.range(1, 9000); a < b]) > 0",
            id="time",
            marks=pytest.mark.matrix("takes as long as it is given; that of memory is quick"),
        ),
    ],
)
async def test_a_policy_that_explodes_is_refused_while_others_are_served(app: App, site: Site, rule: str) -> None:
    await app.invoke("echo", {"text": "one"}, actor=ANN)
    ann = await signed_in(app, site, ANN, "operator")
    trial = asyncio.ensure_future(ann.post("/policy/what-if", {"rego": f"{HEAD}allow if {{ {rule} }}\n", "days": "7"}))
    longest = 0.0
    while not trial.done():
        begun = time.monotonic()
        assert (await site("GET", "/healthz")).status == 200
        longest = max(longest, time.monotonic() - begun)
        await asyncio.sleep(0.05)
    answer = await trial
    assert answer.status == 422
    assert b"The policy takes too much" in answer.body
    assert longest < 5.0


# -- what other sites and shared machines could do


async def test_no_page_is_framed_kept_or_runs_what_is_written_in_it(app: App, site: Site) -> None:
    """Pages, lists as files, refusals, redirects, unknown addresses and the page of those who are not signed in."""
    await fill(app)
    ann = await signed_in(app, site, ANN, "operator")
    html = {"Accept": "text/html"}
    answers = {
        "page": await ann.get("/calls"),
        "file": await ann.get("/calls?format=csv"),
        "refused": await ann.get("/calls?no_such_filter=1"),
        "missing": await ann.get("/calls/00000000-0000-0000-0000-000000000000"),
        "redirect": await ann.post("/theme", {"theme": "dark", "back": "/calls"}),
        "not signed in": await site("GET", "/calls", html),
        "link that does not work": await site("GET", "/sign-in?token=x", html),
    }
    for which, answer in answers.items():
        assert answer.headers["cache-control"] == "no-store", which
        assert answer.headers["x-content-type-options"] == "nosniff", which
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy, which


@pytest.mark.parametrize(
    "back",
    ["//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil.example", "/\t/evil.example", "/\r\nX: y"],
)
async def test_no_form_leads_to_another_site(app: App, site: Site, back: str) -> None:
    await fill(app)
    ann = await signed_in(app, site, ANN, "operator")
    for path, form in (("/theme", {"theme": "dark"}), ("/tools/tell/flag", {"enabled": "yes", "whose": "tenant"})):
        answer = await ann.post(path, {**form, "back": back})
        assert answer.status == 303
        assert re.fullmatch(r"/|/tools/tell\?done=enabled", answer.headers["location"]), path
        assert "x" not in answer.headers
