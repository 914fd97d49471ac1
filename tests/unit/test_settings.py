"""Settings: four layers, strict names, and a page that has them all."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticUndefined

from toolgate.errors import SettingsError
from toolgate.settings import (
    ChannelSettings,
    OAuthSettings,
    SamplingSettings,
    Section,
    ServerSettings,
    ServerToolSettings,
    Settings,
    WorkflowSettings,
    load_settings,
)
from toolgate.settings.approvals import ApprovalNoticeSettings, WebhookSettings
from toolgate.settings.events import EventKeySettings
from toolgate.settings.policy import ToolSettings
from toolgate.settings.qstash import QStashActor
from toolgate.settings.workflows import WorkflowRetrySettings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"


BY_NAME: dict[str, type[Section]] = {
    "servers.<name>.": ServerSettings,
    "servers.<name>.tools.<tool>.": ServerToolSettings,
    "servers.<name>.oauth.": OAuthSettings,
    "servers.<name>.sampling.": SamplingSettings,
    "notify.channels.<name>.": ChannelSettings,
    "approvals.notify.<name>.": ApprovalNoticeSettings,
    "approvals.notify.<name>.webhook.": WebhookSettings,
    "qstash.take.<name>.": QStashActor,
    "workflows.<name>.": WorkflowSettings,
    "workflows.<name>.retry.": WorkflowRetrySettings,
    "events.keys.<name>.": EventKeySettings,
    "tools.<name>.": ToolSettings,
}
"""Groups of which there are as many as somebody names."""


def all_settings() -> list[tuple[str, Any]]:
    named = [setting for prefix, section in BY_NAME.items() for setting in every_setting(section, prefix)]
    return [*every_setting(), *named]


def every_setting(section: type[Section] = Settings, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting by its full name, with its default."""
    for name, field in section.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if isinstance(default, Section):
            yield from every_setting(type(default), f"{prefix}{name}.")
        else:
            yield f"{prefix}{field.alias or name}", default


@pytest.mark.parametrize(("name", "default"), all_settings(), ids=lambda part: part if isinstance(part, str) else "")
def test_a_setting_is_on_the_page_with_default_variable_and_meaning(name: str, default: Any) -> None:
    shown = "required" if default is PydanticUndefined else orjson.dumps(default, default=str).decode()
    variable = "TOOLGATE_" + name.replace(".", "__").upper()
    [row] = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{name}` |")]
    _, _, told_default, told_variable, meaning, _ = row.split("|")
    assert told_default.strip() == f"`{shown}`"
    assert told_variable.strip() == f"`{variable}`"
    assert len(meaning.strip()) > 10


def test_the_page_has_no_setting_that_does_not_exist() -> None:
    names = {line.split("`")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")}
    assert names - {name for name, _ in all_settings()} == set()


# -- layers


def load(text: str = "", environment: dict[str, str] | None = None, tmp: Path | None = None, **overrides: Any) -> Settings:
    file = None
    if tmp is not None:
        file = tmp / "settings.yaml"
        file.write_text(text, encoding="utf-8")
    return load_settings(file, overrides, environment or {})


def test_arguments_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    text = "limits: {output_items: 1, output_string: 1, threads: 1}\ntoken_price: 1.5"
    environment = {"TOOLGATE_LIMITS__OUTPUT_ITEMS": "2", "TOOLGATE_LIMITS__OUTPUT_STRING": "2"}
    settings = load(text, environment, tmp_path, limits={"output_items": 3})
    assert (settings.limits.output_items, settings.limits.output_string, settings.limits.threads) == (3, 2, 1)
    assert settings.token_price == 1.5
    assert settings.limits.artifact_days == 7


def test_the_file_can_be_named_by_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("metrics: true")
    assert load_settings(None, {}, {"TOOLGATE_SETTINGS": str(file)}).metrics
    with pytest.raises(SettingsError, match=r"missing\.yaml does not exist"):
        load_settings(tmp_path / "missing.yaml", {}, {})


def test_the_file_beside_the_program_is_read_if_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not load_settings(None, {}, {}).metrics
    (tmp_path / "toolgate.yaml").write_text("metrics: true")
    assert load_settings(None, {}, {}).metrics


def test_both_spellings_are_read_and_names_of_tools_are_left_as_they_are(tmp_path: Path) -> None:
    text = """
    scanSecrets: false
    limits: {outputItems: 7}
    tierOverrides: {MyTool: write}
    tools: {MyTool: {enabled: false}, showTokenCosts: false, autoLoadCustomTools: false, maxExecutionTime: 1500}
    """
    settings = load(text, tmp=tmp_path)
    assert settings.scan_secrets is False
    assert settings.limits.output_items == 7
    assert settings.tier_overrides == {"MyTool": "write"}
    assert list(settings.tools) == ["MyTool"]
    assert settings.tools["MyTool"].enabled is False
    assert settings.show_token_costs is False
    assert settings.auto_load_custom_tools is False
    assert settings.max_execution_time == 1.5


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("maxExecutionTime: 30000", 30), ("max_execution_time: 30", 30), ("tools: {maxExecutionTime: 2500.0}", 2.5)],
)
def test_the_spelling_says_whether_time_is_in_milliseconds(tmp_path: Path, text: str, seconds: float) -> None:
    assert load(text, tmp=tmp_path).max_execution_time == seconds


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("TOOLGATE_SENSITIVE_KEYS", '["iban", "pin"]', "sensitive_keys", ("iban", "pin")),
        ("TOOLGATE_TIER_OVERRIDES", '{"Echo": "write"}', "tier_overrides", {"Echo": "write"}),
        ("TOOLGATE_SCAN_SECRETS", "false", "scan_secrets", False),
        ("TOOLGATE_HOME", "/data", "home", Path("/data")),
        ("TOOLGATE_MAX_EXECUTION_TIME", "2.5", "max_execution_time", 2.5),
    ],
)
def test_variables_hold_text_or_json(variable: str, text: str, name: str, value: Any) -> None:
    assert getattr(load(environment={variable: text}), name) == value


@given(
    st.dictionaries(st.from_regex(r"TOOLGATE_SECRET_[A-Z]{1,9}|TOOLGATE_Z[A-Z_]{1,9}|[A-Z]{1,9}", fullmatch=True), st.text())
)
def test_secrets_and_variables_of_others_are_no_settings(environment: dict[str, str]) -> None:
    assert load(environment=environment).model_dump() == Settings().model_dump()


# -- what is wrong


@pytest.mark.parametrize(
    ("values", "name", "suggestion"),
    [
        ({"scan_secret": True}, "scan_secret", "Did you mean 'scan_secrets'?"),
        ({"limits": {"output_item": 1}}, "limits.output_item", "Did you mean 'output_items'?"),
        ({"tools": {"echo": {"enable": True}}}, "tools.echo.enable", "Did you mean 'enabled'?"),
        ({"zzz": 1}, "zzz", "See docs/reference/settings.md."),
    ],
)
def test_a_name_that_does_not_exist_is_refused_with_the_nearest(values: dict[str, Any], name: str, suggestion: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(**values)
    assert caught.value.message == f"There is no setting {name!r} (read from the arguments)."
    assert caught.value.suggestion == suggestion


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("limits: {output_items: 0}", "'limits.output_items' (read from"),
        ("limits: 5", "'limits' (read from"),
        ("max_execution_time: soon", "'max_execution_time' (read from"),
        ("- a list", "must hold names and values, not a list"),
        ("a: [1", "settings.yaml is refused at line 2, column 1: it is not valid YAML"),
        ("{a: b: c}", "refused at line 1, column 6: it is not valid YAML"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_and_where_it_was_read(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(text, tmp=tmp_path)
    assert words in caught.value.message
    assert "settings.yaml" in caught.value.message


@pytest.mark.parametrize(
    ("text", "words", "suggestion"),
    [
        ("# a\nlimits:\n  threads: 3\n  output_item: 1", "'limits.output_item' {at} 4)", "'output_items'"),
        ("home: x\nscanSecret: true", "'scan_secret' {at} 2)", "'scan_secrets'"),
        ("servers:\n  a:\n    command: [x]\n    tools: {b: {enable: 1}}", "'servers.a.tools.b.enable' {at} 4)", "'enabled'"),
        ("approvals:\n  rules:\n  - tool: a\n    quorums: 2", "'approvals.rules.0.quorums' {at} 4)", "'quorum'"),
        ("output_items: 5", "'output_items' {at} 1)", "'limits.output_items'"),
        ("limits: {metrics: true}", "'limits.metrics' {at} 1)", "'metrics'"),
        ("\nlimits:\n  threads: many", "'limits.threads' {at} 3) is wrong", None),
        ("tools:\n  maxExecutionTime: soon", "'max_execution_time' {at} 2) is wrong", None),
        ("a: 1\nb: {c: d: e}", "{file} is refused at line 2, column 9: it is not valid YAML: ", None),
        ("limits:\n\tthreads: 1", "{file} is refused at line 2, column 1: it is not valid YAML: found character", None),
        ("limits:\n\tthreads: 1", "indent with spaces, YAML takes no tabs", None),
        ("a: \x07", "{file} is refused at line 1, column 4: it holds the character U+0007", None),
        ("metrics: true\n\nmetrics: false", "the key 'metrics' stands twice, in lines 1 and 3: keep one of them", None),
        ("limits: {threads: 1, threads: 2}", "the key 'threads' stands twice, in lines 1 and 1", None),
        ("commands:\n  deny: [rm]\n  deny: []", "the key 'deny' stands twice, in lines 2 and 3", None),
        ("approvals:\n  rules:\n  - tool: a\n    quorum: 2\n    quorum: 1", "'quorum' stands twice, in lines 4 and 5", None),
        ("servers:\n  a: {command: [x]}\n  'a': {url: y}", "the key 'a' stands twice, in lines 2 and 3", None),
        ("scan_secrets: true\n\nscanSecrets: false", "has 'scan_secrets' twice, in lines 1 and 3", "Keep one"),
        ("max_execution_time: 5\nmaxExecutionTime: 60000", "has 'max_execution_time' twice, in lines 1 and 2", "Keep one"),
        ("maxExecutionTime: 5\ntools:\n  maxExecutionTime: 9", "has 'max_execution_time' twice, in lines 1 and 3", None),
        ("sandbox:\n  memory_mb: 96\n  memoryMb: 65536", "has 'memory_mb' twice, in lines 2 and 3", "Keep one"),
        ("a: &a {b: *a}", "{file} is refused at line 1, column 11: the alias *a stands inside of what it repeats", None),
        ("limits: &l {threads: 1}\nbudgets:\n  <<: *l", "line 3, column 3: merging with << is not read here", None),
        ("home: !!python/name:os.system x", "line 1, column 7: the tag tag:yaml.org,2002:python/name:os.system", None),
        ("1: x", "line 1, column 1: a key must be text", None),
        ("a: 1\n---\nb: 2", "line 2, column 1: it holds more than one document", None),
        ("home: " + "[" * 70 + "]" * 70, "nested more than 64 levels deep", None),
        ("home: '" + "x" * 262_144 + "'", "{file} is refused: it has more than 262,144 bytes", None),
        (f"a: &a [{'x,' * 99}]\nb: &b [{'*a,' * 99}]\nc: [{'*b,' * 99}]", "it holds too many values", None),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_told_with_its_line(
    tmp_path: Path, text: str, words: str, suggestion: str | None
) -> None:
    with pytest.raises(SettingsError) as caught:
        load(text, tmp=tmp_path)
    file = tmp_path / "settings.yaml"
    assert words.format(file=file, at=f"(read from {file}, line") in caught.value.message
    assert (suggestion or "") in (caught.value.suggestion or "")


@pytest.mark.parametrize("word", ["yes", "on", "true", "True"])
def test_words_for_yes_switch_a_setting_on(tmp_path: Path, word: str) -> None:
    """YAML 1.2 reads only true and false as such; the others are text, which a switch takes as well."""
    assert load(f"metrics: {word}", tmp=tmp_path).metrics is True


def test_text_that_older_yaml_took_for_something_else_stays_text(tmp_path: Path) -> None:
    text = "servers: {a: {command: [x, no, 2026-11-15, 010x], env: {ON: on, COUNTRY: NO, BORN: 2026-11-15}}}"
    server = load(text, tmp=tmp_path).servers["a"]
    assert server.command == ("x", "no", "2026-11-15", "010x")
    assert server.env == {"ON": "on", "COUNTRY": "NO", "BORN": "2026-11-15"}


def test_the_layer_that_says_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"limits.output_item' \(read from .*settings.yaml, line 1"):
        load("limits: {output_item: 1}", {"TOOLGATE_LIMITS__THREADS": "5"}, tmp_path, limits={"output_items": 3})
    with pytest.raises(SettingsError, match="read from the environment"):
        load("limits: {threads: 1}", {"TOOLGATE_LIMITS__THREADS": "many"}, tmp_path)


def test_arguments_are_left_as_they_were_given(tmp_path: Path) -> None:
    given = {"servers": {"a": {"command": ["x"]}}}
    load("servers: {a: {timeout: 5}}", {"TOOLGATE_SERVERS__A__RESTARTS": "1"}, tmp_path, **given)
    assert given == {"servers": {"a": {"command": ["x"]}}}


def test_a_wrong_database_is_refused_without_showing_its_password() -> None:
    with pytest.raises(SettingsError) as caught:
        load(environment={"TOOLGATE_DATABASE_URL": "mysql://ann:hunter2@db/x"})
    assert "must begin with sqlite:///, memory:// or postgresql://" in str(caught.value)
    assert "the environment" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_group_set_as_a_whole_and_in_part_is_refused() -> None:
    with pytest.raises(SettingsError, match="one of them has to go"):
        load(environment={"TOOLGATE_LIMITS": "5", "TOOLGATE_LIMITS__THREADS": "5"})


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    for text in ("", "# nothing", "limits:\nservers:\n  # none", "---\n", "\ufeff"):
        assert load(text, tmp=tmp_path).model_dump() == Settings().model_dump()


def test_overrides_of_settings_change_only_what_they_name() -> None:
    first = load_settings(os.devnull, {"limits": {"output_items": 5}, "token_price": 2}, {})
    second = first.with_overrides({"limits": {"output_string": 7}})
    assert (second.limits.output_items, second.limits.output_string, second.token_price) == (5, 7, 2)


def test_names_that_others_gave_stay_as_they_are(tmp_path: Path) -> None:
    """Of servers, their tools, variables and headers: only our own names may be spelled in two ways."""
    text = """
    servers:
      myServer:
        command: [server]
        env: {API_KEY: a, someThing: b}
        headers: {X-Api-Key: c}
        trustFirstSeen: true
        tools: {getAll: {requiresPermission: "tool:getAll"}}
    """
    [(name, server)] = load(text, tmp=tmp_path).servers.items()
    assert name == "myServer"
    assert server.env == {"API_KEY": "a", "someThing": "b"}
    assert server.headers == {"X-Api-Key": "c"}
    assert server.trust_first_seen
    assert server.tools["getAll"].requires_permission == "tool:getAll"


@pytest.mark.parametrize("name", ["", "../x", "a b", "mcp:x", "x" * 65, "1st", "a\n"])
def test_a_servers_name_is_one_that_its_tools_can_have(name: str) -> None:
    with pytest.raises(SettingsError, match="cannot be a server's name"):
        load(servers={name: {"command": ["x"]}})
