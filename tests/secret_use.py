"""The setting `secrets.use`, in short."""

from typing import Any


def named(secret: str, *tools: str, tenant: str = "*", **origin: str) -> dict[str, Any]:
    """Settings that name tools for a secret: for all tenants if none is said; `server` or `source`: their origin."""
    return {"use": {secret: [{"tool": tool, "tenant": tenant, **origin} for tool in tools]}}
