"""CI runs a few failures again, and nothing else is forgiven."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import unsteady

TESTS = """
import pathlib, pytest
@pytest.mark.parametrize("n", range({failing}))
def test_unsteady(n):
    mark = pathlib.Path(f"ran-{{n}}")
    ran, _ = mark.exists(), mark.touch()
    assert ran and not {always}
def test_another():
    {another}
"""


@pytest.mark.parametrize(
    ("failing", "always", "another", "passes"),
    [
        (2, False, "pass", True),
        (2, True, "pass", False),
        (unsteady.FEW + 1, False, "pass", False),
        (1, False, "raise KeyboardInterrupt", False),
        (0, False, "pass", False),
    ],
)
@pytest.mark.sample(2)
def test_only_a_few_of_a_whole_run_that_pass_alone_are_forgiven(
    tmp_path: Path,
    failing: int,
    always: bool,
    another: str,
    passes: bool,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # to load them takes longer than the rest
    (tmp_path / "test_one.py").write_text(TESTS.format(failing=failing, always=always, another=another))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "PYTHONPATH": str(unsteady.ROOT)}
    run = [sys.executable, "-m", "pytest", "-q", "-p", "tests.unsteady"]
    subprocess.run(run, cwd=tmp_path, env=environment, check=False)
    assert (unsteady.main(tmp_path) == 0) is passes
    assert ("Unsteady" in capfd.readouterr().err) is passes
