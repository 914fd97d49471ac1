"""Backup before a change, undo after it. `book` is the Journal that tools use, `steps` what an undo comes to, `nodes` the
file system: what stands at a path, and how it is put back without following a link that somebody put in the way.
"""

from toolgate.undo.journal import Journal
from toolgate.undo.steps import NoBackup, NotUndone, Undone

__all__ = ["Journal", "NoBackup", "NotUndone", "Undone"]
