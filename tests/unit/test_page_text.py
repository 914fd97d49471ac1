"""Text on pages: the quick way to write a value gives what the careful one gives."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markupsafe import Markup, escape

from toolgate.serve.console.renderer import PageCode, PageEnvironment, exact, plot_rows, visible, written, written_out

TEXTS = st.one_of(
    st.text(),
    st.text(st.characters(max_codepoint=127)),
    st.text(st.sampled_from("ab \"'&<>\n\t\x00\x7f\u200b\u202e\u3164\ufe0f\u00a0\u00e9")),
)


@given(TEXTS)
@example("plain")
@example("\u3164")
def test_a_text_is_escaped_and_written_out(text: str) -> None:
    assert written(text) == escape(written_out(text))
    assert not set(written(text)) & set("<>\"'")
    assert all(char.isprintable() or char in "\n\r\t\u00a0\u2003\u2009\u202f" for char in written(text))
    assert isinstance(written(text), Markup) or str(escape(written(text))) == written(text), "all that has to be is escaped"


@pytest.mark.parametrize("value", [0, 7, -1.5, True, None, 10**30, float("nan"), Markup("<b>x</b>"), ["<"], {"a": "'"}])
def test_other_values_are_written_as_jinja_would(value: object) -> None:
    assert written(value) == escape(written_out(value))


@given(TEXTS, st.integers(1, 40))
def test_a_text_of_somebody_else_shows_all_its_characters(text: str, limit: int) -> None:
    shown = visible(text, limit)
    assert isinstance(shown, Markup)
    if text.isascii() and text.isprintable():
        assert shown.striptags().startswith(" ".join(text[:limit].split()))
    if len(text) > limit:
        assert f"{len(text) - limit:,} more characters" in shown


def test_templates_escape_whatever_they_write() -> None:
    environment = PageEnvironment(autoescape=True, finalize=written)
    assert environment.code_generator_class is PageCode
    made = environment.from_string(
        "{% macro m(x) %}[{{ x }}]{% endmacro %}{{ x }}{{ m(x) }}{% set y %}{{ x }}{% endset %}{{ y }}{{ x ~ '<' }}"
        "{% for one in [x] %}{{ loop.index }}{{ one|upper }}{% endfor %}{{ x|safe }}"
        "{% autoescape false %}{{ z }}{% endautoescape %}"
    ).render(x="<i>\u202e", z=Markup("<u>"))
    once = "&lt;i&gt;U+202E"
    assert made == f"{once}[{once}]{once}{once}&lt;1&lt;I&gt;U+202E<i>\u202e<u>"


@given(st.integers(0, 7_000_000_000), st.integers(0, 999_999), st.integers(-12, 14))
def test_a_moment_is_shown_in_utc(second: int, micros: int, hours: int) -> None:
    moment = datetime.fromtimestamp(second, UTC) + timedelta(microseconds=micros)
    shown = moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    assert exact(moment) == exact(moment.astimezone(timezone(timedelta(hours=hours)))) == shown


def test_the_rows_of_a_plot_hold_numbers_and_what_is_shown_of_them() -> None:
    at = datetime(2026, 11, 3, 14, tzinfo=UTC)
    assert plot_rows([(at, [1234, None])], "", 3_600) == (
        '<tr><th scope="row"><time datetime="2026-11-03T14:00:00+00:00">3 Nov 14:00</time></th>'
        '<td class="num" data-value="1234">1,234</td><td class="num" data-value="">—</td></tr>\n'
    )
    assert ">3 Nov 2026<" in plot_rows([(at, [])], "", 86_400)
    assert 'data-value="0.5">$ 0.50<' in plot_rows([(at, [0.5])], "usd", None)
    assert 'data-value="0">—<' in plot_rows([(at, [0])], "usd", None)
    assert 'data-value="12.5">12.5 ms<' in plot_rows([(at, [12.5])], "ms", None)
