"""The two dialects: OpenAI's chat completions, which most servers speak, and Anthropic's messages."""

from collections.abc import Sequence
from typing import Any, ClassVar

from toolgate.llm.completion import Completion, Dialect, Ending, Malformed, Message, asked, counted, field
from toolgate.settings.model import BASE_URLS, ModelChoice

ANTHROPIC_VERSION = "2023-06-01"


class OpenAIChat:
    """`POST {base_url}/chat/completions`."""

    path = "/chat/completions"
    endings: ClassVar[dict[str, Ending]] = {"length": "truncated", "content_filter": "refused"}

    def headers(self, key: str | None) -> dict[str, str]:
        return {} if key is None else {"Authorization": f"Bearer {key}"}

    def body(self, choice: ModelChoice, messages: Sequence[Message]) -> dict[str, Any]:
        # OpenAI's own models refuse max_tokens; most other servers know no other name.
        limit = "max_completion_tokens" if choice.address == BASE_URLS["openai"] else "max_tokens"
        body: dict[str, Any] = {
            "model": choice.name,
            "messages": [{"role": message.role, "content": message.text} for message in messages],
            limit: choice.max_tokens,
        }
        return body if choice.temperature is None else {**body, "temperature": choice.temperature}

    def read(self, answer: Any, messages: Sequence[Message]) -> Completion:
        choices = field(answer, "choices", list)
        if not choices:
            raise Malformed("choices is empty")
        message = field(choices[0], "message", dict)
        text, refusal = message.get("content"), message.get("refusal")
        if not isinstance(text, str | None):
            raise Malformed("content is no text")
        ending = self.endings.get(str(choices[0].get("finish_reason")), "complete")
        usage = answer.get("usage")
        return Completion(
            text=text or "",
            ending="refused" if isinstance(refusal, str) and refusal else ending,
            input_tokens=counted(usage, "prompt_tokens", asked(messages)),
            output_tokens=counted(usage, "completion_tokens", text or ""),
        )


class AnthropicMessages:
    """`POST {base_url}/v1/messages`."""

    path = "/v1/messages"
    endings: ClassVar[dict[str, Ending]] = {
        "max_tokens": "truncated",
        "model_context_window_exceeded": "truncated",
        "refusal": "refused",
    }

    def headers(self, key: str | None) -> dict[str, str]:
        version = {"anthropic-version": ANTHROPIC_VERSION}
        return version if key is None else {"x-api-key": key, **version}

    def body(self, choice: ModelChoice, messages: Sequence[Message]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": choice.name,
            "max_tokens": choice.max_tokens,
            "messages": [
                {"role": message.role, "content": message.text} for message in messages if message.role != "system"
            ],
        }
        system = "\n\n".join(message.text for message in messages if message.role == "system")
        if system:
            body["system"] = system
        return body if choice.temperature is None else {**body, "temperature": choice.temperature}

    def read(self, answer: Any, messages: Sequence[Message]) -> Completion:
        blocks = [block for block in field(answer, "content", list) if isinstance(block, dict)]
        text = "".join(field(block, "text", str) for block in blocks if block.get("type") == "text")
        usage = answer.get("usage")
        read = counted(usage, "input_tokens", asked(messages))
        if isinstance(usage, dict):  # what went through the cache is counted apart
            cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
            read += sum(counted(usage, name, "") for name in cached)
        return Completion(
            text=text,
            ending=self.endings.get(str(answer.get("stop_reason")), "complete"),
            input_tokens=read,
            output_tokens=counted(usage, "output_tokens", text),
        )


DIALECTS: dict[str, Dialect] = {"openai": OpenAIChat(), "anthropic": AnthropicMessages()}
