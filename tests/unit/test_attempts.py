"""How long wrong keys wait, and that nothing they do makes an honest one wait or takes memory without bounds."""

from hypothesis import given
from hypothesis import strategies as st

from toolgate.serve import key_attempts as attempts
from toolgate.serve.key_attempts import KeyAttempts


class Clock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


def test_guesses_of_one_id_wait_longer_and_longer_up_to_a_bound() -> None:
    clock = Clock()
    made = KeyAttempts(clock)
    delays = []
    for number in range(60):
        delays.append(made.delay(b"%d" % number, "id", f"192.0.2.{number}"))
        made.failed(b"%d" % number, "id", f"192.0.2.{number}")
    assert delays[: attempts.FREE_OF_ID] == [0.0] * attempts.FREE_OF_ID
    assert delays == sorted(delays)
    assert delays[-1] == attempts.MAX_SECONDS_OF_ID
    clock.at += attempts.FORGET_SECONDS
    assert made.delay(b"later", "id", "192.0.2.1") == 0.0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=300))
def test_a_key_that_was_right_never_waits_and_an_unknown_one_waits_a_moment(wrong: list[tuple[str, str]]) -> None:
    made = KeyAttempts(Clock())
    made.succeeded(b"good")
    for id, address in wrong:
        made.failed(b"wrong", id, address)
    for id in "abc":
        for address in "xyz":
            assert made.delay(b"good", id, address) == 0.0
            assert made.delay(b"new", id, address) <= attempts.MAX_SECONDS_OF_ID
    assert made.delay(b"new", "another", "elsewhere") == 0.0


def test_a_key_that_is_wrong_now_is_no_longer_a_good_one() -> None:
    made = KeyAttempts(Clock())
    made.succeeded(b"key")
    for _ in range(50):
        made.failed(b"key", "id", "address")
    assert made.delay(b"key", "id", "address") > 0


def test_what_is_remembered_is_bounded() -> None:
    made = KeyAttempts(Clock())
    for number in range(attempts.MAX_COUNTED * 2):
        made.failed(b"", str(number), str(number))
        made.succeeded(b"%d" % number)
    assert len(made.by_id) == len(made.by_address) == attempts.MAX_COUNTED
    assert len(made._good) == attempts.MAX_GOOD
