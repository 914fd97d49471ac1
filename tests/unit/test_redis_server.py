"""The Redis that other tests rely on."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers import Redis

ROOT = Path(__file__).parents[2]


@pytest.mark.matrix("needs Redis")
def test_it_answers_on_loopback_only_and_keeps_nothing_on_disk(redis_server: Redis, redis_url: str) -> None:
    assert redis_url == f"redis://127.0.0.1:{redis_server.port}/0"
    assert redis_server.say("PING") == "+PONG"
    with socket.create_connection(("127.0.0.1", redis_server.port), timeout=5) as connection:
        connection.sendall(b"CONFIG GET bind\r\nCONFIG GET save\r\nQUIT\r\n")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.split(b"\r\n")[4] == b"127.0.0.1"
    assert answer.split(b"\r\n")[9] == b""


@pytest.mark.matrix("needs Redis")
@pytest.mark.parametrize("turn", [1, 2])
def test_it_is_empty_for_every_test(redis_server: Redis, redis_url: str, turn: int) -> None:
    assert redis_server.say("DBSIZE") == ":0", f"left over at turn {turn} in {redis_url}"
    assert redis_server.say(f"SET turn {turn}") == "+OK"


@pytest.mark.matrix("needs Redis")
def test_it_can_be_stopped_and_started_again_at_the_same_place(own_redis: Redis) -> None:
    port = own_redis.port
    own_redis.stop()
    with pytest.raises(OSError, match="refused"):
        own_redis.say("PING")
    own_redis.start()
    assert (own_redis.port, own_redis.say("PING")) == (port, "+PONG")


@pytest.mark.matrix("kills the owner of a server")
def test_it_ends_with_a_killed_owner_and_leaves_nothing() -> None:
    program = "from tests.servers import redis\nwith redis() as s:\n print(s.port, s.home, flush=True)\n input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout
        port, home = owner.stdout.readline().split()
        before = _listening(int(port))
        os.kill(owner.pid, signal.SIGKILL)
    assert before
    deadline = time.monotonic() + 30
    while _listening(int(port)) or Path(home).exists():
        assert time.monotonic() < deadline, "Redis, or its folder, outlived its owner"
        time.sleep(0.05)


def _listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
