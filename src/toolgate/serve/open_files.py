"""The number of files and connections that this process may have open at a time."""

import sys

RESERVED_FILES = 256
"""Those that are not connections of clients: the database, programs of tools, connections of our own."""
DEFAULT_FILES = 8_192
"""Where the system has no such limit that a process could ask for."""


if sys.platform == "win32":

    def raise_limit() -> None:
        """Does nothing: there is no such limit here."""

    def max_connections() -> int:
        """Gives the number of connections that clients may have open."""
        return DEFAULT_FILES

else:
    import resource

    def raise_limit() -> None:
        """Raises the limit as far as the system lets a process: the usual 1,024 are for programs with few connections."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def max_connections() -> int:
        """Gives the number of connections that clients may have open, so that files are left for everything else."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return max(soft - RESERVED_FILES, soft // 2) if soft != resource.RLIM_INFINITY else sys.maxsize
