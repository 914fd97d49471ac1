"""The model that all parts of a definition share."""

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """Common to all parts of a definition: closed to unknown fields, never changed after it is made."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_max_length=100_000, defer_build=True)
