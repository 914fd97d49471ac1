"""A bar on stderr while a person watches a job: how far it has got, or that it has not begun.

It is shown on a terminal that can erase it, and is gone when the job ends; anything else is shown nothing. What a job says
of its progress is data, and written out before the terminal gets it.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from toolgate.cli.output import clean
from toolgate.cli.spinner import has_spinner
from toolgate.jobs.job import Job

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

MESSAGE_CHARS = 40


class JobProgressBar:
    """The bar of one job, drawn inside `with`."""

    def __init__(self, job: Job, *, quiet: bool = False) -> None:
        self._job = job
        self._stack = ExitStack()
        self._bar: Progress | None = None
        self._is_wanted = not quiet and has_spinner()

    def __enter__(self) -> Self:
        if self._is_wanted:
            from rich.console import Console
            from rich.progress import Progress  # not wanted by every command

            console = Console(file=sys.stderr, markup=False, emoji=False, highlight=False)
            columns = tuple(_columns())
            self._bar = self._stack.enter_context(Progress(*columns, console=console, transient=True, expand=False))
            self._task = self._bar.add_task("", total=None, message="")
            self.show(self._job)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def show(self, job: Job) -> None:
        """Draws a job as it is now."""
        if self._bar is None:
            return
        progress = job.progress
        has_total = progress is not None and progress.total is not None and progress.total > 0
        message = job.state if progress is None or not progress.message else progress.message
        self._bar.update(
            self._task,
            description=clean(job.type),
            total=progress.total if progress is not None and has_total else None,
            completed=0.0 if progress is None else max(progress.done, 0.0),
            message=clean(message[:MESSAGE_CHARS].replace("\t", " ")),
        )


def _columns() -> "Iterator[ProgressColumn]":
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    yield TextColumn("{task.description}", markup=False)
    yield BarColumn(bar_width=None)
    yield TaskProgressColumn(markup=False)
    yield TimeElapsedColumn()
    yield TextColumn("{task.fields[message]}", markup=False)
