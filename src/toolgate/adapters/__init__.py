"""Adapters: the tools of an App, or of a Toolgate server, as the tools of an agent framework; and an App inside FastAPI.

    from toolgate.adapters import langchain
    agent = create_agent(model, tools=await langchain.tools(app, actor=ann), checkpointer=…)

There is a module for each framework, which needs that framework alone: `langchain`, `pydantic_ai`, `openai_agents`,
`claude_agent`, `fastapi`. Every call goes through `invoke`, as the actor that the tools were made for; a model chooses
arguments and nothing else. Where a call needs a person, the run of the framework is paused by the framework's own means.
"""
