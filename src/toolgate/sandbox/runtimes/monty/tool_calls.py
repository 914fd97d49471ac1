"""The desk where a program in Monty calls tools: it asks in its thread, and is answered in the event loop."""

import asyncio
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from toolgate.jsontext import find_not_json
from toolgate.sandbox.worker_protocol import MAX_CONCURRENT_REQUESTS, Refusal, Serve

if TYPE_CHECKING:
    from pydantic_monty import FunctionSnapshot


class MontyToolCalls:
    """One for each run. `asked` counts the calls, `refused` is the last that was refused."""

    def __init__(self, loop: asyncio.AbstractEventLoop, serve: Serve | None, names: list[str] | None) -> None:
        self._loop, self._serve, self._names = loop, serve, names
        self._waiting: Future[Any] | None = None
        self._closed = False
        self.asked = 0
        self.refused: Refusal | None = None

    def close(self) -> None:
        self._closed = True
        waiting = self._waiting
        if waiting is not None:
            waiting.cancel()

    def answer(self, at: "FunctionSnapshot") -> Any:
        """What the program is told for one call: a value, or an exception."""
        try:
            if at.object_id is None:
                raise NameError(f"name {at.function_name!r} is not defined")
            return {"return_value": self._call(str(at.function_name), at.args, at.kwargs)}
        except Refusal as refusal:
            self.refused = refusal
            return {"exception": RuntimeError(refusal.message)}
        except (NameError, TypeError, ValueError, AttributeError) as error:
            return {"exception": error}

    def _call(self, name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if name == "parallel":
            return self._parallel(*given, **named)
        if name == "call":
            return self._one(*given, **named)
        if self._names is not None and name not in self._names:
            raise AttributeError(f"There is no tool {name}. There are: {', '.join(self._names[:50])}")
        return self._one(name, *self._merged(*given, **named))

    def _merged(self, arguments: dict[str, Any] | None = None, /, **named: Any) -> tuple[dict[str, Any]]:
        return ({**(arguments or {}), **named},)

    def _one(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        return self._ask([(name, arguments or {})])[0]

    def _parallel(self, calls: list[tuple[str, dict[str, Any]]]) -> list[Any]:
        return self._ask([(name, arguments) for name, arguments in calls])

    def _ask(self, calls: list[tuple[Any, Any]]) -> list[Any]:
        wrong = find_not_json(calls)
        if wrong is not None:
            raise TypeError(f"What was given to tool can't be sent: it {wrong.message}")
        self.asked += len(calls)
        self._waiting = asyncio.run_coroutine_threadsafe(self._together(calls), self._loop)
        if self._closed:
            self._waiting.cancel()
        answers: list[Any] = self._waiting.result()
        for answer in answers:
            if isinstance(answer, Refusal):
                raise answer
        return answers

    async def _together(self, calls: list[tuple[Any, Any]]) -> list[Any]:
        room = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)

        async def one(name: Any, arguments: Any) -> Any:
            async with room:
                try:
                    if self._serve is None:
                        raise Refusal("PERMISSION_DENIED", "The host answers no such question here.")
                    return await self._serve("tool", [name, arguments])
                except Refusal as refusal:
                    return refusal
                except (TypeError, ValueError):
                    return Refusal("INVALID_INPUT", "The host can't answer this.")
                except Exception:  # noqa: BLE001 - the program must get an answer, whatever it is
                    return Refusal("UNEXPECTED_ERROR", "The host failed.")

        return await asyncio.gather(*(one(name, arguments) for name, arguments in calls))
