"""Notes that agents keep and find again by meaning: `notes` is what tools use, `conditions` reads filters, `matrix_index`
and `pgvector_index` find the nearest vectors, in this process or in the database."""

from toolgate.memory.notes import FoundNote, Memory

__all__ = ["FoundNote", "Memory"]
