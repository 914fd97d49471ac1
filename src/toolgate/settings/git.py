"""Settings of git."""

from pydantic import Field

from toolgate.settings.section import Section


class GitSettings(Section):
    """Who the author of commits is that `git` and `git_commit` make. A repository's own configuration is never asked."""

    author_name: str | None = Field(default=None, min_length=1, max_length=200)
    """The name; None: the user of the call."""
    author_email: str | None = Field(default=None, min_length=1, max_length=200)
    """The address; None: `USER@TENANT.invalid`."""
