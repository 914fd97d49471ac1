"""Backup before a change, undo after it: `journal` is what tools use, `steps` what an undo comes to, `filesystem` what
stands at a path, put back without following a link that somebody put in the way."""

from toolgate.undo.journal import Journal
from toolgate.undo.steps import NoBackup, NotUndone, Undone

__all__ = ["Journal", "NoBackup", "NotUndone", "Undone"]
