"""Templates: the environment they are rendered in, and how times, money, ids and texts are written.

Everything is escaped, and what could mislead a reader is written out: control characters, characters that turn the direction
of text, and those that nobody sees. `visible` does the same with a mark around them, for texts of tools, servers and models.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.compiler import CodeGenerator
from markupsafe import Markup, escape

from toolgate.gates.approval.request import is_seen as shows
from toolgate.model import MASK
from toolgate.serve.console import words
from toolgate.serve.console.assets import asset_url
from toolgate.serve.console.page import NOTHING_TYPED, PageRequest, View

if TYPE_CHECKING:
    from toolgate.serve.console.shell import Shell

TEMPLATES = Path(__file__).with_name("templates")
SHORT_ID_CHARS = 13
MAX_SHOWN_CHARS = 20_000
"""Of a text on a page; the rest is behind its twin."""
SEEN = frozenset("\n\r\t\u00a0\u2003\u2009\u202f")
"""Characters that are not printable to Python, but harmless: line breaks, tabs and blanks."""
RUNS = re.compile(r"[\n\r\t -~]+|[^\n\r\t -~]")
"""Plain ASCII, and everything else one by one."""
NOT_PLAIN = re.compile(r"[^ !#-%(-;=?-~]").search
"""Looks for a character that has to be escaped or looked at: anything but printable ASCII without quotes, & and angles."""
NUMBERS = (int, float)

MOST_MARKS = 4
"""Marks on one letter that are shown as they are: what languages have."""

MASKED_TEXT, MASKED = escape(f'"{MASK}"'), Markup('<span class="badge quiet">masked</span>')
"""A text of JSON that is masked as a whole, and how it is shown."""


def render(request: PageRequest | None, shell: "Shell | None", view: View, *, theme: str | None = None) -> str:
    """The whole document of a page."""
    values = {
        "request": request, "shell": shell, "title": view.title, "typed": NOTHING_TYPED,
        "theme": theme if request is None else request.theme, "now": datetime.now(UTC), **view.values,
    }  # fmt: skip
    return _environment().get_template(view.template).render(values)


class PageCode(CodeGenerator):
    """The code of templates: what is written goes through `finalize` alone. Jinja's own calls `escape` as well, which
    `written` does already; if a later Jinja does so again, that changes nothing but the time it takes."""

    def _output_child_pre(self, node: Any, frame: Any, finalize: Any) -> None:
        if self._is_escaped(frame):
            self.write(finalize.src)
        else:
            super()._output_child_pre(node, frame, finalize)

    def _output_child_post(self, node: Any, frame: Any, finalize: Any) -> None:
        if self._is_escaped(frame):
            self.write(")")
        else:
            super()._output_child_post(node, frame, finalize)

    @staticmethod
    def _is_escaped(frame: Any) -> bool:
        return frame.eval_ctx.autoescape and not frame.eval_ctx.volatile


class PageEnvironment(Environment):
    """The environment of all templates."""

    code_generator_class = PageCode


@cache
def _environment() -> Environment:
    environment = PageEnvironment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        auto_reload=False,  # they come with this version, and a look at each file's time takes longer than some pages
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=written,
    )
    environment.filters |= {
        "ago": ago, "exact": exact, "ms": ms, "usd": usd, "count": count, "short": short, "visible": visible,
        "json": as_json, "as_typed": as_typed, "plain": plain, "left": left, "mark": words.made_mark,
        "status": status, "door": words.door_of, "plot_rows": plot_rows, "bar": bar,
        "because": words.asked_because, "code_words": words.code_words,
    }  # fmt: skip
    environment.globals |= {
        "asset": asset_url, "mark_of": words.mark_of, "tier_of": words.tier_of, "doors": words.DOORS,
        "gate_of": words.gate_of, "verdict_of": words.verdict_of, "statuses": words.STATUSES, "tiers": words.TIERS,
        "sources": words.SOURCES,
        "places": _places(), "second_level": _second_level(),
    }  # fmt: skip
    return environment


def _places() -> Any:
    from toolgate.serve.console.shell import PLACES

    return PLACES


def _second_level() -> Any:
    from toolgate.serve.console.shell import SECOND_LEVEL

    return SECOND_LEVEL


# -- texts


def is_seen(char: str) -> bool:
    """Tells whether a reader sees a character, or what it does to others."""
    return char in SEEN or shows(char)


def _runs(text: str) -> Iterator[tuple[str, bool]]:
    """A text in runs of plain ASCII and single other characters, each with whether it is shown as it is. Marks that pile up
    on a letter would cover the lines around it."""
    marks = 0
    for run in RUNS.findall(text):
        is_plain = len(run) > 1
        marks = marks + 1 if not is_plain and unicodedata.category(run) in ("Mn", "Me") else 0
        yield run, is_plain or (is_seen(run) and marks <= MOST_MARKS)


def written(value: object) -> str:
    """Gives what a template writes of a value, wherever: escaped, and written out. Nearly all texts are plain, which one
    look tells."""
    if value.__class__ is str:
        return value if NOT_PLAIN(value) is None else escape(written_out(value))
    if value.__class__ is Markup:
        return value
    return str(value) if value.__class__ in NUMBERS else escape(written_out(value))


def written_out(value: object) -> object:
    """Gives what a template writes, wherever: of a text that nobody has marked as safe, what is not seen as its number."""
    if not isinstance(value, str) or isinstance(value, Markup) or (value.isascii() and value.isprintable()):
        return value
    return "".join(run if shown else f"U+{ord(run):04X}" for run, shown in _runs(value))


def as_typed(text: object) -> Markup:
    """A text for the field of a form, exactly: what is sent again must be what was typed."""
    return escape(text)


def visible(text: object, limit: int = MAX_SHOWN_CHARS) -> Markup:
    """A text of somebody else, with what misleads or is not seen written out as its number."""
    whole = str(text)
    if len(whole) <= limit and NOT_PLAIN(whole) is None:
        return Markup(whole)
    shown = Markup("").join(escape(run) if shown else _number(run) for run, shown in _runs(whole[:limit]))
    if len(whole) > limit:
        shown += Markup(' <span class="faint">… {} more characters</span>').format(f"{len(whole) - limit:,}")
    return shown


def _number(char: str) -> Markup:
    name = unicodedata.name(char, "control character").lower()
    return Markup('<span class="hidden-char" title="{}">U+{:04X}</span>').format(name, ord(char))


@lru_cache(maxsize=256)
def status(word: str) -> Markup:
    """The badge of a status or a state, as the macro makes it: lists have one in each row."""
    return Markup(_environment().get_template("parts.html").module.badge(words.mark_of(word)))  # type: ignore[attr-defined]


def as_json(value: object) -> Markup:
    """A value as indented JSON, with what is not seen written out."""
    if isinstance(value, msgspec.Raw):
        value = json.loads(bytes(value))
    return visible(json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False)).replace(MASKED_TEXT, MASKED)


def plain(value: object) -> Markup:
    """A value in a table cell: text as it is, everything else as JSON."""
    if value is None:
        return Markup('<span class="faint">none</span>')
    return visible(value if isinstance(value, str) else json.dumps(msgspec.to_builtins(value), ensure_ascii=False), 400)


def short(id: str) -> str:
    """The beginning of an id, which is enough to tell it from others."""
    return id if len(id) <= SHORT_ID_CHARS else id[:SHORT_ID_CHARS]


# -- times, money, numbers


def _seconds(moment: datetime) -> float:
    return (datetime.now(UTC) - moment).total_seconds()


def exact(moment: datetime) -> str:
    at = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return f"{at.isoformat(' ', 'seconds')[:19]} UTC"


def ago(moment: datetime | None) -> Markup:
    """A moment as the time since then, or until then; the exact one is its title."""
    if moment is None:
        return Markup('<span class="faint">never</span>')
    seconds = _seconds(moment)
    word = _span(abs(seconds))
    told = "just now" if abs(seconds) < 1 else f"{word} ago" if seconds > 0 else f"in {word}"
    return _time(moment, "ago", told)


def left(moment: datetime) -> Markup:
    """The time that is left until a moment, which the page counts down."""
    seconds = max(0.0, -_seconds(moment))
    words = f"{_span(seconds)} left" if seconds else "over"
    return _time(moment, "left", words)


def _time(moment: datetime, kind: str, words: str) -> Markup:
    """A moment in words that the page keeps right. All of it is ours, so nothing has to be escaped, which took long."""
    return Markup(f'<time datetime="{moment.isoformat()}" title="{exact(moment)}" data-{kind}>{words}</time>')


def _span(seconds: float) -> str:
    for size, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size * (2 if word == "d" else 1):
            return f"{int(seconds // size)} {word}"
    return f"{int(seconds)} s"


def ms(value: float | None) -> str:
    """A duration given in milliseconds."""
    if value is None:
        return "—"
    if value >= 60_000:
        return f"{value / 60_000:.1f} min"
    if value >= 1_000:
        return f"{value / 1_000:.2f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"


def usd(value: float | None) -> str:
    if not value:
        return "free" if value == 0 else "—"
    return f"$ {value:,.2f}" if abs(value) >= 0.1 else f"$ {value:.4f}".rstrip("0")


def bar(share: float, tone: str = "accent", label: str = "") -> Markup:
    """A bar of which a share is filled."""
    width = round(min(max(share * 100, 0), 100), 2)
    return Markup(
        f'<svg class="bar {written(tone)}" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{written(label)}"><rect class="track" width="100" height="10"/>'
        f'<rect class="fill" width="{width}" height="10"/></svg>'
    )


def plot_rows(rows: Iterable[tuple[datetime, Iterable[float | None]]], unit: str, step: int | None) -> Markup:
    """The rows of a plot's table. They are numbers and times, so nothing has to be escaped, which took a template long."""
    shown = {"ms": ms, "usd": _spent, "%": _share}.get(unit, count)
    pattern = "%-d %b %Y" if step is not None and step >= 86_400 else "%-d %b %H:%M"
    lines = []
    for at, values in rows:
        cells = [f'<td class="num" data-value="{"" if one is None else one}">{shown(one)}</td>' for one in values]
        when = f'<time datetime="{at.isoformat()}">{at.strftime(pattern)}</time>'
        lines.append(f'<tr><th scope="row">{when}</th>{"".join(cells)}</tr>\n')
    return Markup("".join(lines))


def _spent(value: float | None) -> str:
    return usd(value) if value else "—"


def _share(value: float | None) -> str:
    return "—" if value is None else f"{value:.1f} %"


def count(value: float | None) -> str:
    return "—" if value is None else f"{value:,.0f}"
