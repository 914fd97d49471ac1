"""A part of a core for each process, by control groups: two processes beside a load generator on two cores would take time
from each other, and what is measured would be the machine."""

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

PERIOD_US = 20_000
ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
"""Of the first version of control groups, and of the second."""


def limit(pids: Sequence[int], share: float, ending: ExitStack) -> bool:
    """Gives each process that share of a core, until the end. False: this machine or this user cannot."""
    try:
        for pid in pids:
            group = _new_group(f"toolgate-bench-{pid}", share)
            ending.callback(_remove, group, pid)
            (group / "cgroup.procs").write_text(str(pid))
    except OSError:
        return False
    return True


def _new_group(name: str, share: float) -> Path:
    root = next((root for root in ROOTS if (root / "cgroup.procs").exists()), None)
    if root is None:
        raise FileNotFoundError("there are no control groups")
    group = root / name
    group.mkdir()
    quota = round(PERIOD_US * share)
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
    else:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(quota))
    return group


def _remove(group: Path, pid: int) -> None:
    with suppress(OSError):
        (group.parent / "cgroup.procs").write_text(str(pid))
    with suppress(OSError):
        group.rmdir()


def serving(pid: int) -> list[int]:
    """The processes that serve: the children of the one that was started, or itself."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [int(child) for child in children] or [pid]


def used(pids: Sequence[int]) -> float:
    """Seconds of CPU that processes have taken, in all their threads."""
    fields = [Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def count() -> int:
    return len(os.sched_getaffinity(0))
