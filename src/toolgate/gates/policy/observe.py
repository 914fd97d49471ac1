"""Candidate policies that are asked about every call, and whose answers are only put on record.

A candidate never changes how a call goes on, whatever it answers and however it fails. What it said of real calls is
compared with what was done by `toolgate policy observed`.
"""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from toolgate.gates.policy.documents import PolicyError
from toolgate.gates.policy.guard import Guard
from toolgate.gates.policy.open import Refusal, open_file
from toolgate.model import Actor

logger = logging.getLogger("toolgate.policy")


class Observer:
    """The candidates, each with a guard of its own, on the data of the policy in force."""

    def __init__(
        self,
        files: tuple[Path, ...],
        in_force: Guard,
        monotonic: Callable[[], float],
        seconds: float,
        refusal: Refusal | None = None,
    ) -> None:
        self._in_force = in_force
        self._epoch = -1
        self._new_guard = partial(Guard, monotonic=monotonic, seconds=seconds)
        self._open = partial(open_file, setting="policy.observe", refusal=refusal)
        self._guards = {file: self._new_guard(self._open(file)) for file in files}
        self._texts = {file: _bytes(file) for file in files}

    @property
    def reads_arguments(self) -> bool:
        return any(guard.reads_arguments for guard in self._guards.values())

    def reload_changed(self) -> None:
        """Takes files anew that have changed. One that is wrong is not taken: the candidate before is asked further."""
        for file, known in self._texts.items():
            found = _bytes(file)
            if found in (known, None):
                continue
            self._texts[file] = found
            try:
                self._guards[file] = self._new_guard(self._open(file))
            except PolicyError as error:
                logger.error("the changed policy is not observed, the one before is: %s", error)
            self._epoch = -1

    def _catch_up(self) -> None:
        """Has the candidates look at the data that the policy in force looks at."""
        if self._epoch != self._in_force.epoch:
            self._epoch = self._in_force.epoch
            for guard in self._guards.values():
                guard.use(self._in_force.data)

    async def answers(self, actor: Actor, tool: str, **context: Any) -> list[dict[str, Any]]:
        """What each candidate says of a call, as the call's record holds it."""
        self._catch_up()
        found: list[dict[str, Any]] = []
        for file, guard in self._guards.items():
            try:
                decision = await guard.decide(actor, "tool.request", tool, **context)
            except Exception as error:  # noqa: BLE001 - whatever it is, the call has nothing to do with it
                logger.error("the observed policy %s failed: %s", file, type(error).__name__)
                continue
            found.append(
                {"policy": file.name, "hash": guard.policy_hash[:16], "allow": decision.allow, "reason": decision.reason}
            )
        return found


def _bytes(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None
