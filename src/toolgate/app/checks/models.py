"""The checks of the language model, of what it is told, and of the default time zone. No model is asked: that would cost
something."""

from collections.abc import AsyncIterator

from toolgate.app.app import App
from toolgate.app.checks import Check
from toolgate.errors import SettingsError, plural
from toolgate.model import LOCAL, Actor

MAX_NAMED = 5


async def model_checks(app: App) -> AsyncIterator[Check]:
    settings = app.settings.model
    for tenant in (None, *settings.tenants):
        yield _model(app, tenant)
    if app.settings.agent.prompts is not None:
        yield _prompts(app)
    if app.settings.discovery.pinned:
        yield _pinned(app)
    zones = app.settings.timezones
    others = f", and {plural(len(zones), 'other')} for tenants and users" if zones else ""
    yield Check("timezone", "ok", f"{app.settings.timezone}{others}")


def _pinned(app: App) -> Check:
    """The tools that models are listed in any case: whether there are tools of these names."""
    pinned = app.settings.discovery.pinned
    unknown = sorted({*pinned} - {entry.name for entry in app.parts.catalog.entries()})
    words = f"{plural(len(pinned), 'tool')} pinned"
    if unknown:
        advice = "Correct the setting discovery.pinned; `toolgate tools list` shows the names."
        return Check("discovery", "warning", f"{words}; no tool is named {', '.join(unknown[:MAX_NAMED])}", advice)
    return Check("discovery", "ok", words)


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


def _prompts(app: App) -> Check:
    """The prompt files of the operator: which there are, and whether a tool has the name in each."""
    try:
        tools = app.parts.prompt_files.load().tools
    except SettingsError as error:
        return Check("prompts", "warning", f"no agent can begin: {error}", error.suggestion)
    unknown = sorted(tools.keys() - {entry.name for entry in app.parts.catalog.entries()})
    words = f"{app.settings.agent.prompts}, with files for {plural(len(tools), 'tool')}"
    if unknown:
        return Check("prompts", "warning", f"{words}; no tool is named {', '.join(unknown[:MAX_NAMED])}")
    return Check("prompts", "ok", words)
