"""Custom tools: YAML files whose code runs in the sandbox. They are put where Toolgate looks for them, and called."""

import asyncio
import shutil
from pathlib import Path

from toolgate import App

FILES = Path(__file__).parent / "tools"
HOME = Path(".toolgate")


async def main() -> None:
    (HOME / "tools").mkdir(parents=True, exist_ok=True)
    for file in FILES.glob("*.yml"):
        shutil.copy(file, HOME / "tools")

    # A folder that is named here is trusted. In one that is merely found, `toolgate trust` accepts files that were copied;
    # `toolgate tools add --from-file FILE` copies and accepts one.
    async with App.open(home=HOME) as app:
        for tool in await app.tools.list(source="custom"):
            print(tool.name, app.tools.get(tool.name).tier)

        counted = await app.invoke("word_count", {"text": "the cat and the dog", "top": 1})
        print(counted.status, counted.output)

        slug = await app.invoke("slugify", {"title": "Crème brûlée"})
        print(slug.status, slug.output)

        # Its file says autoAccept: false, so a person must agree before it runs the project's tests.
        tests = await app.invoke("run_tests", {"pattern": "auth/**"})
        print(tests.status, tests.error.code if tests.error else tests.output)


asyncio.run(main())
