"""Every example runs, in a folder of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = [
    script for script in sorted(EXAMPLES.glob("*/*.py")) if script.parent.name != "tour"
]  # test_tour.py runs that one


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: f"{script.parent.name}/{script.name}")
def test_an_example_runs(script: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_quickstart_prints_what_it_promises(tmp_path: Path) -> None:
    script = EXAMPLES / "quickstart" / "quickstart.py"
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("success 3 None ")
    assert (tmp_path / ".toolgate" / "toolgate.db").exists()
