"""Rego evaluated in this process, by Regorus.

Its objects must be used, and let go, by the thread that made them. So each thread keeps its own, in `_HERE` and not in a
policy: a policy may be collected by any thread. Whatever goes wrong denies, and the engine is thrown away: after a failed
`set_input` it would answer for the caller before.
"""

import re
import threading
import weakref
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from time import thread_time
from typing import TYPE_CHECKING, Any, Literal, get_args

import orjson

from toolgate.gates.policy.documents import EMPTY_DOCUMENTS, Data, Documents, PolicyError
from toolgate.gates.policy.engine import (
    EVERYTHING,
    NOT_JSON,
    Action,
    InputsRead,
    PolicyQuestion,
    PolicyVerdict,
    plain,
    understood,
)
from toolgate.gates.policy.input_references import (
    MAX_BRACKET_DEPTH,
    MAX_FAULTS,
    Argument,
    References,
    references_of,
    too_deep,
    what_is_read,
)
from toolgate.model import Decision

if TYPE_CHECKING:
    from regorus import Engine

PACKAGE = "data.soma.policy"
ALLOW, DECISION = f"{PACKAGE}.allow", f"{PACKAGE}.decision"
SAMPLES = [
    PolicyQuestion("tenant", persona, action, tool, "user", scopes, session, "python", tier, {}).input(EVERYTHING)
    for persona in (None, "persona")
    for action in get_args(Action)
    for tool, tier in (("tool", "read_only"), ("missing", None))
    for scopes, session in (((), None), (("scope",), "session"))
]
"""Calls that every policy must be able to judge: it may deny them, but not fail."""
SAMPLE_DATA: Documents = {
    **EMPTY_DOCUMENTS,
    "tool_catalog": {"tool": {"enabled": True, "requires_permission": None, "tier": "read_only", "runs_code": False}},
    "tenant_tool_catalog": {},
    "deny_reasons": {"personas": {}, "everybody": {}},
}
NO_DECISION = Decision(False, "the policy's decision is not {allow, reason}")
UNDEFINED = '"<undefined>"'
ENGINES = 8
"""Policies that a thread keeps ready; of more, the one that it has had longest is compiled again when it is needed."""
Held = tuple["weakref.ref[Any]", int]
"""Data, or whatever stands for it, and the epoch for which it holds."""
_PLACE = re.compile(r"--> [^\n]*:(\d+):(\d+)\n")
_ERROR = re.compile(r"error: ([^\n]+)")
NOT_RUNNABLE = ("could not find function", "Unknown function", "recursion detected")
"""What Regorus says, only when it comes to it, of a policy that OPA would not have loaded."""


@lru_cache(maxsize=1)
def default_policy() -> str:
    """The text of the shipped policy."""
    return files("toolgate.gates.policy").joinpath("default.rego").read_text(encoding="utf-8")


class EmbeddedRego:
    """A policy, compiled. Raises PolicyError, with the line, for one that can't be used."""

    remote: Literal[False] = False

    def __init__(self, text: str, *, shipped: bool = False) -> None:
        self.text = text
        self.shipped = shipped
        self.hash = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self.reads: InputsRead = what_is_read(text)
        found = None if shipped else _check(text)
        self.has_decision = found is None or "decision" in found.rules
        self.arguments: list[Argument] = [] if found is None else found.arguments
        """The arguments of calls that it looks at by name."""
        self._key: object = self.hash if shipped else object()
        if shipped and not self.reads.only_who_and_what:
            raise PolicyError("The shipped policy must not depend on more than who asks and for what.")

    @classmethod
    def default(cls) -> "EmbeddedRego":
        return cls(default_policy(), shipped=True)

    def decide(self, question: PolicyQuestion, data: Data, epoch: int) -> PolicyVerdict:
        """Answer; never raises for what a policy, its data or the arguments do."""
        try:
            asked = orjson.dumps(question.input(self.reads)).decode()
        except (TypeError, RecursionError):
            return PolicyVerdict(Decision(False, NOT_JSON))
        if self.shipped:
            return self._answer(asked, data.slice(question.tenant, question.persona, question.tool), None)
        return self._answer(asked, data, (weakref.ref(data), epoch))

    def evaluate(self, asked: dict[str, Any], documents: Documents) -> PolicyVerdict:
        """Answer to an input as it stands, on documents as they stand."""
        return self._answer(orjson.dumps(asked).decode(), documents, None)

    def evaluate_many(self, asked: Iterable[str], documents: Documents) -> list[Decision]:
        """Answer to inputs as they stand, each a JSON text, on documents that are loaded once."""
        held = (weakref.ref(self), 0)
        return [self._answer(one, documents, held).decision for one in asked]

    def sample_milliseconds(self) -> float:
        """The processor time of a decision here, on sample calls and little data: a busy machine makes no policy slow."""
        self.evaluate(SAMPLES[0], SAMPLE_DATA)
        begun = thread_time()
        for asked in SAMPLES:
            self.evaluate(asked, SAMPLE_DATA)
        return (thread_time() - begun) * 1000 / len(SAMPLES)

    def _answer(self, asked: str, data: Data | Documents, held: Held | None) -> PolicyVerdict:
        """`held`: what may be kept for the next decision; None: the data is for this one."""
        try:
            engine = self._engine()
            engine.load(data, held)
            return PolicyVerdict(engine.ask(asked))
        except BaseException as error:
            _HERE.engines.pop(self._key, None)
            if not _is_the_engines(error):
                raise
            return PolicyVerdict(Decision(False, f"the policy failed{_place(error)}"), sure=False)

    def _engine(self) -> "Machine | Interpreter":
        """This thread's."""
        engines = _HERE.engines
        engine = engines.get(self._key)
        if engine is None:
            engine = Machine(self.text) if self.shipped else Interpreter(self.text, self.has_decision)
            if len(engines) >= ENGINES:
                del engines[next(iter(engines))]
            engines[self._key] = engine
        return engine


class Machine:
    """The policy as bytecode: 30 µs with the data of one decision, where the interpreter would analyse all rules again after
    each change of data (280 µs). Has a limit on instructions, and no `with`, so it is for the shipped policy alone."""

    def __init__(self, text: str) -> None:
        from regorus import Program, Rvm

        self._vm = Rvm()
        self._vm.load_program(Program.compile_from_modules("{}", [("policy.rego", text)], [DECISION]))

    def load(self, data: Data | Documents, held: Held | None) -> None:  # noqa: ARG002 - it keeps nothing
        self._vm.set_data_json(orjson.dumps(data if isinstance(data, dict) else data.whole()).decode())

    def ask(self, asked: str) -> Decision:
        self._vm.set_input_json(asked)
        return understood(orjson.loads(self._vm.execute_entry_point(DECISION))) or NO_DECISION


class Interpreter:
    """A policy of the user's, with all the data, loaded once for each epoch."""

    def __init__(self, text: str, has_decision: bool) -> None:
        self._engine = _compiled(text)
        self._has_decision = has_decision
        self._held: Held | None = None

    def load(self, data: Data | Documents, held: Held | None) -> None:
        if held is None or held != self._held:
            self._engine.clear_data()
            self._engine.add_data(data if isinstance(data, dict) else data.whole())
            self._held = held

    def ask(self, asked: str) -> Decision:
        engine = self._engine
        engine.set_input_json(asked)
        if self._has_decision:
            value = engine.eval_rule(DECISION)
            if value is not None or engine.eval_rule_as_json(DECISION) != UNDEFINED:
                return understood(value) or NO_DECISION
        return plain(engine.eval_rule(ALLOW) is True)


class Here(threading.local):
    """The engines of a thread. Python clears it in that thread, as it ends."""

    def __init__(self) -> None:
        self.engines: dict[object, Machine | Interpreter] = {}


_HERE = Here()


def _compiled(text: str) -> "Engine":
    from regorus import Engine

    engine = Engine()
    engine.add_policy("policy.rego", text)
    return engine


def check_references(text: str, *, any_data: bool = False) -> References | None:
    """Raises PolicyError if a policy refers to input, or to data of ours, that can't exist. Gives nothing for a text that
    only another engine understands."""
    try:
        if too_deep(text) is not None:
            return None
        tree = _compiled(text).get_ast_as_json()
    except Exception:  # noqa: BLE001 - the engine raises what it likes
        return None
    found = _references(tree, any_data=any_data)
    if isinstance(found, PolicyError):
        raise found
    return found


def _references(tree: str, *, any_data: bool) -> References | PolicyError:
    try:
        found = references_of(tree, any_data=any_data)
    except (RecursionError, orjson.JSONDecodeError):
        return PolicyError("The policy is nested too deeply.", suggestion="Split its rules into smaller ones.")
    if not found.faults:
        return found
    more = len(found.faults) - MAX_FAULTS
    words = "; ".join(map(str, found.faults[:MAX_FAULTS])) + (f"; and {more} more" if more > 0 else "")
    return PolicyError(
        f"The policy refers to what a call never has: {words}.",
        line=found.faults[0].line,
        suggestion="A rule that reads it is never true, and `not` over it always is. docs/explanation/policy.md lists "
        "all that a policy is given.",
    )


def _check(text: str) -> References:
    """The references of a policy. Raises PolicyError if it can't be used."""
    found = _examine(text)
    if isinstance(found, BaseException):
        raise found
    return found


def _examine(text: str) -> References | BaseException:
    """Gives what `_check` gives or raises. Raised from here, it would carry the engine away to whoever holds the error."""
    if "\0" in text:  # Regorus would take it for the end, and leave out the rules that follow
        return PolicyError("The policy holds a NUL character.", line=text.count("\n", 0, text.index("\0")) + 1)
    deep = too_deep(text)
    if deep is not None:
        return PolicyError(
            f"The policy nests brackets more than {MAX_BRACKET_DEPTH} deep at line {deep}.",
            line=deep,
            suggestion="Give the inner part a rule of its own.",
        )
    try:
        engine = _compiled(text)
        engine.eval_query("true")  # has the rules analysed, and evaluates none
        if PACKAGE not in engine.get_packages():
            return PolicyError("The policy must begin with `package soma.policy`.", line=1)
        _check_calls(text)
        found = _references(engine.get_ast_as_json(), any_data=False)
        if isinstance(found, References) and "allow" not in found.rules:
            return PolicyError("The policy has no rule `allow`.", suggestion="Begin with `default allow := false`.")
        return found if isinstance(found, PolicyError) else _try_samples(engine, found)
    except BaseException as error:  # noqa: BLE001 - a panic is no Exception
        return _refused(error)


def _try_samples(engine: "Engine", found: References) -> References | BaseException:
    """Has the policy judge each sample. A rule that fails on one would deny such calls for a reason nobody wrote."""
    engine.add_data(SAMPLE_DATA)
    for asked in SAMPLES:
        engine.set_input(asked)
        try:
            for rule in ("allow", "decision"):
                if rule in found.rules:
                    engine.eval_rule(f"{PACKAGE}.{rule}")
        except BaseException as error:  # noqa: BLE001 - a panic is no Exception
            if any(words in str(error) for words in NOT_RUNNABLE):
                return _refused(error)
            given: dict[str, Any] = {"persona_id": asked["persona_id"], **asked["context"]}
            what = ", ".join(
                f"{name} {orjson.dumps(given[name]).decode()}" for name in ("persona_id", "session", "arguments")
            )
            return _refused(error, f"fails on a sample {asked['action']} with {what},")
    return found


def _check_calls(text: str) -> None:
    """Find functions that do not exist also where the sample did not come by."""
    from regorus import Program

    try:
        Program.compile_from_modules("{}", [("policy.rego", text)], [ALLOW])
    except Exception as error:
        if any(words in str(error) for words in NOT_RUNNABLE):
            raise


def _refused(error: BaseException, does: str = "does not compile") -> BaseException:
    if not _is_the_engines(error):
        return error
    found, words = _PLACE.search(str(error)), _ERROR.search(str(error))
    line = int(found[1]) if found else None
    what = words[1] if words else str(error).strip().split("\n", 1)[0]
    where = f" at line {line}, column {found[2]}" if found else ""
    return PolicyError(f"The policy {does}{where}: {what.rstrip('.')}.", line=line)


def _is_the_engines(error: BaseException) -> bool:
    """A panic of Rust code is no Exception, and has no name that could be imported."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _place(error: BaseException) -> str:
    """The place where it failed. What the engine says of it may quote the arguments, so that is left out."""
    found = _PLACE.search(str(error))
    return f" at line {found[1]}" if found else ""
