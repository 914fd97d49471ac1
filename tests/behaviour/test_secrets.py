"""Secrets by reference: `{{secret:NAME}}` reaches the tool as the value, and nothing else ever sees it."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from toolgate import Actor, App, CacheRule, InvokeContext, ToolError, tool
from toolgate.model import MASK
from toolgate.store.audit_log import latest
from toolgate.testing import memory_app

pytestmark = pytest.mark.requirement("IO-4")
SECRET = 'open "sesame" & co'
seen: list[Any] = []
TOOLS = ("use", "mirror", "fail", "rewrite", "long")
USE = {"use": {name: [{"tool": tool, "tenant": "*"} for tool in TOOLS] for name in (
    "Sesame", "LOOP", "PATH", "NOT_FOR_TOOLS", "TOOLGATE_SECRET_SESAME", "MISSING", "TOOLGATE_SECRETS_KEY", "S_KEY",
)}}  # fmt: skip


@tool(tier="read_only", cache=CacheRule(ttl=60))
async def use(value: Any) -> str:
    """Use a value."""
    seen.append(value)
    return "used"


@tool(tier="read_only", cache=CacheRule(ttl=60))
async def mirror(value: Any) -> Any:
    """Give back."""
    seen.append(value)
    return value


@tool(tier="read_only")
async def fail(value: str) -> None:
    """Fail."""
    raise ToolError(f"refused {value}", suggestion=f"not {value!r}", details={"url": f"/?q={quote(value)}", "in": [value]})


@tool(tier="read_only", requires_auth="SERVICE")
async def authenticated(ctx: InvokeContext) -> Any:
    """Needs a credential."""
    seen.append(ctx.credential)
    return {"sent": f"key {ctx.credential}"}


@pytest.fixture
async def app(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    seen.clear()
    monkeypatch.setenv("TOOLGATE_SECRET_SESAME", SECRET)
    monkeypatch.setenv("NOT_FOR_TOOLS", "private")
    monkeypatch.setenv("TOOLGATE_SECRETS_KEY", "private")
    async with memory_app(secrets=USE) as app:
        app.tools.register_many([use, mirror, fail, authenticated])
        yield app


async def on_record(app: App) -> str:
    await app.flush()
    return "\n".join(row[7] for row in await app.parts.store.read(latest(50)))


def hides_it(text: str) -> bool:
    return not any(part in text for part in ("open ", "& co", quote(SECRET)))


async def test_a_reference_reaches_the_tool_as_the_value_at_any_depth(app: App) -> None:
    value = {"headers": [{"x": "{{secret:SESAME}}"}, "Bearer {{ secret:SESAME }}, twice {{secret:sesame}}"], "n": 1}
    outcome = await app.invoke("use", {"value": value})
    assert outcome.output == "used"
    assert seen == [{"headers": [{"x": SECRET}, f"Bearer {SECRET}, twice {SECRET}"], "n": 1}]
    log = await on_record(app)
    assert "{{secret:SESAME}}" in log
    assert hides_it(log)


async def test_a_value_that_comes_back_is_masked_and_not_cached(app: App) -> None:
    value = ["{{secret:SESAME}}", {"a": "so: {{secret:SESAME}}!"}]
    for _ in range(2):
        outcome = await app.invoke("mirror", {"value": value})
        assert outcome.output == [MASK, {"a": f"so: {MASK}!"}]
        assert not outcome.metrics.cached
    assert len(seen) == 2
    assert hides_it(await on_record(app))


async def test_a_value_that_comes_back_as_a_name_or_inside_json_or_a_url_is_masked(app: App) -> None:
    @tool(tier="read_only")
    async def rewrite(value: str) -> dict[str, str]:
        """Write it otherwise."""
        return {
            value: "name",
            "json": orjson.dumps({"v": value}).decode(),
            "url": f"/?q={quote(value)}",
            "repr": repr([value]),
        }

    app.register(rewrite)
    outcome = await app.invoke("rewrite", {"value": "{{secret:SESAME}}"})
    assert outcome.output == {
        MASK: "name", "json": f'{{"v":"{MASK}"}}', "url": f"/?q={MASK}", "repr": f"['{MASK}']",
    }  # fmt: skip


async def test_what_was_cut_is_kept_without_the_value(app: App) -> None:
    @tool(tier="read_only")
    async def long(value: str) -> str:
        """Give much."""
        return "x" * 20_000 + value

    app.register(long)
    outcome = await app.invoke("long", {"value": "{{secret:SESAME}}"})
    assert outcome.artifact is not None
    assert await app.audit.artifact(outcome.artifact.id, actor=Actor()) == orjson.dumps("x" * 20_000 + MASK)


async def test_a_cached_result_is_found_by_the_reference_not_by_the_value(app: App) -> None:
    first = await app.invoke("use", {"value": "{{secret:SESAME}}"})
    second = await app.invoke("use", {"value": "{{secret:SESAME}}"})
    by_value = await app.invoke("use", {"value": SECRET})
    assert [first.metrics.cached, second.metrics.cached, by_value.metrics.cached] == [False, True, False]


async def test_an_error_does_not_show_the_value(app: App) -> None:
    outcome = await app.invoke("fail", {"value": "{{secret:SESAME}}"})
    assert outcome.error is not None
    assert outcome.error.message == f"refused {MASK}"
    assert outcome.error.suggestion == f"not '{MASK}'"
    assert outcome.error.details == {"url": f"/?q={MASK}", "in": [MASK]}
    assert hides_it(await on_record(app))


@pytest.mark.parametrize(
    "name", ["PATH", "NOT_FOR_TOOLS", "TOOLGATE_SECRET_SESAME", "TOOLGATE_SECRETS_KEY", "S_KEY", "MISSING"]
)
async def test_other_variables_of_the_environment_are_out_of_reach(app: App, name: str) -> None:
    outcome = await app.invoke("mirror", {"value": [f"{{{{secret:{name}}}}}"]})
    assert outcome.status == "denied"
    assert outcome.error is not None
    assert outcome.error.code == "MISSING_AUTH"
    assert name in outcome.error.message
    assert outcome.error.details == {"missing": name}
    assert f"TOOLGATE_SECRET_{name}" in (outcome.error.suggestion or "")
    assert seen == []


@pytest.mark.parametrize("name", ["", "a-b", "1A", "../SESAME", "SESAME\n", "SÉSAME", "x" * 150, "A B"])
@pytest.mark.sample(4)
async def test_what_is_no_name_is_refused_and_not_handed_to_the_tool(app: App, name: str) -> None:
    outcome = await app.invoke("mirror", {"value": f"{{{{secret:{name}}}}}"})
    if name.strip() == "SESAME":
        assert outcome.output == MASK
    else:
        assert outcome.error is not None
        assert outcome.error.code == "MISSING_AUTH"
        assert seen == []


@pytest.mark.parametrize("text", ["{{secret}}", "{secret:SESAME}", "secret:SESAME", "{{ other:SESAME }}", "{{"])
async def test_other_braces_are_text(app: App, text: str) -> None:
    outcome = await app.invoke("mirror", {"value": text})
    assert outcome.output == text


async def test_a_value_that_looks_like_a_reference_is_not_looked_up_again(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_LOOP", "{{secret:SESAME}}")
    await app.invoke("use", {"value": "{{secret:LOOP}}"})
    assert seen == ["{{secret:SESAME}}"]


async def test_a_tool_gets_the_credential_that_it_declares(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLGATE_SECRET_SERVICE", "wide open")
    outcome = await app.invoke("authenticated")
    assert seen == ["wide open"]
    assert outcome.output == {"sent": f"key {MASK}"}
    assert "wide open" not in await on_record(app)


async def test_a_tool_whose_credential_is_missing_is_not_run(app: App) -> None:
    outcome = await app.invoke("authenticated")
    assert outcome.status == "denied"
    assert outcome.error is not None
    assert outcome.error.code == "MISSING_AUTH"
    assert "SERVICE" in outcome.error.message
    assert "TOOLGATE_SECRET_SERVICE" in (outcome.error.suggestion or "")
    assert seen == []
    assert outcome.metrics.attempts == 0


@pytest.mark.requirement("IO-5")
@pytest.mark.parametrize("most", [12, 15, 17])
async def test_an_error_that_cuts_the_value_shows_no_part_of_it(app: App, most: int) -> None:
    @tool(tier="read_only")
    async def long(value: str) -> None:
        """Quote a part of it."""
        raise ToolError(f"there is no {value[:most]!r}", details={"end": value[-most:]}, suggestion=f"not {value[:most]}")

    app.register(long)
    outcome = await app.invoke("long", {"value": "{{secret:SESAME}}"})
    assert outcome.error is not None
    assert MASK in outcome.error.message
    everything = outcome.to_json().decode() + await on_record(app)
    assert not any(SECRET[at : at + 8] in everything.replace("\\", "") for at in range(len(SECRET) - 7))


@pytest.mark.requirement("IO-5")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("calculator", {"expression": "{key}"}),
        ("calculator", {"expression": "1 + {key} + 2"}),
        ("datetime", {"operation": "now", "timezone": "{key}"}),
        ("datetime", {"operation": "add", "date": "2026-01-01", "amount": 1, "unit": "{key}"}),
        ("timestamp", {"format": "{key}"}),
    ],
)
async def test_a_key_in_an_argument_is_not_cut_before_it_is_masked(app: App, name: str, arguments: dict[str, Any]) -> None:
    key = "ghp_" + "a1B2" * 12
    given = {field: value.format(key=key) if isinstance(value, str) else value for field, value in arguments.items()}
    outcome = await app.invoke(name, given)
    assert outcome.error is not None
    everything = outcome.to_json().decode() + await on_record(app)
    assert "a1B2a1B2" not in everything


async def test_what_a_tool_says_while_it_runs_shows_no_value(app: App) -> None:
    said: list[Any] = []

    class Listening:
        """A door that keeps in touch with whoever called."""

        async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
            said.append((progress, total, message))

    @tool(tier="read_only")
    async def long(ctx: InvokeContext, value: str) -> str:
        """Tell how far it is."""
        await ctx.progress(1, 2, f"sent {value}, {value[::-1].upper()}")
        return "sent"

    app.register(long)
    assert (await app.invoke("long", {"value": "{{secret:SESAME}}"}, caller=Listening())).ok  # type: ignore[arg-type]
    assert said == [(1, 2, f"sent {MASK}, {MASK}")]
