"""Search of tools: finds the few among thousands that fit a task which is said in words of one's own."""

from toolgate.tool_search.result import RankedTool, Ranking

__all__ = ["RankedTool", "Ranking"]
