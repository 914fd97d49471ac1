"""`app.qstash`: jobs that QStash brings."""

from toolgate.app.facets import Facet
from toolgate.jobs.job import Job
from toolgate.jobs.qstash import QStashMessage
from toolgate.tasks import uninterrupted


class QStashFacet(Facet):
    """The door of QStash, a queue that brings its messages by HTTP."""

    @property
    def max_bytes(self) -> int | None:
        """The size of the largest message that is taken; None: none is taken."""
        return self._parts.settings.qstash.body_bytes if self._parts.qstash.is_open else None

    @uninterrupted
    async def receive(self, delivery: QStashMessage) -> Job:
        """Queues the job that a message brings; gives the one that it brought before, if it comes again.

        Raises `NotSigned`, `NotTaken` or `NotReady` (of `toolgate.jobs.qstash`), and `Failed` for what the queue refuses.
        """
        return await self._parts.qstash.receive(delivery)
