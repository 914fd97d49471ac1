"""The made-up tools and tasks that searches were fitted to are in the repository: they name nobody who exists."""

import json
import re
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

pytestmark = pytest.mark.requirement("AGENT-3")
DATA = Path(__file__).resolve().parent.parent / "discovery" / "training.jsonl"
ADDRESS = re.compile(r"[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}")
MADE_UP = re.compile(r"@(?:[a-z0-9-]+\.)*example(?:\.(?:com|org|net))?\Z", re.IGNORECASE)
IP = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
DOCUMENTATION = [ip_network(one) for one in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")]
RESOLVERS = {"1.1.1.1", "8.8.8.8", "9.9.9.9"}
INVISIBLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")


def test_every_line_is_a_tool_with_tasks() -> None:
    rows = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
    assert len(rows) > 8_000
    for row in rows:
        assert row.keys() == {"server", "name", "description", "tasks"}
        assert len(row["tasks"]) >= 2 and all(isinstance(task, str) and task.strip() for task in row["tasks"]), row


def test_addresses_are_made_up_and_nothing_is_invisible() -> None:
    text = DATA.read_text("utf-8")
    assert [found for found in ADDRESS.findall(text) if not MADE_UP.search(found)] == []
    assert [found for found in IP.findall(text) if not _is_reserved(found)] == []
    assert not INVISIBLE.search(text)


def _is_reserved(written: str) -> bool:
    """An address of documentation or of nobody's, one of the resolvers that everybody knows, or no address at all."""
    try:
        address = ip_address(written)
    except ValueError:
        return True
    return written in RESOLVERS or not address.is_global or any(address in one for one in DOCUMENTATION)
