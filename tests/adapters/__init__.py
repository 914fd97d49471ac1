"""Tests of the adapters with the real frameworks, each of which is in `.venv/frameworks` alone. Run by `make frameworks`.

No file has the name of a test file, so that `make test`, which goes without the frameworks, leaves them out.
"""
