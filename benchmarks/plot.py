"""The bars of one call per contender, as an SVG written by hand; logarithmic, so that 0.2 µs and 800 µs both show."""

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

WIDTH, LEFT, RIGHT, TOP, STEP, BAR = 920, 320, 96, 84, 32, 20
INK, FAINT, GRID, OURS, THEIRS = "#1b2330", "#667085", "#e4e7ec", "#0f766e", "#b6c2d1"


def draw(bars: Sequence[tuple[str, float]]) -> str:
    """One bar for each (name, microseconds), in the order given."""
    low = floor(log10(min(value for _, value in bars)))
    high = ceil(log10(max(value for _, value in bars)))
    bottom = TOP + STEP * len(bars)
    height = bottom + 52

    def at(value: float) -> float:
        return LEFT + (log10(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="Time of one tool call by library" font-family="system-ui, Helvetica, Arial, sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#ffffff"/>',
        _text(24, 36, "One tool call, median: add(a, b) unless it says otherwise", size=18, weight=600),
        _text(
            24,
            58,
            "Toolgate authorizes, checks and audits each call; the others at most check its arguments",
            fill=FAINT,
        ),
    ]
    for power in range(low, high + 1):
        x = at(10**power)
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="{GRID}"/>')
        parts.append(_text(x, bottom + 18, _label(10.0**power), fill=FAINT, size=12, anchor="middle"))
    for index, (name, value) in enumerate(bars):
        y = TOP + STEP * index
        ours = name.startswith("Toolgate")
        width = max(at(value) - LEFT, 2)
        parts.append(_text(LEFT - 12, y + 15, name, anchor="end", weight=600 if ours else 400))
        colour = OURS if ours else THEIRS
        parts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="3" fill="{colour}"/>')
        parts.append(_text(LEFT + width + 8, y + 15, _label(value), weight=600 if ours else 400))
    parts.append(_text(LEFT, bottom + 40, "logarithmic scale: each line is ten times the one before", fill=FAINT, size=12))
    return "\n".join([*parts, "</svg>", ""])


def _text(
    x: float, y: float, text: str, *, fill: str = INK, size: int = 13, weight: int = 400, anchor: str = "start"
) -> str:
    style = f'font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" fill="{fill}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'


def _label(microseconds: float) -> str:
    if microseconds >= 1000:
        return f"{microseconds / 1000:g} ms"
    return f"{microseconds:.3g} µs"
