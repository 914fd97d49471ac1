"""Every example runs, in a folder of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = [
    script for script in sorted(EXAMPLES.glob("*/*.py")) if script.parent.name != "tour" and script.name != "server.py"
]  # test_tour.py runs the one, the example beside it the other


SAYS = {
    "approval": ("tim pays bob 10: denied: PERMISSION_DENIED", "ann pays bob 10: success: paid 10.00 to bob"),
    "limits": ("acme {'success': 2, 'BUDGET_EXCEEDED': 3}", "globex {'success': 6, 'RATE_LIMITED': 2}"),
    "serve_client": ("calculator says 42", "on record: acme ann calculator success"),
}
"""What must be among the lines of an example, by its name."""


@pytest.mark.matrix("runs the programs of every example")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script.parent.name}/{script.name}")
def test_an_example_runs(script: Path, tmp_path: Path) -> None:
    newcomer = {name: value for name, value in os.environ.items() if name != "TOOLGATE_TRUST"}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=newcomer, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert [line for line in SAYS.get(script.stem, ()) if line not in done.stdout] == []


def test_every_example_is_listed_with_what_it_shows() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    folders = [folder for folder in sorted(EXAMPLES.iterdir()) if any(folder.glob("*.py"))]
    assert [folder.name for folder in folders if f"]({folder.name}/" not in index] == []


def test_the_quickstart_prints_what_it_promises(tmp_path: Path) -> None:
    script = EXAMPLES / "quickstart" / "quickstart.py"
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("success 3 None ")
    assert (tmp_path / ".toolgate" / "toolgate.db").exists()
