"""Writes docs/reference/tools/README.md: the built-in tools by category, from their definitions. Run by `make reference`."""

from itertools import groupby

from tests.docs.markdown import ROOT
from toolgate.model import Entry
from toolgate.registry.compile import DefinitionRules
from toolgate.registry.python_source import PackageSource
from toolgate.settings import N8nSettings
from toolgate.workflow.source import WorkflowSource

PAGE = ROOT / "docs" / "reference" / "tools" / "README.md"
HEAD = """# Built-in tools

Every tool that ships with Toolgate, by category, with its [tier](../../explanation/approvals.md): tiers execute and
external_api ask a person for every call. `toolgate tools info NAME` shows the same of one tool, with its arguments, errors
and examples; `toolgate tools tokens` what each costs a model to read.
"""


def _tier(entry: Entry) -> str:
    if entry.operations is None:
        return f"{entry.tier}{', asks' if entry.asks and entry.tier in ('read_only', 'write') else ''}"
    return "; ".join(
        f"{', '.join(names)}: {tier}"
        for tier, names in _grouped({name: _tier(one) for name, one in entry.operations.items()}).items()
    )


def _grouped(tiers: dict[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, tier in tiers.items():
        found.setdefault(tier, []).append(name)
    return found


def _words(entry: Entry) -> str:
    first = f" Second name of `{entry.tool.alias_of}`." if entry.tool.alias_of else ""
    needs = f" Needs the secret `{entry.auth.config_key}`." if entry.auth is not None and entry.auth.required else ""
    summary = entry.tool.description.partition(". ")[0].rstrip(".").replace("|", "\\|").replace("\n", " ")
    return f"{summary}.{first}{needs}"


def render() -> str:
    rules = DefinitionRules()
    workflows = WorkflowSource(N8nSettings(), {}, rules).load()
    loaded = [*PackageSource("toolgate.tools", "builtin", rules).load(), *workflows]
    entries = sorted((one for one in loaded if isinstance(one, Entry)), key=lambda one: (one.tool.category, one.name))
    parts = [HEAD]
    for category, group in groupby(entries, key=lambda one: one.tool.category):
        rows = [f"| [{one.name}]({one.name}.md) | {_tier(one)} | {_words(one)} |\n" for one in group]
        parts.append(f"\n## {category}\n\n| tool | tier | |\n|---|---|---|\n{''.join(rows)}")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
