"""The tools that the official suite expects of a server under test: those that ask their caller or take long."""

import asyncio
import json
from typing import Any

from tests.conformance.fixture_tools import PAUSE, fixture
from tests.conformance.turns import ROOTS, Ask, Json, Later, Turn, failure, form, missing, sample, text

NAME: Json = {"name": {"type": "string"}}


# -- asking, as clients of 2025-11-25 are asked


@fixture("Asks the client's model.", prompt="string")
async def test_sampling(turn: Turn) -> Json | Ask:
    if "sampling" not in turn.capabilities:
        return failure("The client can't be asked for samples.")
    answer = turn.said("sample")
    if answer is None:
        return Ask({"sample": sample(str(turn.arguments["prompt"]))})
    return text(f"LLM response: {_words(answer)}")


@fixture("Asks the person.", message="string")
async def test_elicitation(turn: Turn) -> Json | Ask:
    properties = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    return _filled(turn, form(str(turn.arguments["message"]), properties), "User response")


@fixture("Asks the person, with a default for each field.")
async def test_elicitation_sep1034_defaults(turn: Turn) -> Json | Ask:
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return _filled(turn, form("Please review these values.", properties, []), "Elicitation completed")


@fixture("Asks the person to choose, in the five ways that there are.")
async def test_elicitation_sep1330_enums(turn: Turn) -> Json | Ask:
    plain = ["option1", "option2", "option3"]
    titled = [{"const": f"value{place}", "title": f"{word} Option"} for place, word in enumerate(("First", "Second"), 1)]
    properties = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return _filled(turn, form("Please choose.", properties, []), "Elicitation completed")


def _filled(turn: Turn, request: Json, words: str) -> Json | Ask:
    if "elicitation" not in turn.capabilities:
        return failure("The client can't ask its person.")
    answer = turn.said("answer")
    if answer is None:
        return Ask({"answer": request})
    return text(f"{words}: action={answer['action']}, content={json.dumps(answer.get('content') or {})}")


def _words(answer: Json) -> str:
    content = answer.get("content")
    return str(content.get("text", "")) if isinstance(content, dict) else ""


# -- asking, as clients of 2026-07-28 are asked


@fixture("Asks for a name.")
async def test_input_required_result_elicitation(turn: Turn) -> Json | Ask:
    return _greeting(turn)


@fixture("Asks for a name, and streams its answer.")
async def test_streaming_elicitation(turn: Turn) -> Json | Ask:
    await turn.ctx.session.report_progress(0, 1, "asking")
    return _greeting(turn)


@fixture("Asks whether to go on, and remembers that it asked.")
async def test_input_required_result_request_state(turn: Turn) -> Json | Ask:
    answered = turn.said("confirm") is not None and turn.state == "asked once"
    return text("state-ok") if answered else Ask({"confirm": form("Go on?", {"ok": {"type": "boolean"}})}, "asked once")


@fixture("Asks whether to go on, and remembers something that nobody may change.")
async def test_input_required_result_tampered_state(turn: Turn) -> Json | Ask:
    answered = turn.said("confirm") is not None and turn.state == "sealed"
    question = {"confirm": form("Go on?", {"ok": {"type": "boolean"}})}
    return text("The state came back whole.") if answered else Ask(question, "sealed")


def _greeting(turn: Turn) -> Json | Ask:
    name = _field(turn, "user_name", "name")
    return Ask({"user_name": form("What is your name?", NAME)}) if name is None else text(f"Hello, {name}!")


def _field(turn: Turn, question: str, name: str) -> str | None:
    """What a person filled in; None if they did not."""
    content = (turn.said(question) or {}).get("content")
    return content[name] if isinstance(content, dict) and isinstance(content.get(name), str) else None


@fixture("Asks the client's model for a capital.")
async def test_input_required_result_sampling(turn: Turn) -> Json | Ask:
    answer = turn.said("capital_question")
    return Ask({"capital_question": sample("What is the capital of France?")}) if answer is None else text(_words(answer))


@fixture("Asks for the client's roots.")
async def test_input_required_result_list_roots(turn: Turn) -> Json | Ask:
    answer = turn.said("client_roots")
    return Ask({"client_roots": ROOTS}) if answer is None else text(f"Roots: {_roots(answer)}")


def _roots(answer: Json) -> str:
    roots: list[Any] = answer.get("roots") or []
    return ", ".join(str(root.get("uri")) for root in roots)


@fixture("Asks a person, a model and for the roots at once.")
async def test_input_required_result_multiple_inputs(turn: Turn) -> Json | Ask:
    greeting, roots, name = turn.said("greeting"), turn.said("client_roots"), _field(turn, "user_name", "name")
    if name is None or greeting is None or roots is None:
        questions = {"user_name": form("What is your name?", NAME), "greeting": sample("Generate a greeting", 50)}
        return Ask(questions | {"client_roots": ROOTS}, "three questions")
    return text(f"{_words(greeting)} {name}, who works in {_roots(roots)}.")


@fixture("Asks for a name, then for a colour.")
async def test_input_required_result_multi_round(turn: Turn) -> Json | Ask:
    name, color = _field(turn, "step1", "name"), _field(turn, "step2", "color")
    if color is not None and turn.state is not None:
        return text(f"{turn.state} likes {color}.")
    if name is not None:
        return Ask({"step2": form("Step 2: What is your favorite color?", {"color": {"type": "string"}})}, name)
    return Ask({"step1": form("Step 1: What is your name?", NAME)}, "nobody yet")


@fixture("Asks only for what the client says it can be asked for.")
async def test_input_required_result_capabilities(turn: Turn) -> Json | Ask:
    questions = {
        "elicitation": form("What is your name?", NAME),
        "sampling": sample("Generate a greeting"),
        "roots": ROOTS,
    }
    put = {name: request for name, request in questions.items() if name in turn.capabilities}
    return text(f"Asked for {', '.join(put) or 'nothing'}.") if all(turn.said(name) for name in put) else Ask(put)


@fixture("Needs a client that can be asked for samples.")
async def test_missing_capability(turn: Turn) -> Json:
    if "sampling" not in turn.capabilities:
        raise missing({"sampling": {}})
    return text("The client can be asked for samples.")


# -- tasks


@fixture("Greets.", name="string")
async def greet(turn: Turn) -> Json:
    return text(f"Hello, {turn.arguments['name']}!")


@fixture(
    "Takes as many seconds as it is told to.",
    as_task="maybe",
    schema={
        "type": "object",
        "properties": {"seconds": {"type": "number", "minimum": 0, "maximum": 60}, "label": {"type": "string"}},
        "required": ["seconds"],
        "additionalProperties": False,
    },
)
async def slow_compute(_: Turn) -> Later:
    async def work(turn: Turn) -> Json:
        await asyncio.sleep(float(turn.arguments["seconds"]))
        return text(f"Computed {turn.arguments.get('label', 'it')}.")

    return Later(work)


@fixture("Fails after a second.", as_task="always")
async def failing_job(_: Turn) -> Later:
    async def work(_: Turn) -> Json:
        await asyncio.sleep(1)
        return failure("The job failed.")

    return Later(work)


@fixture("Breaks.", as_task="maybe")
async def protocol_error_job(_: Turn) -> Later:
    async def work(_: Turn) -> Json:
        raise RuntimeError("the job broke")

    return Later(work)


@fixture("Deletes a file, if that is confirmed.", as_task="maybe", filename="string")
async def confirm_delete(_: Turn) -> Later:
    async def work(turn: Turn) -> Json | Ask:
        answer = turn.said("confirm")
        if answer is None:
            return Ask({"confirm": form(f"Delete {turn.arguments['filename']}?", {"confirm": {"type": "boolean"}})})
        sure = answer.get("action") == "accept" and (answer.get("content") or {}).get("confirm") is True
        return text(f"{'Deleted' if sure else 'Kept'} {turn.arguments['filename']}.")

    return Later(work)


@fixture("Asks two things at once.", as_task="maybe")
async def multi_input(_: Turn) -> Later:
    async def work(turn: Turn) -> Json | Ask:
        first, second = _field(turn, "first", "name"), _field(turn, "second", "name")
        if first is None or second is None:
            return Ask({"first": form("The first name?", NAME), "second": form("The second name?", NAME)})
        return text(f"{first} and {second}.")

    return Later(work)


@fixture("Asks for a name, and then takes its time.", as_task="always")
async def test_tool_with_task(turn: Turn) -> Ask | Later:
    name = _field(turn, "user_name", "name")
    if name is None:
        return Ask({"user_name": form("What is your name?", NAME)})

    async def work(_: Turn) -> Json:
        await asyncio.sleep(PAUSE)
        return text(f"Done for {name}.")

    return Later(work)
