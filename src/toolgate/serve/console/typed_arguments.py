"""The arguments that somebody typed into a form, and back: a form that shows arguments."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from toolgate.serve.console.schema_fields import NUMERIC, ArgumentField, Form

REST = "rest"
"""The field for all arguments that have none of their own."""
WHOLE = "json"
"""The field for all arguments as one JSON object."""
MAX_SHOWN_CHARS = 100_000


class Problems(dict[str, str]):
    """The faults of a form, by the name of the field."""


def read_object(text: str) -> tuple[dict[str, Any], str | None]:
    """A JSON object that was typed, and what is wrong with it."""
    if not text.strip():
        return {}, None
    try:
        value = _loaded(text)
    except RecursionError:
        return {}, "It is nested too deep."
    except ValueError as error:
        where = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        return {}, f"This is not JSON{where}: it must be an object such as {{}}."
    return (value, None) if isinstance(value, dict) else ({}, 'It must be an object: {"name": value}.')


def _loaded(text: str) -> Any:
    """The value of a JSON text. Raises ValueError, also for half of a surrogate pair: it can be written as JSON, but is no
    character that a page or a call could hold; RecursionError."""
    value = json.loads(text)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def read_form(form: Form, sent: Mapping[str, list[str]]) -> tuple[dict[str, Any], Problems]:
    """The arguments of a form as it was sent, and what cannot be read of it. What is left empty is not given."""
    problems = Problems()
    found, wrong = read_object(sent.get(REST, [""])[-1])
    if wrong is not None:
        problems[REST] = wrong
    for field in form.fields:
        given, value = _read(field, sent, problems)
        if given:
            found[field.label] = value
    return found, problems


def _read(field: ArgumentField, sent: Mapping[str, list[str]], problems: Problems) -> tuple[bool, Any]:
    if field.kind == "group":
        inner = {one.label: value for one in field.fields for given, value in [_read(one, sent, problems)] if given}
        return bool(inner) or field.required, inner
    texts = [text.replace("\r\n", "\n") for text in sent.get(field.name, ())]
    if field.kind == "ticks":
        return bool(texts) or field.required, [_value(field, text, problems) for text in texts]
    text = texts[-1] if texts else ""
    if field.kind == "lines":
        lines = [line for line in text.split("\n") if line.strip()]
        return bool(lines), [_item(field, line, problems) for line in lines]
    return (False, None) if text == "" else (True, _value(field, text, problems))


def _item(field: ArgumentField, line: str, problems: Problems) -> Any:
    return _number(field, line, problems) if field.schema_type in NUMERIC else line


def _value(field: ArgumentField, text: str, problems: Problems) -> Any:
    if field.kind == "number":
        return _number(field, text, problems)
    if field.kind in ("json", "choice", "ticks", "boolean"):
        try:
            return _loaded(text)
        except (ValueError, RecursionError):
            problems[field.name] = "This is not JSON. Texts stand in quotes." if field.kind == "json" else "Choose one."
            return None
    return text


def _number(field: ArgumentField, text: str, problems: Problems) -> Any:
    try:
        plain = text.strip()
        return int(plain) if field.schema_type == "integer" or plain.lstrip("+-").isdigit() else _float(plain)
    except ValueError:
        kind = "a whole number" if field.schema_type == "integer" else "a number"
        problems[field.name] = f"This is not {kind}: {text.strip()[:40]}"
        return None


def _float(text: str) -> float:
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError
    return value


def sample_of(fields: Iterable[ArgumentField]) -> dict[str, Any]:
    """Arguments that show what a call must have, for somebody who fills in others: one for each that is required."""
    plain = {"number": 1, "boolean": True, "ticks": [], "lines": [], "json": None}
    found: dict[str, Any] = {}
    for field in fields:
        if not field.required:
            continue
        if field.kind == "group":
            found[field.label] = sample_of(field.fields)
        elif field.kind == "choice" and field.options:
            found[field.label] = json.loads(field.options[0][0])
        else:
            found[field.label] = plain.get(field.kind, "...")
    return found


def shown_in(form: Form, arguments: Mapping[str, Any]) -> dict[str, list[str]]:
    """The texts of a form that would be read as these arguments. What fits no field is with the rest."""
    shown: dict[str, list[str]] = {}
    known = set()
    for field in form.fields:
        if field.label in arguments:
            known.add(field.label)
            _show(field, arguments[field.label], shown)
    rest = {name: value for name, value in arguments.items() if name not in known}
    if rest:
        shown[REST] = [json.dumps(rest, ensure_ascii=False, indent=2)]
    return shown


def _show(field: ArgumentField, value: Any, shown: dict[str, list[str]]) -> None:
    if value is None:
        return
    if field.kind == "group" and isinstance(value, Mapping):
        for one in field.fields:
            if one.label in value:
                _show(one, value[one.label], shown)
    elif field.kind == "ticks" and isinstance(value, list):
        shown[field.name] = [json.dumps(one) for one in value]
    elif field.kind == "lines" and isinstance(value, list):
        shown[field.name] = ["\n".join(one if isinstance(one, str) else json.dumps(one) for one in value)]
    elif isinstance(value, str) and field.kind in ("text", "line", "number", "password"):
        shown[field.name] = [value]
    else:
        pretty = field.kind == "json"
        shown[field.name] = [json.dumps(value, ensure_ascii=not pretty, indent=2 if pretty else None)[:MAX_SHOWN_CHARS]]


def fault_names(form: Form, errors: Any) -> Problems:
    """The faults that a gate found, by the field that it belongs to; what belongs to none is under the empty name."""
    found: dict[str, list[str]] = {}
    fields = sorted(((_dotted(field), field) for field in form.all()), key=lambda one: -len(one[0]))
    for error in errors if isinstance(errors, list) else ():
        if not isinstance(error, Mapping):  # a tool's own error can say anything
            continue
        path, message = str(error.get("path", "")), str(error.get("message", ""))
        field = next((one for dotted, one in fields if _is_within(path, dotted)), None)
        if field is None or (field.kind == "group" and path != _dotted(field)):
            found.setdefault("", []).append(f"{path}: {message}" if path else message)
        else:
            inner = path[len(_dotted(field)) :]
            found.setdefault(field.name, []).append(f"{inner.lstrip('.')}: {message}" if inner else message)
    return Problems({name: _sentence("; ".join(messages))[:1_000] for name, messages in found.items()})


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _dotted(field: ArgumentField) -> str:
    return ".".join(step.replace("~1", "/").replace("~0", "~") for step in field.name[1:].split("/"))


def _is_within(path: str, dotted: str) -> bool:
    return path == dotted or path.startswith((f"{dotted}.", f"{dotted}["))
