"""Undocumented means a failing test."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from typer.main import get_command

from toolgate.cli.main import with_commands
from toolgate.errors import CODES
from toolgate.hooks import STAGES
from toolgate.settings import Settings

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def names_in(page: str) -> list[str]:
    """What a table of the page lists in its first column."""
    return re.findall(r"^\| `(\w+)`", (REFERENCE / page).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_stage_is_documented_and_nothing_else() -> None:
    assert sorted(names_in("stages.md")) == sorted(STAGES)


def test_every_setting_is_documented() -> None:
    text = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    missing = [name for name in _settings(Settings) if f"`{name}`" not in text]
    assert missing == []


def _settings(section: type[BaseModel], before: str = "") -> Iterator[str]:
    """The names of all settings: of a group its own, of what stands by names that somebody gave only the group's."""
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _settings(kind, f"{before}{name}.")
        else:
            yield before + name


def test_every_command_is_documented() -> None:
    text = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    missing = [words for words in _commands(get_command(with_commands()), "toolgate") if f"`{words}" not in text]
    assert missing == []


def _commands(command: Any, words: str) -> Iterator[str]:
    """The words of all commands."""
    inner = getattr(command, "commands", {})
    if not inner:
        yield words
    for name, each in inner.items():
        if not each.hidden:
            yield from _commands(each, f"{words} {name}")


def test_every_code_is_documented_with_its_status() -> None:
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    assert names_in("errors.md") == list(CODES)
    for code, meaning in CODES.items():
        assert f"| `{code}` | {meaning.status} |" in text
