"""The people of the demo's tenant acme, their API keys, and a secret by name."""

from datetime import timedelta

from toolgate.app.app import App
from toolgate.gates.secrets.names import Owner
from toolgate.model import Actor
from toolgate.model.roles import Role

TENANT = "acme"
ANALYST = Actor(TENANT, "analyst", "ana")
OPS = Actor(TENANT, "ops", "omar")
LEAD = Actor(TENANT, None, "lena")
"""Answers approvals."""

KEYS: tuple[tuple[str, Actor, tuple[Role, ...], timedelta | None], ...] = (
    ("analyst agent", ANALYST, ("caller",), timedelta(days=90)),
    ("ops agent", OPS, ("caller",), timedelta(days=30)),
    ("approver on the phone", LEAD, ("approver", "viewer"), None),
    ("dashboard", Actor(TENANT, None, "wall"), ("viewer",), None),
    ("admin of acme", Actor(TENANT, None, "ada"), ("admin",), timedelta(days=365)),
)
"""The text of each is told to nobody: to call with one, make another."""


async def add_people(app: App) -> None:
    """Forbids the tenant to run code, and makes keys and a secret. The policy of the folder says what a persona may do."""
    await app.policy.restrict_code(TENANT)
    for name, actor, roles, lasting in KEYS:
        await app.keys.create(name, actor, roles=roles, lasting=lasting)
    await app.secrets.set("SUPPLIER_TOKEN", "demo-value-that-opens-nothing", Owner(TENANT))
