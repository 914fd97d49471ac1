"""The tools that are workflows: those that Toolgate knows, and those of the settings, which win where names are the same."""

from collections.abc import Container, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from toolgate.errors import DefinitionError
from toolgate.model import Auth, Cost, Entry, Retry
from toolgate.model.catalog_entry import Validator
from toolgate.pipeline.context import InvokeContext
from toolgate.pipeline.gate_order import GateVerdict
from toolgate.pipeline.hooks import Hook
from toolgate.registry.catalog import ToolProblem
from toolgate.registry.compile import DefinitionRules, compile_entry, definition
from toolgate.registry.compiled_schema import compile_schema
from toolgate.settings import N8nSettings, WorkflowSettings
from toolgate.workflow.client import not_configured
from toolgate.workflow.standard import STANDARD, StandardWorkflow

KIND = "workflow"
SETUP_URL = "https://docs.n8n.io/integrations/builtin/credentials/webhook/"
STANDARD_RETRY = Retry(max_attempts=3, backoff_ms=1_000, codes=("CONNECTION_ERROR",))
"""Only what did not reach n8n is sent again: a mail must not go out twice."""


class Webhook(NamedTuple):
    """A tool that is a workflow, as its runner knows it."""

    path: str
    runs_async: bool = False
    limit_seconds: float = 0.0
    """The time after which a workflow that is not waited for counts as timed out."""
    check_output: Validator | None = None
    """Of what it reports at its end."""
    gives_way: bool = False
    """True of a workflow that nobody asked for and no server runs: a tool of somebody's own may take its name."""


def output_fault(entry: Entry | None, output: Any) -> str | None:
    """Tells what is wrong with what a workflow reported at its end; None: nothing, or nobody knows any more."""
    webhook = None if entry is None else entry.implementation
    check = webhook.check_output if isinstance(webhook, Webhook) else None
    if check is None or check.is_valid(output):
        return None
    return "The workflow reported something else than its output_schema says."


class WorkflowSource:
    """Gives the tools that are workflows."""

    name = KIND

    def __init__(
        self,
        n8n: N8nSettings,
        workflows: Mapping[str, WorkflowSettings],
        rules: DefinitionRules,
        taken: Container[str] = (),
    ) -> None:
        """`taken`: names of tools that are there already."""
        self._taken = taken
        self._n8n = n8n
        self._workflows = workflows
        self._rules = rules

    def load(self) -> Iterable[Entry | ToolProblem]:
        """The entries of all workflows, and what is wrong with those of the settings."""
        for known in STANDARD:
            if known.name not in self._workflows and known.name not in self._taken:
                yield self._entry(_standard_fields(known), Webhook(known.webhook_path, gives_way=self._n8n.base_url is None))
        yield from self._of_settings()

    def _of_settings(self) -> Iterator[Entry | ToolProblem]:
        for name, said in self._workflows.items():
            webhook = Webhook(said.webhook_path, said.waits_for_callback, said.timeout)
            try:
                yield self._entry(_fields(name, said, self._n8n), webhook, said.output_schema)
            except DefinitionError as error:
                yield ToolProblem(f"setting workflows.{name}", str(error))

    def _entry(self, fields: dict[str, Any], webhook: Webhook, reports: dict[str, Any] | None = None) -> Entry:
        secret = Auth(type="custom", config_key=self._n8n.webhook_secret, setup_url=SETUP_URL)
        tool = definition({**fields, "kind": KIND, "source": "workflow", "requires_auth": secret})
        hooks = (NotConfigured(),) if self._n8n.base_url is None else ()
        # An approval does not hold for another webhook, or for another server.
        place = repr((self._n8n.base_url, webhook))
        if webhook.runs_async and reports is not None:
            webhook = webhook._replace(check_output=compile_schema(tool, "output_schema", reports).check)
        entry = compile_entry(tool, webhook, hooks, self._rules)
        bound = sha256((entry.fingerprint + place).encode()).hexdigest()
        return msgspec.structs.replace(entry, fingerprint=bound)


class NotConfigured(Hook):
    """Ends a call of a workflow before a person is asked about it, where there is no n8n server."""

    def will_check_consent(self, ctx: InvokeContext) -> None:
        error = not_configured()
        ctx.abort(str(error), error.code)

    def explain(self, _ctx: InvokeContext) -> GateVerdict:
        return GateVerdict("n8n", "deny", not_configured().message)


def _standard_fields(known: StandardWorkflow) -> dict[str, Any]:
    own = {
        "name": known.name,
        "description": known.description,
        "tier": "external_api",
        "cost": known.cost,
        "timeout": known.timeout,
        "retry": STANDARD_RETRY,
        "requires_permission": known.requires_permission,
    }
    return {**own, **known.fields}


def _fields(name: str, said: WorkflowSettings, n8n: N8nSettings) -> dict[str, Any]:
    retry = said.retry
    return {
        "name": name,
        "description": said.description,
        "category": "service",
        "tier": said.tier,
        "input_schema": said.input_schema,
        "output_schema": STARTED_SCHEMA if said.waits_for_callback else said.output_schema,
        "cost": Cost(model="usage_based", fixed=said.cost) if said.cost else Cost(model="free"),
        "timeout": n8n.start_seconds if said.waits_for_callback else said.timeout,
        "requires_permission": said.requires_permission,
        "retry": None
        if retry is None
        else Retry(
            max_attempts=retry.max_attempts,
            backoff_ms=retry.initial_delay_ms,
            multiplier=retry.backoff_multiplier,
            max_delay_ms=retry.max_delay_ms,
            codes=retry.retryable_errors,
        ),
    }


STARTED_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"invocationId": {"type": "string"}, "status": {"type": "string"}},
    "required": ["invocationId", "status"],
}
"""The schema of what a workflow that is not waited for gives at once."""
