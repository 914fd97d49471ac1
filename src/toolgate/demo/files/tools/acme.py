"""Tools of the demo's tenant acme: a shop for machine parts."""

import asyncio
from typing import Any

from toolgate import CacheRule, InvokeContext, ToolError, tool

CUSTOMERS = ("Ada", "Grace", "Linus", "Barbara", "Dennis")
STOCK = {"A-100": 5200, "A-200": 340, "A-300": 18}
SLOW_WEEKS = 26


@tool(tier="read_only", cache=CacheRule(ttl=600))
async def find_order(number: int) -> dict[str, str | int]:
    """Find an order by its number.

    Args:
        number: From 1000 on.
    """
    await asyncio.sleep(0.002)
    if not 1000 <= number < 2000:
        raise ToolError(f"there is no order {number}", code="ORDER_NOT_FOUND", suggestion="Numbers begin at 1000.")
    return {"number": number, "customer": CUSTOMERS[number % 5], "total_usd": number % 400 + 20, "state": "delivered"}


@tool(tier="read_only")
async def stock_level(article: str) -> int:
    """Say how many pieces of an article are in stock."""
    if article not in STOCK:
        raise ToolError(f"there is no article {article}", code="ARTICLE_NOT_FOUND")
    return STOCK[article]


@tool(tier="write")
async def update_stock(article: str, pieces: int) -> str:
    """Set how many pieces of an article are in stock, after they were counted."""
    return f"{article}: {pieces} pieces"


@tool(tier="read_only", cost=0.12)
async def credit_check(customer: str) -> dict[str, str | int]:
    """Ask a credit agency about a customer. The agency takes 12 cents."""
    await asyncio.sleep(0.003)
    return {"customer": customer, "score": 500 + len(customer) * 37, "limit_usd": 4000}


@tool(tier="read_only", timeout=0.12)
async def forecast_demand(article: str, weeks: int = 4) -> list[int]:
    """Forecast how many pieces of an article are sold in each of the next weeks."""
    await asyncio.sleep(1 if weeks > SLOW_WEEKS else 0.005)
    return [STOCK.get(article, 0) // 52 + week for week in range(weeks)]


@tool(tier="external_api", cost=0.40)
async def refund(order: int, amount: float) -> str:
    """Pay money back to the customer of an order. The payment service takes 40 cents."""
    return f"refunded ${amount:.2f} for order {order}"


@tool(tier="external_api", cost=0.05)
async def order_parts(article: str, pieces: int) -> str:
    """Order pieces of an article at the supplier, to be paid in 30 days. The supplier takes 5 cents for an order."""
    return f"ordered {pieces} pieces of {article}"


@tool(tier="read_only")
async def weekly_report(ctx: InvokeContext, orders: list[int]) -> dict[str, Any]:
    """Sum up some orders and the stock, for the meeting on Monday."""
    found = [await ctx.call_tool("find_order", number=number) for number in orders]
    stock = [await ctx.call_tool("stock_level", article=article) for article in STOCK]
    totals = [outcome.output["total_usd"] for outcome in found if outcome.ok]
    return {"orders": len(totals), "total_usd": sum(totals), "stock": [outcome.output for outcome in stock if outcome.ok]}
