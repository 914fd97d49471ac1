"""The checks of the language model and of the default time zone. No model is asked: that would cost something."""

from collections.abc import AsyncIterator

from toolgate.app.app import App
from toolgate.app.checks import Check
from toolgate.errors import plural
from toolgate.model import LOCAL, Actor


async def model_checks(app: App) -> AsyncIterator[Check]:
    settings = app.settings.model
    for tenant in (None, *settings.tenants):
        yield _model(app, tenant)
    zones = app.settings.timezones
    others = f", and {plural(len(zones), 'other')} for tenants and users" if zones else ""
    yield Check("timezone", "ok", f"{app.settings.timezone}{others}")


def _model(app: App, tenant: str | None) -> Check:
    choice = app.settings.model.of(LOCAL.tenant if tenant is None else tenant)
    whose = "" if tenant is None else f" for tenant {tenant}"
    if choice.name is None:
        words = f"none{whose}: deep_reasoning is refused, text_transform works offline"
        return Check("model", "unused", words, "The setting model.name names one." if tenant is None else None)
    words = f"{choice.name}{whose} at {choice.address}"
    missing = app.parts.models.missing_key(LOCAL if tenant is None else Actor(tenant=tenant, user=LOCAL.user))
    if missing is None:
        return Check("model", "ok", words)
    option = "" if tenant is None else f" --tenant {tenant}"
    return Check(
        "model", "warning", f"{words}, but its key is not set", f"`toolgate secrets set {missing}{option}` sets it."
    )
