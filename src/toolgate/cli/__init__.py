"""The terminal door: one file per command group. `main` puts them together and turns errors into exit codes.

A command opens an App, asks it, and hands what it got to `output`: lines for people, one line of JSON for programs (every
command takes --json). It is a function, or a coroutine function that `main` runs in an event loop, and gives its exit code:
0 success, 1 failure or denied, 2 usage, 3 pending.
"""

import gc

gc.set_threshold(50_000, 20, 20)
"""A command makes many objects that stay, when it starts, and looking for garbage among them took an eighth of that time."""
