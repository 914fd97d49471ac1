"""`make coverage`: how much of each package `make test` runs through, lines and branches, and where that has become less.

Measured in the processes of the tests alone, so that what runs only in a process of its own (a jail's worker, a server that
a client starts) counts as not run. The floor of each package stands in `branch_coverage.yaml`: the figure of the day it was
written, less one, in whole per cents. Raise it when a package has become better for good; a package without a floor fails.

    python -m tests.branch_coverage             # the table of the last run of make coverage
    python -m tests.branch_coverage write       # writes the floors anew from it
"""

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import coverage
import yaml

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "src/toolgate/"
FLOORS = Path(__file__).with_suffix(".yaml")
MODULES = "modules"
"""Those that stand in no package below the top one."""


def figures(report: Mapping[str, Any]) -> dict[str, float]:
    """Per cent of lines and branches by package, from coverage's own report."""
    there, run = Counter[str](), Counter[str]()
    for path, about in report["files"].items():
        package, inside, _ = path.removeprefix(PACKAGE).partition("/")
        name, told = package if inside else MODULES, about["summary"]
        there[name] += told["num_statements"] + told["num_branches"]
        run[name] += told["covered_lines"] + told["covered_branches"]
    return {name: 100 * run[name] / there[name] for name in sorted(there)}


def faults(measured: Mapping[str, float], floors: Mapping[str, float]) -> list[str]:
    """Where the figures and the floors disagree."""
    unknown = [f"{name}: has a floor and is not there" for name in floors if name not in measured]
    unnamed = [f"{name}: has no floor in {FLOORS.name}" for name in measured if name not in floors]
    low = [
        f"{name}: {figure:.1f} % of lines and branches are run, below the floor of {floors[name]} %"
        for name, figure in measured.items()
        if figure < floors.get(name, 0)
    ]
    return unknown + unnamed + low


def floors_of(measured: Mapping[str, float]) -> dict[str, int]:
    """One per cent below, since not every run takes every branch."""
    return {name: max(0, int(figure) - 1) for name, figure in measured.items()}


def _report() -> dict[str, Any]:
    measured = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"))
    measured.combine(keep=True)
    with tempfile.TemporaryDirectory() as folder:
        measured.json_report(outfile=f"{folder}/report.json")
        report: dict[str, Any] = json.loads(Path(folder, "report.json").read_text(encoding="utf-8"))
    return report


def main() -> int:
    """Prints the table; 0 if no package is below its floor."""
    measured = figures(_report())
    if sys.argv[1:] == ["write"]:
        FLOORS.write_text(yaml.safe_dump(floors_of(measured)), encoding="utf-8")
    floors: dict[str, float] = yaml.safe_load(FLOORS.read_text(encoding="utf-8"))
    for name, figure in measured.items():
        sys.stdout.write(f"{name:14} {figure:5.1f} %   (floor {floors.get(name, 'none')})\n")
    found = faults(measured, floors)
    sys.stdout.write("".join(f"{fault}\n" for fault in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
