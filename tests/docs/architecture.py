"""Draws the rooms of the package from its import graph, and lists who imports whom. Run by `make reference`.

Writes docs/explanation/architecture.svg, and the table and the walks of a call between comments of architecture.md. A room
is a package or a module at the top of `toolgate`; imports for type checkers alone do not count.
"""

import asyncio
from functools import cache
from html import escape
from itertools import groupby, pairwise
from typing import NamedTuple

import grimp

from tests.docs.markdown import ROOT
from tests.docs.walk import room_of, walk_of_calculator, ways_of_terminal

FOLDER = ROOT / "docs" / "explanation"
PICTURE = FOLDER / "architecture.svg"
PAGE = FOLDER / "architecture.md"
TABLE = "<!-- packages: written by make reference -->\n", "<!-- end of packages -->\n"
WALK = "<!-- path: written by make reference -->\n", "<!-- end of path -->\n"
DESCENT = "<!-- descent: written by make reference -->\n", "<!-- end of descent -->\n"


class Room(NamedTuple):
    """Where a room stands in the picture, and what it holds."""

    row: int
    place: float
    """From the left, in widths of a box."""
    holds: str


ROOMS = {
    "cli": Room(0, 0.8, "commands of the terminal"),
    "testing": Room(0, 2.2, "an App for tests"),
    "client": Room(0, 3.6, "the words of App over HTTP"),
    "adapters": Room(0, 5.0, "tools for agent frameworks, FastAPI"),
    "serve": Room(1, 0.8, "HTTP API, sign-in, health"),
    "demo": Room(1, 2.2, "demo content of the first minute"),
    "app": Room(2, 1.3, "App, its facets, assembly"),
    "tools": Room(2, 3.0, "built-in tools"),
    "openapi": Room(3, 0.6, "OpenAPI documents as tools"),
    "agent": Room(3, 4.4, "prompts, replies of models"),
    "teams": Room(3, 2.5, "tools that an organisation signs"),
    "learning": Room(3, 6.1, "what past calls teach"),
    "mcp": Room(4, 0.6, "MCP client and server"),
    "memory": Room(4, 1.7, "notes, found by meaning"),
    "documents": Room(4, 2.8, "documents, found by meaning"),
    "conversation": Room(4, 3.9, "canvas, notifications"),
    "services": Room(4, 5.0, "clients of external services"),
    "llm": Room(4, 6.1, "language models"),
    "tool_search": Room(4, 7.2, "tools, found by meaning"),
    "jobs": Room(5, 0.2, "work in the background"),
    "sandbox": Room(5, 1.3, "jails, custom tools"),
    "undo": Room(5, 3.0, "backups of changes"),
    "workflow": Room(5, 4.1, "workflows of n8n as tools"),
    "events": Room(5, 5.2, "calls over Kafka and NATS"),
    "gates": Room(6, 0.0, "one package per decision"),
    "registry": Room(6, 1.1, "@tool, catalog, schemas"),
    "runners": Room(6, 2.2, "attempts, breaker, threads"),
    "pipeline": Room(7, 1.1, "the line of a call"),
    "project": Room(8, 0.0, "project folder and data"),
    "coordination": Room(9, 1.1, "notices between processes"),
    "store": Room(9, 3.0, "SQLite, PostgreSQL"),
}
"""The rooms that are drawn with arrows."""
GROUND = {
    "settings": "one Settings, read in one place",
    "model": "words: tool, call, outcome, actor",
    "errors": "the error tree and its codes",
    "screening": "files, commands and secrets by their looks",
    "network": "which hosts may be reached, HTTP",
    "embeddings": "texts as vectors",
    "timezones": "the default time zone",
    "trust": "which found files are obeyed",
    "discovery": "where settings and data are",
    "sessions": "whose session a name means",
    "jsontext": "JSON, canonical form",
    "schema": "JSON Schemas",
    "yamltext": "strict YAML",
    "threads": "work off the event loop",
    "tasks": "work that outlives its caller",
    "extras": "optional packages",
    "version": "the version",
}
"""Small rooms at the bottom, which every other one may import: no arrows are drawn to them."""
WIDTH, HEIGHT, GAP_X, GAP_Y = 190, 46, 24, 30
LEFT, TOP = 20, 20
COLOURS = {0: "#dbe7f6", 1: "#dbe7f6", 2: "#f9e3c2", 3: "#dcefdc", 4: "#dcefdc", 5: "#dcefdc", 6: "#efe2f3", 7: "#f6d5d5"}
"""By row: doors, app, features, gates and their neighbours, the line; everything below is grey."""
GREY = "#ececec"


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("toolgate", exclude_type_checking_imports=True, cache_dir=None)


@cache
def imports() -> frozenset[tuple[str, str]]:
    """Which room imports which."""
    graph = _graph()
    found = {
        (_room(importer), _room(imported))
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    }
    return frozenset((one, other) for one, other in found if one != other and "toolgate" not in (one, other))


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def rooms() -> list[str]:
    """All rooms, those that import most others first."""
    graph = _graph()
    there = {_room(module) for module in graph.modules} - {"toolgate"}
    return [*(room for room in ROOMS if room in there), *(room for room in GROUND if room in there)]


def unplaced() -> set[str]:
    """Rooms that the picture does not know."""
    graph = _graph()
    return {_room(module) for module in graph.modules} - {"toolgate", *ROOMS, *GROUND}


def arrows() -> list[tuple[str, str]]:
    """The imports that are drawn: not those to the ground, nor those that follow from others."""
    edges = {(one, other) for one, other in imports() if one in ROOMS and other in ROOMS}
    return sorted(edge for edge in edges if not _follows(edge, edges))


def _follows(edge: tuple[str, str], edges: set[tuple[str, str]]) -> bool:
    """True if one gets from the first to the second by way of other rooms."""
    seen, left = set[str](), [other for one, other in edges if one == edge[0] and other != edge[1]]
    while left:
        room = left.pop()
        if room == edge[1]:
            return True
        if room not in seen:
            seen.add(room)
            left += [other for one, other in edges if one == room]
    return False


def picture() -> str:
    shown = [room for room in rooms() if room in ROOMS]
    ground = [room for room in rooms() if room in GROUND]
    rows = 1 + max(ROOMS[room].row for room in shown)
    bottom = TOP + rows * (HEIGHT + GAP_Y)
    across = round(max(ROOMS[room].place for room in shown) * (WIDTH + GAP_X)) + WIDTH + 2 * LEFT
    deep = bottom + 40 + 20 * ((len(ground) + 1) // 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {deep + 16}" width="{across}" height="{deep + 16}" '
        'font-family="Helvetica, Arial, sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#666"/></marker></defs>',
        f'<rect width="{across}" height="{deep + 16}" fill="#fff"/>',
    ]
    parts += [_arrow(one, other) for one, other in arrows()]
    parts += [_back()]
    parts += [_box(room) for room in shown]
    parts += [
        f'<rect x="{LEFT}" y="{bottom}" width="{across - 2 * LEFT}" height="{deep - bottom}" rx="6" fill="{GREY}" '
        'stroke="#999"/>',
        f'<text x="{LEFT + 12}" y="{bottom + 20}" font-size="12" fill="#555">every package above may import these</text>',
    ]
    for number, room in enumerate(ground):
        x, y = LEFT + 12 + (number % 2) * (across // 2 - LEFT), bottom + 42 + 20 * (number // 2)
        parts.append(
            f'<text x="{x}" y="{y}" font-size="13"><tspan font-weight="bold">{room}</tspan>'
            f'<tspan fill="#555" dx="8">{escape(GROUND[room])}</tspan></text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _corner(room: str) -> tuple[float, float]:
    return LEFT + ROOMS[room].place * (WIDTH + GAP_X), TOP + ROOMS[room].row * (HEIGHT + GAP_Y)


def _box(room: str) -> str:
    x, y = _corner(room)
    middle = x + WIDTH / 2
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="6" '
        f'fill="{COLOURS.get(ROOMS[room].row, GREY)}" stroke="#888"/>'
        f'<text x="{middle:g}" y="{y + 20:g}" font-size="14" font-weight="bold" text-anchor="middle">{room}</text>'
        f'<text x="{middle:g}" y="{y + 37:g}" font-size="12" fill="#444" text-anchor="middle">'
        f"{escape(ROOMS[room].holds)}</text>"
    )


def _arrow(one: str, other: str) -> str:
    """From the bottom of a box to the top of another; a long one goes straight down first, past the boxes between."""
    (x, y), (to_x, to_y) = _corner(one), _corner(other)
    span = to_x - x
    start, end = x + WIDTH / 2 + _lean(span), to_x + WIDTH / 2 - _lean(span)
    bend = min(40.0, (to_y - y - HEIGHT) / 2)
    return (
        f'<path d="M{start:g} {y + HEIGHT:g}C{start:g} {y + HEIGHT + bend:g} {end:g} {to_y - bend:g} {end:g} {to_y:g}" '
        'fill="none" stroke="#888" stroke-width="1.3" marker-end="url(#tip)"/>'
    )


def _lean(span: float) -> float:
    """Arrows to one side leave a box on that side."""
    return max(-WIDTH * 0.35, min(WIDTH * 0.35, span * 0.2))


def _back() -> str:
    """The line calls its gates, which `app` hands to it: no import, so it stands here."""
    (x, y), (to_x, to_y) = _corner("pipeline"), _corner("gates")
    middle = y + HEIGHT / 2
    end = to_x + WIDTH * 0.2
    return (
        f'<path d="M{x:g} {middle:g}C{x - 60:g} {middle:g} {end:g} {middle:g} {end:g} {to_y + HEIGHT + 2:g}" fill="none" '
        'stroke="#b33" stroke-width="1.6" stroke-dasharray="5 3" marker-end="url(#tip)"/>'
        f'<text x="{to_x + 2:g}" y="{middle + 18:g}" font-size="11" fill="#b33">the line enters</text>'
        f'<text x="{to_x + 2:g}" y="{middle + 32:g}" font-size="11" fill="#b33">and leaves its gates</text>'
    )


def table() -> str:
    """Who imports whom, for the page."""
    lines = ["| package | holds | imports |", "|---|---|---|"]
    for room in rooms():
        holds = ROOMS[room].holds if room in ROOMS else GROUND[room]
        known = sorted(other for one, other in imports() if one == room)
        lines.append(f"| `{room}` | {holds} | {', '.join(known) or 'nothing'} |")
    return "\n".join([*lines, ""])


def walk() -> str:
    """The files that a call of `calculator` comes through, each with what is called there from another file."""
    lines = ["| in | are called |", "|---|---|"]
    walked = (
        visit for visit in asyncio.run(walk_of_calculator()) if not visit.file.startswith("store/")
    )  # as busy as it is
    for file, visits in groupby(walked, lambda visit: visit.file):
        names = dict.fromkeys(visit.function for visit in visits if visit.caller != file or file == "pipeline/invoke.py")
        lines.append(f"| `{file}` | {', '.join(f'`{name}`' for name in names if '<' not in name)} |")
    return "\n".join([*lines, ""])


def descent() -> str:
    """What `toolgate call calculator` calls in other rooms, and through which rooms each goes further down."""
    below: dict[tuple[str, str], dict[str, None]] = {}
    for way in ways_of_terminal():
        if len(way) > 1 and way[0][0].startswith("cli/") and room_of(way[1][0]) in ROOMS:
            below.setdefault(way[1], {}).update(dict.fromkeys(room_of(file) for file, _ in way[2:]))
    lines = ["| `cli` calls | in | which goes down through |", "|---|---|---|"]
    for (file, function), rooms_below in below.items():
        drawn = [f"`{name}`" for name in ROOMS if name in rooms_below]
        lines.append(f"| `{function}` | `{file}` | {', '.join(drawn)} |")
    return "\n".join([*lines, ""])


def page() -> str:
    """The page with the table and the walks as they are now."""
    text = PAGE.read_text(encoding="utf-8")
    for (begin, end), content in ((TABLE, table()), (WALK, walk()), (DESCENT, descent())):
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{content}\n{end}{rest.split(end)[1]}"
    return text


def same_row() -> list[tuple[str, str]]:
    """Rooms of one row that stand on each other: the picture would hide one."""
    placed = sorted((room.row, room.place, name) for name, room in ROOMS.items())
    return [(one[2], other[2]) for one, other in pairwise(placed) if one[0] == other[0] and other[1] - one[1] < 1]


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
