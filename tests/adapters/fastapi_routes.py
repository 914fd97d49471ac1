"""A web application of FastAPI with an App in it: who calls, what they may, and the statuses of what comes of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import Body, FastAPI, Header, HTTPException
from httpx import ASGITransport, AsyncClient, Response

from tests.adapters.bank import ANN, BOSS, EVE, POLICY, Bank, last_call
from toolgate import Actor, App, Outcome
from toolgate.adapters.fastapi import Approver, Caller, WebCaller, caller_from, lifespan
from toolgate.model.roles import Role
from toolgate.testing.app import isolated_settings

PAYMENT = {"to": "bob", "amount": 10}


def signed_in(x_person: Annotated[str | None, Header()] = None) -> Actor:
    """The web application's own way to know people."""
    if x_person != "ann":
        raise HTTPException(401)
    return ANN


Person = Annotated[WebCaller, caller_from(signed_in)]


def web_application(folder: Path, bank: Bank) -> FastAPI:
    policy = folder / "bank.rego"
    policy.write_text(POLICY)
    api = FastAPI(lifespan=lifespan(isolated_settings({"policy": {"file": policy}}), tools=bank.tools()))

    @api.get("/tools")
    async def tools(caller: Caller) -> list[dict[str, Any]]:
        return await caller.tools()

    @api.post("/tools/{name}")
    async def call(
        name: str, arguments: Annotated[dict[str, Any], Body()], caller: Caller, approval: str | None = None
    ) -> Outcome:
        return await caller.invoke(name, arguments, approval=approval)

    @api.post("/approvals/{id}")
    async def decide(id: str, approve: Annotated[bool, Body(embed=True)], approver: Approver) -> str:
        return (await approver.answer(id, approve)).state

    @api.get("/balance")
    async def balance(person: Person) -> Outcome:
        return await person.invoke("balance", {"account": "main"})

    return api


class Web:
    """A web application that runs, and its App."""

    def __init__(self, app: App, http: AsyncClient) -> None:
        self.app, self._http = app, http
        self.openapi: dict[str, Any] = {}

    async def key(self, actor: Actor, *roles: Role) -> dict[str, str]:
        held: tuple[Role, ...] = roles or ("caller",)
        _, text = await self.app.keys.create(f"{actor.user} as {' and '.join(held)}", actor, roles=held)
        return {"authorization": f"Bearer {text}"}

    async def post(self, path: str, body: Any, headers: Any = None) -> Response:
        return await self._http.post(path, json=body, headers=headers)

    async def get(self, path: str, headers: Any = None) -> Response:
        return await self._http.get(path, headers=headers)


@asynccontextmanager
async def running(folder: Path, bank: Bank) -> AsyncIterator[Web]:
    api = web_application(folder, bank)
    http = AsyncClient(transport=ASGITransport(api), base_url="http://bank.test")
    async with api.router.lifespan_context(api), http:
        web = Web(api.state.toolgate, http)
        web.openapi = api.openapi()
        yield web


async def test_a_key_says_who_calls_and_what_they_see(tmp_path: Path) -> None:
    async with running(tmp_path, Bank()) as web:
        ann, eve = await web.key(ANN), await web.key(EVE)
        assert (await web.post("/tools/balance", {"account": "a"}, ann)).json()["output"]["euros"] == 1200
        record = await last_call(web.app)
        assert (record.user, record.persona, record.door) == ("ann", "clerk", "http")
        assert (await web.get("/tools", eve)).json() == []
        assert (await web.post("/tools/balance", {"account": "a"}, eve)).status_code == 404


async def test_a_call_that_waits_is_202_and_runs_once_when_it_is_approved(tmp_path: Path) -> None:
    bank = Bank()
    async with running(tmp_path, bank) as web:
        ann, boss = await web.key(ANN, "caller", "approver"), await web.key(BOSS, "approver")
        asked = await web.post("/tools/pay", PAYMENT, ann)
        assert asked.status_code == 202
        id = asked.json()["pending"]["id"]
        own = await web.post(f"/approvals/{id}", {"approve": True}, ann)
        assert own.status_code == 403 and "whoever asks for a call does not approve it" in own.json()["detail"]
        assert (await web.post(f"/approvals/{id}", {"approve": True}, boss)).json() == "approved"
        assert (await web.post(f"/approvals/{id}", {"approve": True}, boss)).status_code == 409
        paid = await web.post(f"/tools/pay?approval={id}", PAYMENT, ann)
        assert (paid.status_code, paid.json()["output"]) == (200, "paid 10.00 to bob")
        assert (await web.post(f"/tools/pay?approval={id}", PAYMENT, ann)).status_code == 403
        assert bank.paid == [("bob", 10)]


async def test_strangers_and_roles_that_may_not_are_refused(tmp_path: Path) -> None:
    bank = Bank()
    async with running(tmp_path, bank) as web:
        viewer, caller = await web.key(ANN, "viewer"), await web.key(BOSS, "caller")
        wrong = {"authorization": "Bearer tg_abcdefghijkl_" + "x" * 43}
        twice = [("authorization", caller["authorization"]), ("authorization", viewer["authorization"])]
        cookie = {"cookie": "toolgate_session=" + caller["authorization"].removeprefix("Bearer ")}
        for headers in ({}, wrong, twice, cookie, {"authorization": "Basic YTpi"}):
            refused = await web.post("/tools/deposit", {"amount": 1}, headers)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"].startswith('Bearer realm="toolgate"')
        assert (await web.post("/tools/deposit", {"amount": 1}, viewer)).status_code == 403
        assert (await web.post("/approvals/ap_1", {"approve": True}, caller)).status_code == 403
        assert bank.deposits == []


async def test_a_repeat_with_the_same_key_has_one_effect(tmp_path: Path) -> None:
    bank = Bank()
    async with running(tmp_path, bank) as web:
        ann = {**await web.key(ANN), "idempotency-key": "order-1729", "x-request-id": "r-1"}
        said = [(await web.post("/tools/deposit", {"amount": 5}, ann)).json()["output"] for _ in range(2)]
        assert said == ["deposit 1", "deposit 1"]
        assert bank.deposits == [5]
        assert len(await web.app.audit.of_request("r-1")) == 2
        bad = await web.post("/tools/deposit", {"amount": 5}, {**ann, "x-request-id": "x" * 200})
        assert bad.status_code == 400


async def test_errors_have_the_status_that_http_has_for_them(tmp_path: Path) -> None:
    async with running(tmp_path, Bank()) as web:
        ann, boss = await web.key(ANN), await web.key(BOSS, "approver")
        assert (await web.post("/tools/nothing", {}, ann)).status_code == 404
        assert (await web.post("/tools/balance", {}, ann)).status_code == 422
        assert (await web.post("/tools/slow", {}, ann)).status_code == 504
        missing = await web.post("/approvals/ap_nothing", {"approve": True}, boss)
        assert missing.status_code == 404


async def test_people_are_known_as_the_web_application_knows_them(tmp_path: Path) -> None:
    async with running(tmp_path, Bank()) as web:
        assert (await web.get("/balance")).status_code == 401
        assert (await web.get("/balance", {"x-person": "ann"})).json()["output"]["account"] == "main"
        assert (await last_call(web.app)).user == "ann"


async def test_the_openapi_document_tells_of_the_key_and_the_outcome(tmp_path: Path) -> None:
    async with running(tmp_path, Bank()) as web:
        call = web.openapi["paths"]["/tools/{name}"]["post"]
        assert call["security"] == [{"HTTPBearer": []}]
        schema = call["responses"]["200"]["content"]["application/json"]["schema"]
        assert "pending" in str(web.openapi["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
