"""An agent of the official A2A SDK, served by uvicorn on loopback: what a2a_chat has to get along with.

It answers by the first word of a message: `say`, `work` (a task that takes a while), `ask` (which wants input), `fail`,
`login`, `data`.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from a2a.helpers import new_data_part, new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Role
from starlette.applications import Starlette


class WordyAgent(AgentExecutor):
    """The agent itself."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.go_on = asyncio.Event()
        """What a task that works waits for."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = context.get_user_input()
        self.heard.append(text)
        word, _, rest = text.partition(" ")
        if word == "say":
            await event_queue.enqueue_event(
                new_text_message(f"you said: {rest}", context_id=context.context_id, role=Role.ROLE_AGENT)
            )
            return
        if context.current_task is None:
            assert context.message is not None
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        assert context.task_id is not None
        assert context.context_id is not None
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        note = task.new_agent_message([new_text_part(f"about {rest}")])
        if word == "work":
            await task.start_work()
            await self.go_on.wait()
            await task.add_artifact([new_text_part(f"worked on {rest}"), new_data_part({"done": True})])
            await task.complete()
        elif word == "ask":
            await task.requires_input(note)
        elif word == "login":
            await task.requires_auth(note)
        elif word == "fail":
            await task.failed(note)
        else:
            await task.add_artifact([new_text_part(f"{word} {rest}".strip())])
            await task.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


@asynccontextmanager
async def agent_server(agent: WordyAgent, version: str) -> AsyncIterator[str]:
    """The URL of the agent, which speaks this version of the protocol."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    card = AgentCard(
        name="Wordy",
        description="Says things.",
        version="1.0.0",
        supported_interfaces=[AgentInterface(url=f"{url}/rpc", protocol_binding="JSONRPC", protocol_version=version)],
        capabilities=AgentCapabilities(),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="say", name="Say", description="Says it.", tags=["words"])],
    )
    handler = DefaultRequestHandlerV2(agent_executor=agent, task_store=InMemoryTaskStore(), agent_card=card)
    routes = [
        *create_agent_card_routes(card),
        *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=version.startswith("0.")),
    ]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="critical", lifespan="off"))
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        async with asyncio.timeout(30):
            while not server.started:
                await asyncio.sleep(0.01)
        yield url
    finally:
        agent.go_on.set()
        server.should_exit = True
        async with asyncio.timeout(30):
            await serving
        listener.close()
