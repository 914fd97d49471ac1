"""What one process changes, the others hear of: through a file, PostgreSQL or Redis."""

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest
import redis as client_library

from tests.patience import until
from tests.servers import Redis as RedisServer
from toolgate.coordination.notices import DATA, ChannelNotices, Notices, open_notices
from toolgate.coordination.redis import CoordinationError, Redis

pytestmark = pytest.mark.requirement("POL-4")

ROOT = Path(__file__).resolve().parents[2]


@contextlib.asynccontextmanager
async def opened(url: str, redis_url: str | None = None) -> AsyncIterator[Notices]:
    redis = Redis(redis_url) if redis_url else None
    notices = open_notices(url, redis)
    await notices.start()
    try:
        yield notices
    finally:
        await notices.close()
        if redis is not None:
            await redis.close()


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str | None]:
    """Where two processes meet: the URLs of a database and of a Redis."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'toolgate.db'}", None
    if request.param == "postgres":
        return request.getfixturevalue("postgres_database"), None
    return "memory://", request.getfixturevalue("redis_url")


async def nothing() -> None:
    """Reads nothing."""


async def settled(*all_notices: Notices) -> None:
    """Wait until all listen; that tells them to look once, which is done here."""
    for notices in all_notices:
        if isinstance(notices, ChannelNotices):
            await until(notices.changed)
        await notices.catch_up(nothing)
        assert not notices.changed()


async def test_a_change_is_heard_in_the_other_process_and_caught_up_with_once(places: tuple[str, str | None]) -> None:
    reads: list[str] = []

    async def read() -> None:
        reads.append("read")
        await asyncio.sleep(0.01)

    async with opened(*places) as one, opened(*places) as other:
        await settled(one, other)
        await one.announce(DATA)
        await until(other.changed)
        await asyncio.gather(*(other.catch_up(read) for _ in range(20)))
        assert reads == ["read"]
        assert not other.changed()
        await until(one.changed)  # whoever sends hears it too
        heard: list[str] = []
        other.watch("approval", heard.append)
        await other.announce("approval", "a-1")
        await until(lambda: heard)
        assert not other.changed(), "only data makes calls read the store again"


async def test_watchers_of_a_topic_are_told_here_and_there(places: tuple[str, str | None]) -> None:
    async with opened(*places) as one, opened(*places) as other:
        await settled(one, other)
        heard: dict[str, list[str]] = {"one": [], "other": [], "elsewhere": []}
        stop = one.watch("approval", heard["one"].append)
        other.watch("approval", heard["other"].append)
        other.watch(DATA, heard["elsewhere"].append)
        await one.announce("approval", 'ü "a-1"')
        await until(lambda: heard["one"] and heard["other"])
        assert heard["one"] == ['ü "a-1"']
        assert heard["other"] in (['ü "a-1"'], [""]), "the text may be lost, never the fact"
        stop()
        await one.announce("approval", "a-2")
        await until(lambda: len(heard["other"]) > 1)
        assert len(heard["one"]) == 1


async def test_a_change_during_the_reading_is_not_lost(places: tuple[str, str | None]) -> None:
    async with opened(*places) as one, opened(*places) as other:
        await settled(one, other)
        await one.announce(DATA)
        await until(other.changed)
        heard: list[str] = []

        async def read() -> None:
            other.watch(DATA, heard.append)
            await one.announce(DATA)
            await until(lambda: heard)

        await other.catch_up(read)
        assert other.changed()


async def test_a_reading_that_fails_must_be_done_again(places: tuple[str, str | None]) -> None:
    async def fail() -> None:
        raise OSError("the store is away")

    async with opened(*places) as one:
        await settled(one)
        await one.announce(DATA)
        await until(one.changed)
        with pytest.raises(OSError, match="away"):
            await one.catch_up(fail)
        assert one.changed()
        await one.catch_up(nothing)
        assert not one.changed()


async def test_a_text_that_is_too_long_is_left_out(places: tuple[str, str | None]) -> None:
    async with opened(*places) as one, opened(*places) as other:
        await settled(one, other)
        heard: list[str] = []
        other.watch("approval", heard.append)
        await one.announce("approval", "x" * 20_000)
        await until(lambda: heard)
        assert heard == [""]


async def test_a_watcher_that_fails_does_not_stop_the_others(
    places: tuple[str, str | None], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_text: str) -> None:
        raise ValueError("not me")

    async with opened(*places) as one:
        await settled(one)
        heard: list[str] = []
        one.watch("approval", fail)
        one.watch("approval", heard.append)
        await one.announce("approval", "a-1")
        await until(lambda: heard)
        await one.announce("approval", "a-2")
        await until(lambda: len(heard) > 1)
    assert "a watcher of approval failed" in caplog.text


async def test_alone_in_memory_a_change_is_known_at_once() -> None:
    async with opened("memory://") as notices:
        heard: list[str] = []
        notices.watch(DATA, heard.append)
        assert not notices.changed()
        await notices.announce(DATA, "flags")
        assert (notices.changed(), heard) == (True, ["flags"])
        await notices.catch_up(nothing)
        assert not notices.changed()


# -- the file


async def test_the_very_next_question_in_another_process_sees_the_change(tmp_path: Path) -> None:
    """No event loop has to turn for it."""
    url = f"sqlite:///{tmp_path / 'toolgate.db'}"
    async with opened(url) as one, opened(url) as other:
        for _ in range(100):
            await one.announce(DATA)
            assert other.changed()
            await other.catch_up(nothing)
            assert not other.changed()
    assert (tmp_path / "toolgate.db-epoch").stat().st_mode & 0o777 == 0o600


async def test_processes_that_announce_at_once_lose_none(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'toolgate.db'}"
    script = (
        "import asyncio, sys\n"
        "from toolgate.coordination.notices import open_notices\n"
        "async def main():\n"
        "    notices = open_notices(sys.argv[1])\n"
        "    await notices.start()\n"
        "    sys.stdin.readline()\n"
        "    for _ in range(5000):\n"
        "        await notices.announce('data')\n"
        "    await notices.close()\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", script, url]
    processes = [subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, text=True) for _ in range(3)]
    async with opened(url) as notices:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            await asyncio.to_thread(process.communicate, timeout=60)
            assert process.returncode == 0
        assert notices.changed()
    assert int.from_bytes((tmp_path / "toolgate.db-epoch").read_bytes()[:8], sys.byteorder) == 15_000


async def test_a_file_that_can_not_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "toolgate.db-epoch").mkdir()
    with pytest.raises(CoordinationError, match=r"toolgate\.db-epoch cannot be used"):
        await open_notices(f"sqlite:///{tmp_path / 'toolgate.db'}").start()


def test_a_sqlite_file_is_told_of_by_file_though_there_is_a_redis(tmp_path: Path) -> None:
    names = [
        type(open_notices(url, redis)).__name__
        for url in (f"sqlite:///{tmp_path / 'x.db'}", "memory://", "postgresql://localhost/x")
        for redis in (None, Redis("redis://localhost"))
    ]
    assert names == ["FileNotices", "FileNotices", "Notices", "RedisNotices", "PostgresNotices", "RedisNotices"]


# -- servers that go away


async def cut_by_redis(places: tuple[str, str | None]) -> None:
    assert places[1] is not None
    with client_library.Redis.from_url(places[1]) as client:
        client.client_kill_filter(_type="pubsub")


async def cut_by_postgres(places: tuple[str, str | None]) -> None:
    admin = await asyncpg.connect(places[0])
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND datname = current_database()"
    )
    await admin.close()


@pytest.mark.matrix("needs PostgreSQL or Redis")
@pytest.mark.parametrize(("places", "cut"), [("redis", cut_by_redis), ("postgres", cut_by_postgres)], indirect=["places"])
async def test_a_lost_connection_is_made_again_and_everybody_looks(
    places: tuple[str, str | None], cut: Callable[[tuple[str, str | None]], Awaitable[None]]
) -> None:
    async with opened(*places) as one, opened(*places) as other:
        await settled(one, other)
        heard: list[str] = []
        other.watch("approval", heard.append)
        for turn in range(3):
            heard.clear()
            await cut(places)
            await until(other.changed)
            assert heard == [""], "something may have been missed"
            await settled(one, other)
            await one.announce("approval", f"a-{turn}")
            await until(lambda: len(heard) > 1)
            assert heard == ["", f"a-{turn}"]


@pytest.mark.matrix("needs Redis")
async def test_a_redis_that_was_down_is_listened_to_again(own_redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    async with opened("memory://", own_redis.url) as one, opened("memory://", own_redis.url) as other:
        await settled(one, other)
        own_redis.stop()
        with caplog.at_level(logging.WARNING, "toolgate"):
            await one.announce(DATA)  # never fails
        assert "could not be sent" in caplog.text
        assert one.changed(), "here it is known all the same"
        own_redis.start()
        await until(other.changed)
        await settled(one, other)
        heard: list[str] = []
        other.watch("approval", heard.append)
        await one.announce("approval", "a-1")
        await until(lambda: heard)
        assert heard == ["a-1"]


@pytest.mark.matrix("needs Redis")
async def test_a_redis_that_is_down_at_the_start_is_waited_for(own_redis: RedisServer) -> None:
    own_redis.stop()
    async with opened("memory://", own_redis.url) as notices:
        await asyncio.sleep(0.1)
        assert not notices.changed()
        own_redis.start()
        await until(notices.changed)


@pytest.mark.matrix("needs Redis")
async def test_a_redis_that_falls_silent_is_noticed(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("toolgate.coordination.notices.SILENCE_SECONDS", 0.2)
    async with opened("memory://", own_redis.url) as notices:
        await settled(notices)
        with client_library.Redis.from_url(own_redis.url) as client:

            def pings() -> int:
                return int(client.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"])

            for _ in range(10):  # more than once only where the machine was held up for as long as it may be silent
                caplog.clear()
                enough = pings() + 3
                while pings() < enough:
                    await asyncio.sleep(0.02)
                if not caplog.text:
                    break
        assert not caplog.text, "it is asked, and answers"
        own_redis.freeze()
        try:
            await until(lambda: "does not answer" in caplog.text)
        finally:
            own_redis.thaw()
        await until(notices.changed)


@pytest.mark.matrix("needs Redis")
async def test_what_others_say_on_the_channel_is_a_reason_to_look(redis_url: str) -> None:
    async with opened("memory://", redis_url) as notices:
        await settled(notices)
        with client_library.Redis.from_url(redis_url) as client:
            for message in (b"rubbish", b"[1, 2]", b'["data"]', b"\xff", b"{}"):
                client.publish("toolgate:notices", message)
                await until(notices.changed)
                await notices.catch_up(nothing)


@pytest.mark.parametrize(
    ("url", "says"), [("redis://localhost:x/0", "cannot be read"), ("http://localhost", "cannot be read")]
)
def test_a_url_that_is_none_is_said_without_its_password(url: str, says: str) -> None:
    with pytest.raises(CoordinationError, match=says) as raised:
        Redis(url.replace("//", "//user:hush@")).client()
    assert "hush" not in str(raised.value)


@pytest.mark.matrix("needs Redis")
async def test_what_is_said_of_a_lost_redis_has_no_password(own_redis: RedisServer) -> None:
    own_redis.stop()
    redis = Redis(own_redis.url.replace("//", "//user:hush@") + "?client_name=hush")
    with pytest.raises(CoordinationError) as raised:
        await redis.ping()
    await redis.close()
    assert "hush" not in str(raised.value)
    assert f"127.0.0.1:{own_redis.port}" in str(raised.value)
    assert "TOOLGATE_REDIS_URL" in str(raised.value)
