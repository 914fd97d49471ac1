"""The first minute of a stranger: `make run` is started, its sign-in link opened, and it is stopped. Run by CI.

    python3 tests/first_minute.py

Any Python 3 will do: there is no .venv yet on a fresh machine. The demo content goes into a folder that is removed
afterwards, and the port is a free one.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_SECONDS = 1_200
"""`make run` sets everything up first, which takes minutes on a fresh machine."""
LINK = re.compile(r"http://\S+/sign-in\?token=\S+")
OPENED = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="toolgate-first-minute-") as folder:
        started = subprocess.Popen(
            ["make", "--no-print-directory", "run", "SERVE=--port 0"],
            cwd=ROOT,
            env={**os.environ, "XDG_DATA_HOME": folder},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        too_late = threading.Timer(MOST_SECONDS, end, (started.pid, signal.SIGKILL))
        too_late.start()
        try:
            answered = look(started)
            end(started.pid, signal.SIGINT)
            for line in started.stdout or ():
                sys.stdout.write(line)
            started.wait()
        finally:
            too_late.cancel()
            end(started.pid, signal.SIGKILL)
    sys.stdout.write("make run answered, and was stopped\n" if answered else "make run did not come to answer\n")
    return 0 if answered else 1


def look(started: "subprocess.Popen[str]") -> bool:
    """Reads what it says until there is the link, and opens that as a browser does."""
    for line in started.stdout or ():
        sys.stdout.write(LINK.sub("(link)", line))
        if link := LINK.search(line):
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor())
            with opener.open(urllib.request.Request(link[0], headers=OPENED), timeout=60) as page:
                return bool(page.status == 200)
    return False


def end(group: int, how: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, how)


if __name__ == "__main__":
    sys.exit(main())
