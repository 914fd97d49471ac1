"""The names that people outside rely on (DESIGN section 4)."""

import inspect
import subprocess
import sys
from importlib.metadata import version
from typing import get_overloads

import pytest

import toolgate
from toolgate import App, tool

NAMES = [
    "Actor", "Answer", "App", "ApprovalRequest", "Auth", "CacheRule", "CallError", "Capability", "Cost",
    "DefinitionError", "ErrorCase", "Example", "GrantTerms", "Hook", "InvalidInput", "InvokeContext", "Job",
    "JobContext", "Operation", "Outcome", "PermanentFailure", "PromptDraft", "RateLimit", "Retry", "Settings",
    "SettingsError", "StoreError", "Tool", "ToolError", "ToolgateError", "UnitCost", "job_handler", "tool",
]  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert toolgate.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    assert (getattr(toolgate, name).__doc__ or "").strip()
    assert name in dir(toolgate)


def test_the_version_is_that_of_the_package() -> None:
    assert toolgate.__version__ == version("toolgate")


def test_a_name_that_is_not_there_is_missing_as_usual() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        toolgate.nothing  # noqa: B018 - to ask is all
    with pytest.raises(ImportError):
        exec("from toolgate import nothing")


def test_to_declare_a_tool_the_whole_of_an_app_need_not_be_loaded() -> None:
    code = "import sys; from toolgate import Actor, tool; print('toolgate.app.app' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_invoke_takes_what_the_design_says() -> None:
    parameters = inspect.signature(App.invoke).parameters
    assert list(parameters)[:8] == [
        "self", "name", "arguments", "actor", "session", "idempotency_key", "approval", "timeout",
    ]  # fmt: skip
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in list(parameters)[3:])
    assert all(parameter.default is None for name, parameter in parameters.items() if name in list(parameters)[2:8])


def test_open_takes_settings_or_a_path_and_overrides() -> None:
    parameters = inspect.signature(App.open).parameters
    assert list(parameters) == ["settings_or_path", "overrides"]
    assert parameters["settings_or_path"].default is None
    assert parameters["overrides"].kind is inspect.Parameter.VAR_KEYWORD


def test_the_decorator_takes_what_the_design_says() -> None:
    options = inspect.signature(get_overloads(tool)[-1]).parameters
    assert set(options) >= {
        "name", "tier", "category", "version", "cost", "timeout", "retry", "cache", "rate_limit", "concurrency",
        "requires_auth", "requires_permission", "capabilities", "hooks", "documentation", "tags",
    }  # fmt: skip
    assert all(
        option.kind is inspect.Parameter.KEYWORD_ONLY and option.default is not option.empty for option in options.values()
    )


def test_an_actor_has_a_tenant_a_persona_and_a_user() -> None:
    actor = toolgate.Actor(tenant="acme", persona="analyst", user="u-1")
    assert (actor.tenant, actor.persona, actor.user) == ("acme", "analyst", "u-1")
    assert toolgate.Actor() == toolgate.Actor(tenant="default", persona=None, user="local")
