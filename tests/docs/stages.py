"""Writes docs/reference/stages.md, from the stages that hooks can have and the gates of the line."""

import inspect
import re
from pathlib import Path

from toolgate.pipeline.gate_order import LINE
from toolgate.pipeline.hooks import STAGES, Stages

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "stages.md"
BEFORE_ATTEMPTS = ("around_execute",)
"""Declared last, because its type is another; it comes before the first attempt."""

HEAD = """# Stages

Where hooks can run, in the order of a call that succeeds. `[…]` are Toolgate's own gates, which follow the hooks of their
stage. `make reference` writes this page, from the source.

| stage | when |
|---|---|
"""
TAIL = """
A hook has 10 seconds at a stage ([what happens then](../howto/write-a-hook.md#how-long-a-hook-may-take)); at
`around_execute` the time that the tool takes does not count.

After `respond(value)` the call goes on at `will_validate_output`, without `will_write_cache`. After a denial, an abort, an
error or a timeout: `on_error`, then from `will_audit` on. An unknown tool has only those.
"""


def words() -> dict[str, str]:
    """What the source says of each stage."""
    return dict(re.findall(r"^    (\w+): .*?# (.*)$", inspect.getsource(Stages), re.MULTILINE))


def ordered() -> list[str]:
    plain = [stage for stage in STAGES if stage not in BEFORE_ATTEMPTS]
    at = plain.index("will_execute")
    return [*plain[:at], *BEFORE_ATTEMPTS, *plain[at:]]


def render() -> str:
    said, rows = words(), []
    for stage in ordered():
        gates = ", ".join(gate.does for gate in LINE if gate.stage == stage)
        rows.append(f"| `{stage}` | {said[stage]}{f' [{gates}]' if gates else ''} |\n")
    return HEAD + "".join(rows) + TAIL


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
