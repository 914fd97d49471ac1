"""Makes the parts of an App that ask language models: the prompts, and the client of the model."""

from typing import TYPE_CHECKING

from toolgate.agent.prompt import Prompts
from toolgate.agent.prompt_files import PromptFiles
from toolgate.app.tool_directory import make_directory
from toolgate.llm.json_answers import JsonFinder
from toolgate.llm.models import LanguageModels
from toolgate.model import Actor, Entry, Tool
from toolgate.services.tool_directory import ToolDirectory

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts


def make_prompts(parts: "Parts") -> tuple[PromptFiles, Prompts]:
    """The prompts of models, and the files that they are made of."""

    async def listed(permitted: tuple[Tool, ...], actor: Actor) -> list[Entry]:
        served = await parts.served.choose(permitted, actor.tenant)
        return parts.served.compiled(served.tools, actor)

    files = PromptFiles(parts.settings.agent.prompts, parts.project.refusal)
    prompts = Prompts(
        files,
        permitted=parts.permitted.tools,
        listed=listed,
        behaviours=parts.behaviours.current,
        hooks=parts.hooks,
        timezones=parts.timezones,
        clock=parts.now,
    )
    parts.providers.everywhere[ToolDirectory] = make_directory(parts, prompts)
    return files, prompts


def make_models(parts: "Parts") -> LanguageModels:
    """The language model that tools ask."""
    models = LanguageModels(parts.settings.model, parts.http, parts.secrets)
    parts.providers.everywhere.update({LanguageModels: models, JsonFinder: JsonFinder()})
    return models
