"""The terminal door: one file per command group. `main` puts them together and turns errors into exit codes.

Commands open an App, ask it, and hand what they got to `screen`: lines for people, one line of JSON for programs. Each gives
its exit code: 0 success, 1 failure or denied, 2 usage, 3 pending.
"""

import gc

gc.set_threshold(50_000, 20, 20)
"""A command makes many objects that stay, when it starts, and looking for garbage among them took an eighth of that time."""
