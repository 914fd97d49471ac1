"""Asks the policy engine about a tool that can't exist: whatever decides must answer, and must say no."""

from toolgate.app.app import App
from toolgate.gates.policy.engine import PolicyQuestion, PolicyVerdict

NO_SUCH_TOOL = "no tool has this name"


async def ask_policy(app: App) -> PolicyVerdict:
    engine, question = app.parts.guard.engine, PolicyQuestion("default", None, "tool.request", NO_SUCH_TOOL, "local")
    if engine.remote is True:
        return await engine.ask(question)
    return engine.decide(question, app.parts.policy.data, app.parts.guard.epoch)
