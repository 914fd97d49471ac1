"""How many random examples a property is tried on: by the profile, 10 in `make test` and 75 in `make test-matrix`."""

from hypothesis import settings


def at_most(examples: int) -> settings:
    """For a test whose single example takes long: not more than these, however many the profile allows."""
    return settings(max_examples=min(examples, settings().max_examples))
