"""The extras of the package, the page that lists them, and the table by which a missing one is named say the same."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from tests.docs.markdown import pages
from toolgate.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONAL: dict[str, list[str]] = PROJECT["optional-dependencies"]
TOLERATED = {"uvloop"}
"""Brought by an extra, and done without where there is no wheel of it."""
HOSTS: dict[str, set[str]] = {
    **{module: {"pytest"} for module in PROJECT["entry-points"]["pytest11"].values()},
    "toolgate.adapters.claude_agent": {"claude_agent_sdk"},
    "toolgate.adapters.fastapi": {"fastapi"},
    "toolgate.adapters.langchain": {"langchain_core", "langgraph"},
    "toolgate.adapters.openai_agents": {"agents"},
    "toolgate.adapters.pydantic_ai": {"pydantic_ai"},
}
"""Modules that are for another program, which is therefore there, or named where it is missing: pytest its plugin, a
framework its adapter."""
INSIDE = ROOT / "src" / "toolgate" / "sandbox" / "inside"
"""Programs for jails, which have no package: they import each other by the name of the file."""


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return re.sub(r"[._-]+", "-", found[0]).lower()


def brought_by(extra: str) -> set[str]:
    """The packages that an extra names, itself or through another extra."""
    names: set[str] = set()
    for requirement in OPTIONAL[extra]:
        inner = re.fullmatch(r"toolgate\[(.+)\]", requirement)
        names |= set().union(*map(brought_by, inner[1].split(","))) if inner else {name_of(requirement)}
    return names


def closure(names: set[str]) -> set[str]:
    """Packages with what they need in turn, as far as it is installed."""
    found, left = set[str](), set(names)
    while left:
        name = left.pop()
        found.add(name)
        try:
            needed = {name_of(one) for one in requires(name) or () if "extra ==" not in one}
        except ImportError:  # of another platform
            continue
        left |= needed - found
    return found


def rows() -> dict[str, list[str]]:
    """The table of the page: by extra, its other columns."""
    page = (ROOT / "docs" / "howto" / "install.md").read_text(encoding="utf-8")
    found = (re.fullmatch(r"\| `(\w+)` \|(.*)\|", line) for line in page.splitlines())
    return {row[1]: [cell.strip() for cell in row[2].split("|")] for row in found if row is not None}


def test_the_page_lists_every_extra_and_nothing_else() -> None:
    assert rows().keys() == OPTIONAL.keys()
    assert brought_by("all") == set().union(*(brought_by(name) for name in OPTIONAL if name != "all"))


def test_the_page_names_what_each_extra_brings() -> None:
    for name, (_, brings, _) in rows().items():
        if name == "all":
            continue
        listed = set(re.findall(r"[a-z][a-z0-9-]+", re.sub(r"and the extra `\w+`", "", brings)))
        direct = {name_of(one) for one in OPTIONAL[name] if not one.startswith("toolgate[")}
        assert listed == direct, name


def test_no_page_says_to_install_by_name_alone() -> None:
    """The package of that name in the index is another project's. What is installed already is added to, which needs the
    interpreter that has it."""
    said = re.compile(r"pip install [^\n`]*?(?<![\w./-])['\"]?toolgate(?![\w/.-])")
    for page in pages("CONTRIBUTING.md"):
        for line in page.read_text(encoding="utf-8").splitlines():
            assert not said.search(line) or "/python -m pip install" in line, f"{page.name}: {line}"
    assert said.search("pip install 'toolgate[mcp]'") and said.search("pip install -U toolgate")


def test_a_missing_extra_is_known_by_its_modules() -> None:
    assert {*EXTRAS, "all"} == OPTIONAL.keys()
    by_module = packages_distributions()
    for name, extra in EXTRAS.items():
        packages = closure(brought_by(name))
        for module in extra.modules:
            assert {name_of(one) for one in by_module[module]} & packages, f"{name} does not bring {module}"


def test_the_source_imports_only_the_core_and_the_extras() -> None:
    """A module that no extra brings would be missing without a word of how to get it."""
    core = closure({name_of(one) for one in PROJECT["dependencies"]})
    by_module = packages_distributions()
    known = {module for extra in EXTRAS.values() for module in extra.modules} | TOLERATED | {"toolgate"}
    strange = set()
    for file in (ROOT / "src").rglob("*.py"):
        host = HOSTS.get(".".join(file.relative_to(ROOT / "src").with_suffix("").parts), set())
        beside = {other.stem for other in INSIDE.glob("*.py")} if file.parent == INSIDE else set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for top in {name.partition(".")[0] for name in names} - known - host - beside - sys.stdlib_module_names:
                if not {name_of(one) for one in by_module.get(top, ())} & core:
                    strange.add(f"{file.relative_to(ROOT)}: {top}")
    assert not strange
