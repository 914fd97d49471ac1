"""When a server that failed is started again; what strangers say, made fit to be shown; the SDK loaded by many at once."""

import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.mcp.client.backoff import FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, RestartBackoff
from toolgate.mcp.client.errors import Unreachable
from toolgate.mcp.client.untrusted_text import innermost, printable, sentence
from toolgate.settings import ServerSettings

LOAD = """
import threading
from importlib import import_module
from toolgate.mcp.client import sdk
wrong = []
def load(module):
    try:
        sdk.load()
        import_module(module)
    except BaseException as error:
        wrong.append(repr(error))
modules = ("mcp.server.lowlevel", "mcp.client.sse", "mcp", "mcp.server.stdio")
threads = [threading.Thread(target=load, args=(one,)) for one in modules]
[one.start() for one in threads]
[one.join() for one in threads]
print(wrong)
"""


@given(failures=st.integers(1, 60), restarts=st.integers(0, 50), rest=st.floats(0.1, 1_000))
def test_waits_double_up_to_a_limit_and_end_in_a_rest(failures: int, restarts: int, rest: float) -> None:
    tries = RestartBackoff("one", ServerSettings(command=("x",), restarts=restarts, rest_seconds=rest), str)
    for number in range(1, failures + 1):
        wait, state = tries.failed()
        assert state == ("resting" if number > restarts else "waiting")
        if state == "resting":
            assert wait == rest
        else:
            assert 0 <= wait <= min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** (number - 1))
        assert 0 <= tries.left <= wait
    tries.forget()
    assert tries.failure is None
    assert tries.failed()[1] == ("resting" if restarts == 0 else "waiting")


def test_waits_of_many_servers_that_fail_together_are_spread() -> None:
    one = ServerSettings(command=("x",), restarts=10)
    waits = []
    for _ in range(200):
        tries = RestartBackoff("one", one, str)
        for _ in range(5):
            wait, _state = tries.failed()
        waits.append(wait)
    longest = FIRST_BACKOFF_SECONDS * 2**4
    assert min(waits) < longest / 4
    assert max(waits) > longest * 3 / 4


def test_what_went_wrong_is_told_with_the_next_try_and_without_secrets() -> None:
    settings = ServerSettings(command=("x",), restarts=0, rest_seconds=90)
    tries = RestartBackoff("one", settings, lambda words: words.replace("sesame", "•"))
    tries.note(Unreachable("MISSING_AUTH", "It wants sesame.", suggestion="Log in."))
    tries.failed()
    error = tries.unreachable()
    assert (error.code, error.suggestion) == ("MISSING_AUTH", "Log in.")
    assert error.message == "Server one is unavailable. It wants •. The next start is in 90 s."


@given(words=st.text(max_size=200) | st.binary(max_size=200), most=st.integers(0, 100))
def test_what_is_shown_is_short_and_obeyed_by_no_terminal(words: str | bytes, most: int) -> None:
    shown = printable(words, most)
    assert len(shown) <= most + 1
    assert not [one for one in shown if unicodedata.category(one) == "Cc" and one not in "\t\n\r"]


def test_a_group_is_told_by_the_one_that_says_the_most() -> None:
    group = ExceptionGroup("many", [ExceptionGroup("inner", [ConnectionError("no way in")]), ValueError("second")])
    assert isinstance(innermost(group), ConnectionError)
    assert sentence(group) == "no way in."


@pytest.mark.parametrize(
    ("error", "said"),
    [(TimeoutError(), "It took too long."), (ValueError(), "ValueError."), (OSError("two\nlines\x1b[0m"), "two lines[0m.")],
)
def test_an_exception_is_one_sentence(error: Exception, said: str) -> None:
    assert sentence(error) == said


@pytest.mark.matrix("loads the SDK in an interpreter of its own")
def test_many_threads_may_load_the_sdk_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.strip() == "[]"
