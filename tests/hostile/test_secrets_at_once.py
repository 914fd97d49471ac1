"""Processes that set secrets at the same time, and processes that die while they do."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from toolgate.gates.secrets.encrypted_file import EncryptedFile

pytestmark = pytest.mark.requirement("IO-4")
ROOT = Path(__file__).resolve().parents[2]
SETTER = """
import sys
from pathlib import Path
from toolgate.gates.secrets.encrypted_file import EncryptedFile

file, who, count = EncryptedFile(Path(sys.argv[1]), {}), sys.argv[2], int(sys.argv[3])
for number in range(count):
    file.set(f"{who}_{number}", f"value {number} of {who}")
    print(number, flush=True)
"""


def start(path: Path, who: str, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SETTER, str(path), who, str(count)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.matrix("starts several processes")
def test_of_secrets_set_by_several_processes_at_once_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "home" / "secrets.enc"
    setters = {who: start(path, who, 25) for who in ("ANN", "BOB", "EVE")}
    for process in setters.values():
        process.communicate(timeout=250)
        assert process.returncode == 0
    file = EncryptedFile(path, {})
    assert len(file.held()) == 75
    assert file("EVE_24") == "value 24 of EVE"


@pytest.mark.matrix("kills processes")
def test_a_process_that_is_killed_while_it_sets_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "secrets.enc"
    chance = random.Random(20261115)
    said: list[str] = []
    for round_number in range(5):
        process = start(path, f"R{round_number}", 1_000_000)
        assert process.stdout is not None
        for number in range(1 + round_number % 3):
            assert process.stdout.readline() == f"{number}\n"
        time.sleep(chance.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        told = process.stdout.read().split("\n")[:-1]
        process.wait(30)
        process.stdout.close()
        said += [f"R{round_number}_{number}" for number in (*range(1 + round_number % 3), *told)]
    held = EncryptedFile(path, {}).held()
    assert set(said) <= set(held)
    assert len(said) > 5
    EncryptedFile(path, {}).set("AFTER", "it goes on")


def test_a_link_in_place_of_the_new_file_is_not_followed(tmp_path: Path) -> None:
    file = EncryptedFile(tmp_path / "secrets.enc", {})
    file.set("A", "first")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".secrets.enc.new").symlink_to(victim)
    file.set("B", "second")
    assert victim.read_text() == "precious"
    assert set(file.held()) == {"A", "B"}
