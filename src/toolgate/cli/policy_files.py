"""What the commands about policies share: their files, and the engine in this process."""

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from toolgate.app.app import App
from toolgate.cli.context import Usage
from toolgate.gates.policy.question import Embedded, Remote

DataFile = Annotated[
    Path | None, typer.Option("--data", metavar="FILE", help="Documents from this JSON file instead of the ones in force.")
]


def embedded(app: App) -> Embedded:
    engine: Embedded | Remote = app.guard.engine
    if engine.remote is True:
        raise Usage("An OPA server decides here, by its own data.", suggestion="Name a policy as well: --policy FILE.")
    return engine


def text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"{file} can't be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}.") from None


def json_of(file: Path) -> Any:
    try:
        return orjson.loads(text_of(file))
    except orjson.JSONDecodeError as error:
        raise Usage(f"{file} is not JSON: {error}.") from None
