"""/keys: API keys, browsers that are signed in, and secrets by name. A key's text is shown on the page that answers the form
and nowhere else; a secret's value never."""

from typing import Any

import msgspec

from toolgate.errors import ToolgateError
from toolgate.model.roles import Role, permissions_of
from toolgate.serve.console.page import NOTHING_TYPED, Go, PageRequest, Pages, Typed, View
from toolgate.serve.http.keys import KeysQuery, MadeKey, NewKey, get_key, list_keys, make_key, revoke_key
from toolgate.serve.http.pages import PageQuery
from toolgate.serve.http.secrets import SecretOwner, SecretValue, list_secrets, remove_secret, set_secret
from toolgate.serve.http.session import end_sign_in, list_sign_ins
from toolgate.serve.problems import HttpProblem

pages = Pages("system")

ROLE_WORDS: dict[Role, str] = {
    "caller": "calls tools, and sees its own calls: an agent",
    "guest": "sees tools, and what its own user did: for a key that is there for a scope, such as metrics",
    "viewer": "sees all calls of the tenant",
    "approver": "sees all calls, and answers approvals",
    "admin": "changes what belongs to the tenant",
    "operator": "acts for the whole installation, in any tenant",
}
LASTING = (
    ("", "until it is revoked"),
    ("86400", "a day"),
    ("2592000", "30 days"),
    ("7776000", "90 days"),
    ("31536000", "a year"),
)
MOST_SIGN_INS = 200


@pages.get("/keys", permission="administer", twin="/v1/keys")
async def keys(request: PageRequest, query: KeysQuery) -> View:
    """Keys, browsers and secrets of the tenant."""
    return await _shown(request, query)


async def _shown(
    request: PageRequest,
    query: KeysQuery | None = None,
    *,
    typed: Typed = NOTHING_TYPED,
    secret: Typed = NOTHING_TYPED,
    made: MadeKey | None = None,
    status: int = 200,
) -> View:
    found = await list_keys(request, query or KeysQuery())
    browsers = await list_sign_ins(request, PageQuery(limit=MOST_SIGN_INS))
    held = request.credential.permissions
    values = {
        "found": found.items, "next": found.next, "typed": typed, "secret": secret, "made": made, "lasting": LASTING,
        "roles": [(role, words) for role, words in ROLE_WORDS.items() if permissions_of([role]) <= held],
        "chosen": request.form.get("roles", ["caller"]),
        "browsers": sorted(browsers.items, key=lambda one: (one.state != "valid", -one.last_used_at.timestamp())),
        "secrets": (await list_secrets(request, PageQuery(limit=500))).items, "is_one": not request.all_tenants,
        "may_end": [one.id for one in (*found.items, *browsers.items) if permissions_of(one.roles) <= held],
    }  # fmt: skip
    return View(template="keys.html", title="Keys", values=values, listed=found.items, status=status)


@pages.post("/keys", permission="administer")
async def make(request: PageRequest) -> View | Go:
    """Makes a key, and shows its text this once."""
    given: dict[str, Any] = {name: text for name in ("name", "user", "persona") if (text := request.typed(name).strip())}
    roles = request.form.get("roles", [])
    faults = {} if "name" in given else {"name": "Give it a name that tells what uses it, such as: mail agent."}
    if not roles:
        faults["roles"] = "Choose at least one role."
    if seconds := request.typed("expires_in"):
        given["expires_in"] = seconds
    try:
        body = msgspec.convert({**given, "name": given.get("name", "-"), "roles": roles or ["caller"]}, NewKey, strict=False)
    except msgspec.ValidationError as error:
        faults.setdefault(_field_of(str(error)), f"{error}.")
    if faults:
        return await _shown(request, typed=request.typed_form(faults), status=422)
    try:
        return await _shown(request, made=await make_key(request, body), status=201)
    except ToolgateError as error:
        words = f"{error.message} {error.suggestion or ''}".strip()
        field = "persona" if "persona" in words.lower() else "roles" if "role" in words else "name"
        return await _shown(request, typed=request.typed_form({field: words}), status=422)


def _field_of(words: str) -> str:
    return next((name for name in ("name", "user", "persona", "roles", "expires_in") if f"$.{name}" in words), "name")


@pages.get("/keys/{id}", permission="administer", twin="/v1/keys/{id}")
async def key(request: PageRequest, id: str) -> View:
    """One key, and whether it is to be revoked."""
    found = await get_key(request, id)
    may = permissions_of(found.roles) <= request.credential.permissions
    return View(template="key.html", title=f"Key {found.name}", values={"key": found, "may": may})


@pages.post("/keys/{id}", permission="administer")
async def revoke(request: PageRequest, id: str) -> Go:
    """Revokes it."""
    await revoke_key(request, id)
    return Go("/keys", done="key-revoked")


@pages.post("/sign-ins/{id}", permission="administer", page="/keys")
async def end(request: PageRequest, id: str) -> Go:
    """Signs a browser out."""
    await end_sign_in(request, id)
    return Go("/keys", done="signed-out")


@pages.post("/secrets", permission="administer", page="/keys")
async def change_secret(request: PageRequest) -> View | Go:
    """Sets or removes a secret. What was typed as its value is not shown again, not even where something is wrong."""
    name, user = request.typed("secret_name").strip(), request.typed("secret_user").strip() or None
    if request.typed("act") == "remove":
        await remove_secret(request, name, SecretOwner(user=user))
        return Go("/keys", done="removed")
    value = request.typed("value")
    faults = {} if name else {"secret_name": "Name it as tools ask for it, such as GITHUB_TOKEN."}
    if not value:
        faults["value"] = "Type the value."
    if not faults:
        try:
            await set_secret(request, name, SecretOwner(user=user), SecretValue(value=value))
        except ToolgateError as error:
            if isinstance(error, HttpProblem) and error.status == 503:
                raise
            faults["secret_name"] = f"{error.message} {error.suggestion or ''}".strip()
    if not faults:
        return Go("/keys", done="saved")
    typed = Typed({"secret_name": name, "secret_user": user or ""}, faults)
    return await _shown(request, secret=typed, status=422)
