"""The stages of a call as a waterfall: a row for each gate, with a bar where its time lies in that of the call."""

import sys
from collections.abc import Sequence
from shutil import get_terminal_size
from typing import Any

from rich.cells import cell_len

from toolgate.cli.output import Part, say, show
from toolgate.gates.ledger.details import CallDetails

PIPED_COLUMNS = 100
MIN_BAR, MAX_BAR = 16, 40
BAR_SHARE = 0.35
"""The share of a line that is the bar's, within those two. A terminal too narrow for the smaller one is shown none."""
FULL, HOOKS = "█", "░"
SIGNS: dict[str, tuple[str, str]] = {"pass": ("✓", "green"), "ask": ("?", "yellow")}
REFUSED = ("✗", "red")
STATES = {
    "pruned": "The stages of this call were kept, and retention has removed them (settings audit.details.days, "
    "audit.details.total_bytes).",
    "removed": "The stages of this call were kept and are gone, though older ones are still there: somebody removed them.",
    "changed": "The stages of this call are not what was written: their hash is not the one in the end record.",
}


def show_details(details: CallDetails) -> None:
    """Prints the gates of a call and its output, or why they are not there."""
    if details.state != "kept":
        say((STATES[details.state], "dim" if details.state == "pruned" else "red"))
        return
    total = max((_end(stage) for stage in details.stages), default=0.0)
    say(("stages ", "bold"), f" {_time(total)}")
    for parts in _rows(details.stages, total):
        say(*parts, hang=4)
    if details.output_bytes is not None:
        say(("output ", "bold"), f" {details.output_bytes:,} bytes")
        if details.output_beginning is None:
            show(details.output)
        else:
            say(details.output_beginning, lines=True)
            say((f"… of {details.output_bytes:,} bytes, the first are kept", "dim"))


def _rows(stages: Sequence[dict[str, Any]], total: float) -> list[list[Part]]:
    names = [_name(stage) for stage in stages]
    times = [_time(stage["ms"] + stage.get("hooks_ms", 0.0)) for stage in stages]
    name_width, time_width = max(map(cell_len, names)), max(map(cell_len, times))
    bar_width = _bar_width(name_width + time_width + len("  ✓   "))
    rows: list[list[Part]] = []
    for stage, name, time in zip(stages, names, times, strict=True):
        sign = SIGNS.get(stage["verdict"], REFUSED)
        row: list[Part] = ["  ", sign, f" {name:<{name_width}} "]
        if bar_width:
            row += [(_bar(stage, total, bar_width), sign[1] if sign is REFUSED else "cyan"), " "]
        row += [f"{time:>{time_width}}", _words(stage)]
        rows.append(row)
    return rows


def _bar_width(taken: int) -> int:
    columns = get_terminal_size().columns if sys.stdout.isatty() else PIPED_COLUMNS
    width = min(int(columns * BAR_SHARE), columns - taken, MAX_BAR)
    return width if width >= MIN_BAR else 0


def _bar(stage: dict[str, Any], total: float, width: int) -> str:
    """Hooks come first, as they do at a stage; whatever took time has at least one cell."""
    if not total:
        return " " * width
    hooks = stage.get("hooks_ms", 0.0)
    first = min(int(stage["start_ms"] / total * width), width - 1)
    cells = max(round(_end(stage) / total * width) - first, 1)
    of_hooks = min(max(round(hooks / total * width), 1), cells) if hooks else 0
    return (" " * first + HOOKS * of_hooks + FULL * (cells - of_hooks)).ljust(width)[:width]


def _words(stage: dict[str, Any]) -> str:
    parts = [f"{_time(stage['hooks_ms'])} of it hooks"] if stage.get("hooks_ms") else []
    said = ": ".join(stage[field] for field in ("code", "reason") if stage.get(field))
    return "".join(f"  {part}" for part in (*parts, said) if part)


def _end(stage: dict[str, Any]) -> float:
    return float(stage["start_ms"] + stage["ms"] + stage.get("hooks_ms", 0.0))


def _name(stage: dict[str, Any]) -> str:
    return f"{stage['gate']} {stage['attempt']}" if "attempt" in stage else str(stage["gate"])


def _time(ms: float) -> str:
    if ms >= 10_000:
        return f"{ms / 1000:,.1f} s"
    return f"{ms:.1f} ms" if ms >= 10 else f"{ms:.2f} ms" if ms >= 1 else f"{ms * 1000:.0f} µs"
