"""The dialects, by the name that the setting model.provider has for them."""

from toolgate.llm.anthropic_messages import AnthropicMessages
from toolgate.llm.completion import Dialect
from toolgate.llm.openai_chat import OpenAIChat

DIALECTS: dict[str, Dialect] = {"openai": OpenAIChat(), "anthropic": AnthropicMessages()}
