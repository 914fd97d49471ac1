"""Settings of discovery: from when on a model searches its tools instead of reading the definitions of all of them."""

from typing import Annotated, Literal

from pydantic import Field

from toolgate.model import TOOL_NAME
from toolgate.settings.section import Section

ToolName = Annotated[str, Field(pattern=TOOL_NAME.pattern.replace(r"\Z", "$"))]


class DiscoverySettings(Section):
    """The list of tools that a model is given where an actor has too many for it to read."""

    mode: Literal["auto", "always", "never"] = "auto"
    """`auto`: a model is listed search_tools, describe_tool and call_tool, and the tools that its tenant uses most, once the
    definitions of all that its actor may see take more than `above_tokens`. `always`, `never`: whatever they take."""
    above_tokens: int = Field(default=10_000, ge=0, le=10_000_000)
    """Tokens of definitions that a model still reads as a whole. The built-in tools take some 7,000."""
    listed: int = Field(default=10, ge=0, le=1_000)
    """Tools that are listed besides: those that the tenant called most often, with success, in the 30 days before today."""
    pinned: tuple[ToolName, ...] = Field(default=(), max_length=1_000)
    """Tools that are listed in any case, where the actor may see them."""
