"""Work in the background of the demo: jobs that are done, one that failed, one for tomorrow, and a schedule."""

from toolgate.app.app import App
from toolgate.demo.people import ANALYST, OPS

TOMORROW = 20 * 3600.0


async def run_jobs(app: App) -> None:
    """Has some calls made in the background; one of them fails."""
    await app.enqueue("weekly_report", {"orders": [1001, 1002, 1003]}, actor=ANALYST)
    await app.enqueue("update_stock", {"article": "A-200", "pieces": 355}, actor=OPS)
    await app.enqueue("find_order", {"number": 9999}, actor=OPS)
    await app.jobs.run_all()


async def plan_jobs(app: App) -> None:
    """Queues a call for tomorrow, and has a report made on each working day."""
    await app.enqueue("update_stock", {"article": "A-100", "pieces": 5000}, actor=OPS, delay=TOMORROW)
    await app.schedules.add("30 6 * * 1-5", "weekly_report", {"orders": [1010, 1011]}, name="morning report", actor=ANALYST)
