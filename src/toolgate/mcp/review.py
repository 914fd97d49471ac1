"""Shows a definition of an MCP server to the person who may accept it: the diff, and what looks like instructions to a
model."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from difflib import unified_diff
from json import dumps
from typing import Any, NamedTuple

import orjson

from toolgate.mcp.definitions import DefinitionKey
from toolgate.mcp.pins import DEFINITION_SHAPES, INVISIBLE, label, word_for

SHOWN_FIELDS = (*dict.fromkeys(field for shape in DEFINITION_SHAPES.values() for field in shape.pinned), "http")
"""The pinned fields of servers' definitions, and the request that a tool of a document sends."""
LINE_CHARS = 200
REQUEST_CHARS = 500
MAX_MATCHED_LINES = 4_000
"""Lines that are matched with each other; beyond, all from the first difference on are shown."""
MAX_INDENT = 80
"""Leading blanks that are not counted."""
BLANKS = re.compile(r"([^\S\n])\1{8,}")
BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n){4,}")
BLANK_NAMES = {" ": "blanks", "\t": "tabs"}
MAX_WARNINGS = 20
MAX_SHOWN_ARGUMENTS = 30
PLAIN_NAME = re.compile(r"[\w.$-]{1,64}\Z")
PLAIN_SCHEMA = frozenset(
    {"$defs", "$schema", "additionalProperties", "description", "properties", "required", "title", "type"}
)
"""Fields of a schema beside which there are no arguments but those in `properties`."""
BRIEF_FIELDS = ("name", "description", "uri", "uriTemplate")
FIELDS_WITHOUT_PROSE = ("$ref", "$schema", "required", "type")
"""Fields of a schema that hold only keywords."""
SUSPICIOUS_TEXT = {
    "tells its reader to ignore what it was told": (
        r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:previous|prior|above|earlier|all|other|any)\b"
    ),
    "tells its reader to keep something from somebody": (
        r"\b(?:do not|don't|never)\b.{0,40}\b(?:tell|mention|inform|reveal|show|notify)\b"
    ),
    "has a tag as prompts have them": (
        r"<\s*/?\s*(?:important|system|instructions?|secret|hidden|admin|assistant|user)\b[^>]{0,80}>"
    ),
    "says when other tools must be called": (
        r"\b(?:you must|always|before (?:using|calling))\b.{0,60}\b(?:call|use|invoke|run|execute)\b.{0,40}\btool"
    ),
    "speaks of the model's own instructions": r"\b(?:system prompt|developer message|jailbreak)\b",
    "names files that hold secrets": r"(?:~/|/)\.(?:ssh|aws|env|gnupg|netrc|config)\b|\bid_rsa\b|\bmcp\.json\b",
    "holds a long piece of encoded data": r"(?:[A-Za-z0-9+/]{4}){50,}={0,2}",
}
_SUSPICIOUS = {words: re.compile(pattern, re.IGNORECASE | re.DOTALL) for words, pattern in SUSPICIOUS_TEXT.items()}


class PendingDefinition(NamedTuple):
    server: str
    method: str
    tool: str
    """The server's own name of it; of a resource or template, its URI."""
    name: str
    """The name that it would have here."""
    hash: str
    """Of the definition that is shown: only that one can be accepted."""
    found: dict[str, Any]
    accepted: dict[str, Any] | None
    """The definition that was accepted before; None if none was."""
    first_seen: datetime
    changed_at: datetime
    wrong: str | None = None
    """The reason why it can't be published even if it is accepted."""
    tier: str | None = None
    """The tier that it would have here; None: it is no tool, or can't be published."""

    @property
    def key(self) -> DefinitionKey:
        return self.method, self.tool

    @property
    def label(self) -> str:
        return label(self.key)

    @property
    def kind(self) -> str:
        """tool, prompt, resource or resource template."""
        return word_for(self.method)

    @property
    def is_new(self) -> bool:
        return self.accepted is None

    def diff(self) -> list[str]:
        """The changed lines; of a new one, all of it."""
        return diff_of(self.accepted, self.found)

    def brief(self) -> list[str]:
        """The first line of its description, the request that it sends, and the names of its arguments. What is left out is
        counted, for a model reads all of it. A change is shown by its diff."""
        if not self.is_new:
            return self.diff()
        return [
            *_first_line(self.found.get("description")),
            *_request(self.found.get("http")),
            *_arguments(self.found),
            *_left_out(self.found),
        ]

    def warnings(self) -> list[str]:
        return suspicious(self.found)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "server": self.server,
            "kind": self.kind,
            "tool": self.label,
            "state": "new" if self.is_new else "changed",
            "tier": self.tier,
            "hash": self.hash,
            "definition": self.found,
            "accepted": self.accepted,
            "diff": self.diff(),
            "warnings": self.warnings(),
            "problem": self.wrong,
            "first_seen": self.first_seen.isoformat(),
            "changed_at": self.changed_at.isoformat(),
        }


def _first_line(description: Any) -> list[str]:
    if not isinstance(description, str) or not description.strip():
        return ["(no description)"]
    text = description.strip()
    first = text.split("\n", 1)[0][:LINE_CHARS]
    more = len(text) - len(first)
    return [visible(first) + (f" … and {more:,} characters more" if more else "")]


def _request(http: Any) -> list[str]:
    """The address that a tool of a document sends to, and the secrets that go with it: who accepts it decides on both."""
    if not isinstance(http, Mapping):
        return []
    secrets = [str(one.get("secret")) for one in http.get("credentials") or () if isinstance(one, Mapping)]
    more = f", with the secret {' and '.join(secrets)}" if secrets else ""
    return [visible(f"sends {http.get('method')} to {http.get('url')}{more}"[:REQUEST_CHARS])]


def _arguments(found: Mapping[str, Any]) -> list[str]:
    """The names of a tool's or a prompt's arguments; optional ones are in brackets."""
    schema, listed = found.get("inputSchema"), found.get("arguments")
    if isinstance(schema, Mapping):
        properties, required = schema.get("properties"), schema.get("required")
        names = list(properties) if isinstance(properties, Mapping) else []
        needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    else:
        parts = [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
        names = [str(one.get("name")) for one in parts]
        needed = {str(one.get("name")) for one in parts if one.get("required") is True}
    words = [_argument(name) if name in needed else f"[{_argument(name)}]" for name in map(str, names[:MAX_SHOWN_ARGUMENTS])]
    more = [f"and {len(names) - MAX_SHOWN_ARGUMENTS:,} more"] if len(names) > MAX_SHOWN_ARGUMENTS else []
    elsewhere = sorted(schema.keys() - PLAIN_SCHEMA) if isinstance(schema, Mapping) else []
    if elsewhere:
        more.append(f"and what {' and '.join(_argument(str(key)) for key in elsewhere[:5])} says of them")
    return [f"arguments: {', '.join([*words, *more])}"] if words or more else []


def _argument(name: str) -> str:
    """A name, in quotes if it is unusual or cut."""
    return name if PLAIN_NAME.match(name) else f'"{visible(name[:64])}{"…" if len(name) > 64 else ""}"'


def _left_out(found: Mapping[str, Any]) -> list[str]:
    """Counts the characters of text in each of the other fields. Titles that only repeat the names of arguments or of the
    tool, as some servers' do, are not counted."""
    tool = _letters(str(found.get("name")))
    known = ("", *(f"{tool}{end}" for end in ("", "arguments", "output", "dictoutput")))
    if isinstance(arguments := found.get("arguments"), list):  # of a prompt, whose names are shown
        found = {**found, "arguments": [{**one, "name": None} if isinstance(one, Mapping) else one for one in arguments]}
    counts = {
        field: sum(map(len, _prose(found.get(field), known, ""))) for field in SHOWN_FIELDS if field not in BRIEF_FIELDS
    }
    parts = [f"{number:,} of {field}" for field, number in counts.items() if number]
    return [f"not shown here, in characters: {', '.join(parts)} (--full or --json shows all)"] if parts else []


def _prose(value: Any, known: tuple[str, ...], key: str) -> Iterator[str]:
    """The texts in a field, and unusual names, but for what is known."""
    if isinstance(value, str):
        if key not in FIELDS_WITHOUT_PROSE and _letters(value) not in known:
            yield value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            if not PLAIN_NAME.match(str(name)):
                yield str(name)
            yield from _prose(part, (*known[:5], _letters(key)) if name == "title" else known, str(name))
    elif isinstance(value, list):
        for part in value:
            yield from _prose(part, known, key)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


def diff_of(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[str]:
    """A unified diff, field by field, with invisible characters written out."""
    lines: list[str] = []
    for field in SHOWN_FIELDS:
        old, new = (before or {}).get(field), after.get(field)
        if _json(old) == _json(new):
            continue
        shown = _lines(new) if before is None else _changes(_lines(old), _lines(new)) or _spelled_out(old, new)
        lines += [f"{field}:", *(f"  {line}" for line in shown)]
    return lines


def _changes(old: list[str], new: list[str]) -> list[str]:
    if len(old) + len(new) <= MAX_MATCHED_LINES:
        return list(unified_diff(old, new, lineterm="", n=2))[2:]
    if old == new:
        return []
    same = next((place for place, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), 0)
    return [*(f"-{line}" for line in old[same:]), *(f"+{line}" for line in new[same:])]


def _spelled_out(old: Any, new: Any) -> list[str]:
    """The diff of values that look alike: with all but ASCII escaped."""
    return [f"{sign}{piece}" for sign, value in (("-", old), ("+", new)) for piece in _folded(dumps(value, sort_keys=True))]


def _json(value: Any, indent: int = 0) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | indent).decode()


def _lines(value: Any) -> list[str]:
    """A value as lines: texts by their own lines, the rest as JSON. Nothing is left out; long lines are folded."""
    if value is None:
        return []
    text = value if isinstance(value, str) else _json(value, orjson.OPT_INDENT_2)
    text = BLANK_LINES.sub(lambda found: f"\n⟨{found[0].count(chr(10)) - 1:,} blank lines⟩\n", text)
    return [piece for line in text.split("\n") for piece in _folded(visible(line))]


def visible(text: str) -> str:
    """Escapes invisible characters, as in `\\u200b`, and counts long runs of blanks."""
    return BLANKS.sub(_counted, INVISIBLE.sub(lambda found: _escaped(found[0]), text))


def _counted(blanks: re.Match[str]) -> str:
    if blanks.start() == 0 and len(blanks[0]) <= MAX_INDENT:
        return blanks[0]
    return f"⟨{len(blanks[0]):,} {BLANK_NAMES.get(blanks[1]) or _escaped(blanks[1])}⟩"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _folded(line: str) -> list[str]:
    """A line in pieces that a terminal can show; all but the first begin with a sign for that."""
    return [
        line[:LINE_CHARS],
        *(f"… {line[place : place + LINE_CHARS]}" for place in range(LINE_CHARS, len(line), LINE_CHARS)),
    ]


def suspicious(definition: Mapping[str, Any]) -> list[str]:
    """Warnings on a definition: the place, and what is suspicious."""
    warnings: dict[str, None] = {}
    for where, text in _texts(definition, ""):
        if INVISIBLE.search(text.replace("\r\n", "\n")):
            warnings[f"{where}: has characters that a reader does not see"] = None
        plain = INVISIBLE.sub("", text)
        for words, pattern in _SUSPICIOUS.items():
            if pattern.search(plain):
                warnings[f"{where}: {words}"] = None
    more = len(warnings) - MAX_WARNINGS
    return [*list(warnings)[:MAX_WARNINGS], *([f"and {more:,} more such things"] if more > 0 else [])]


def _texts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    """Every text in a definition, names of properties too, and its place."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            place = f"{where}.{visible(str(key))[:64]}" if where else visible(str(key))[:64]
            yield place, str(key)
            yield from _texts(part, place)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _texts(part, f"{where}[{index}]")
