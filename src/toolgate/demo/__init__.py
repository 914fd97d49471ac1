"""Demo content for the first minute: a tenant with a week of calls, in a folder of its own that one command removes.

All of it is made through the App: the calls pass the pipeline, people answer the approvals, and the audit log holds. What is
not real is when: records have times of the last seven days (`clock`), and the log says so.
"""

from toolgate.demo.content import fill
from toolgate.demo.folder import DemoFolder
from toolgate.demo.people import LEAD

__all__ = ["LEAD", "DemoFolder", "fill"]
