"""The terminal door: one file per command group. `main` puts them together and turns errors into exit codes.

Commands open an App, ask it, and hand what they got to `screen`: lines for people, one line of JSON for programs. Each gives
its exit code: 0 success, 1 failure or denied, 2 usage, 3 pending.
"""
