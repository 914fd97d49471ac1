"""Settings of the notes that agents keep."""

from typing import Literal

from pydantic import Field

from toolgate.settings.section import Section


class MemorySettings(Section):
    """How much `memory_save` keeps, and what searching it may take."""

    embedding: Literal["inline", "background"] = "inline"
    """When the vector of a note is computed: while it is saved, or by a job; until then no search finds it."""
    note_chars: int = Field(default=4_000, ge=1, le=100_000)
    """Characters of one note. The first 1,000 or so decide by what it is found."""
    notes: int = Field(default=20_000, ge=1, le=100_000)
    """Notes of one persona of one tenant."""
    tenant_bytes: int = Field(default=200_000_000, ge=1_024)
    """All notes of a tenant: texts, metadata and vectors of 1,536 bytes."""
    cache_bytes: int = Field(default=128_000_000, ge=0)
    """Vectors that a process keeps between searches, of the personas searched last. Not used with pgvector."""
