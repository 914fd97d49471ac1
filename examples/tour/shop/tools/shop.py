"""Two tools of a shop, as an agent would be given them."""

from toolgate import tool


@tool(tier="read_only")
async def find_order(number: int) -> dict[str, str | int]:
    """Find an order by its number."""
    return {"number": number, "customer": "Ada", "paid": 120, "state": "delivered, damaged"}


@tool(tier="external_api", cost=0.40)
async def refund(order: int, amount: float) -> str:
    """Pay money back to the customer of an order."""
    return f"refunded ${amount:.2f} for order {order}"
