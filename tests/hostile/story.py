"""Tells a story on one backend, as one user: a project, something that plants files in it, and a person who works on."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tests.hostile import jailed, planted


class Told(NamedTuple):
    """What came of it."""

    said: dict[str, Any]
    before: dict[str, tuple[int, str]]
    after: dict[str, tuple[int, str]]
    went_off: list[str]


def told(
    by: Literal["server", "code"],
    backend: str,
    user: str,
    *,
    plant: str = planted.PLANT,
    texts: dict[str, str] | None = None,
    sandbox: dict[str, Any] | None = None,
) -> Told:
    """The whole story; `texts` are more files of the project, `sandbox` more settings."""
    with jailed.folder_of(user) as folder:
        work = planted.project(folder)
        for name, text in (texts or {}).items():
            (work / name).parent.mkdir(parents=True, exist_ok=True)
            (work / name).write_text(text)
        plan: dict[str, Any] = {"by": by, "backend": backend, "folder": str(folder), "work": str(work), "plant": plant}
        plan |= {"python": jailed.interpreter(), "sandbox": sandbox or {}}
        (folder / "plan.json").write_text(json.dumps(plan))
        if os.geteuid() == 0 and user == "ordinary":
            for path in (folder, *folder.rglob("*")):
                os.chown(path, jailed.ORDINARY, jailed.ORDINARY, follow_symlinks=False)
        before = planted.seen(work)
        done = subprocess.run(
            [jailed.interpreter(), "-B", "-m", "tests.hostile.story_main", str(folder / "plan.json")],
            cwd=jailed.ROOT, capture_output=True, text=True, timeout=250, check=False,
            env={**jailed.environment(), "HOME": str(folder)}, **jailed.of_user(user),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        after = planted.seen(work)
        return Told(json.loads(done.stdout), before, after, planted.goes_off(work, env=person(folder)))


def person(folder: Path) -> dict[str, str]:
    """The environment of whoever works in the project next."""
    paths = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": f"{jailed.ROOT / 'src'}"}
    return {**paths, "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
