"""Makes the demo content: one App on a clock that is seven days behind, which lives through the week and catches up."""

from datetime import UTC, datetime, timedelta
from random import Random

from toolgate.app.app import App
from toolgate.demo.background import plan_jobs, run_jobs
from toolgate.demo.calls import PlannedCall, Week
from toolgate.demo.clock import DemoClock
from toolgate.demo.decisions import ask_two, grant_refunds, reject_one, set_budgets
from toolgate.demo.folder import DemoFolder
from toolgate.demo.people import ANALYST, add_people
from toolgate.demo.supplier import change, plug_in
from toolgate.settings import load_settings

SEED = 16
WEEK = timedelta(days=7)


async def fill(folder: DemoFolder, seed: int = SEED) -> None:
    """Fills a folder that was laid out (`DemoFolder.in_use`)."""
    random, clock, now = Random(seed), DemoClock(WEEK), datetime.now(UTC)
    settings = load_settings(folder.settings_file, environment={})
    async with App(settings, time_source=clock, keeps_servers=False) as app:
        await add_people(app)
        await plug_in(app, folder)
        last = now - timedelta(minutes=2)
        week = Week(app, clock, random, str(folder.workspace), clock.now() + timedelta(minutes=1), last)
        await week.pass_until(now - timedelta(days=2, hours=3))
        await run_jobs(app)
        await reject_one(app, week)
        await week.hurry(PlannedCall(ANALYST, "stock_level", {"article": "A-300"}), 9)
        await week.pass_until(now - timedelta(hours=6))
        await grant_refunds(app, week)
        await change(app, folder)  # from here on its calls end as not found
        await week.pass_until(last)
        clock.catch_up()
        await set_budgets(app, week, now)
        await ask_two(week, folder)
        await plan_jobs(app)
    folder.complete()
