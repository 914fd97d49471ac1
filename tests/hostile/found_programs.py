"""Programs that got somewhere once, when the sandbox was attacked before it was finished. It was mended; they stay.

They aim at the host rather than at the jail: the process that reads what a worker writes.
"""

from tests.hostile.battery import Hostile, Language

EVERY_DESCRIPTOR = """
import os
def everywhere(data):
    for number in range(3, 40):
        try:
            os.fstat(number)
            while True:
                os.write(number, data)
        except OSError:
            pass
"""
WRITES = EVERY_DESCRIPTOR + 'print("control ok")'


def flood(name: str, frame: str) -> Hostile:
    """A program that says the same to the host for ever, as the worker around it would."""
    code = f"{EVERY_DESCRIPTOR}\neverywhere({frame!r}.encode() * 4000)\nprint('held')"
    return Hostile(name, "output", code, WRITES, seconds=2.0)


FOUND: dict[Language, list[Hostile]] = {
    "python": [
        # A frame that means nothing cost nothing: the host read for ever, and no limit was looked at meanwhile.
        flood("frames_that_mean_nothing", "\x1e{}\n"),
        flood("frames_that_are_no_objects", "\x1e5\n"),
        flood("endless_log", '\x1e{"log": "info", "message": "x"}\n'),
        flood("empty_lines", "\n"),
        # Whoever asks and never listens: each answer waited in the host's memory.
        flood("questions_without_end", '\x1e{"call": 1, "op": "tool", "args": ["x", {}]}\n'),
        flood("questions_that_are_none", '\x1e{"call": {"a": [1]}, "op": 5, "args": 7}\n'),
        flood("ready_again", '\x1e{"ready": {}}\n'),
        Hostile(
            "result_that_is_too_big",
            "output",
            EVERY_DESCRIPTOR + "everywhere(b'\\x1e{\"result\": \"' + b'x' * 6_000_000 + b'\"}\\n')\nprint('held')",
            WRITES,
            seconds=2.0,
        ),
        Hostile(
            "result_that_is_too_deep",
            "output",
            EVERY_DESCRIPTOR
            + "everywhere(b'\\x1e{\"result\": ' + b'[' * 3_000_000 + b']' * 3_000_000 + b'}\\n')\nprint('held')",
            WRITES,
            seconds=2.0,
        ),
    ],
    "shell": [],
    "deno": [],
}
