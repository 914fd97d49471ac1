"""The rooms of the line, as `app` hands them to it. They stand above the pipeline, which knows of them what a call needs."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from toolgate.pipeline.context import Providers
from toolgate.pipeline.hooks import HookSet
from toolgate.pipeline.outcome import Ending

if TYPE_CHECKING:
    from toolgate.coordination.notices import Notices
    from toolgate.gates.approval.consent import Consent
    from toolgate.gates.approval.continuation import Continuations
    from toolgate.gates.cache import ResultCache
    from toolgate.gates.idempotency import Idempotency
    from toolgate.gates.inputs import Inputs
    from toolgate.gates.ledger.audit import Ledger
    from toolgate.gates.outputs import Outputs
    from toolgate.gates.policy.gate import PolicyGate
    from toolgate.gates.quota.budget import Budgets, SpendingLimits
    from toolgate.gates.quota.concurrency import Concurrency, Running
    from toolgate.gates.quota.rate import Rates
    from toolgate.gates.redaction import Redaction
    from toolgate.gates.screening.tiers import TierRules
    from toolgate.gates.secrets import Secrets
    from toolgate.registry.catalog import Catalog
    from toolgate.runners.execution import Execution


class Rooms(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One field for each gate, and what the line needs besides."""

    running: "Running"
    notices: "Notices"
    refresh: Callable[[], Awaitable[None]]
    providers: Providers
    hooks: HookSet
    catalog: "Catalog"
    policy: "PolicyGate"
    inputs: "Inputs"
    screening: "TierRules"
    idempotency: "Idempotency"
    continuations: "Continuations"
    consent: "Consent"
    spending: "SpendingLimits"
    rates: "Rates"
    budgets: "Budgets"
    concurrency: "Concurrency"
    redaction: "Redaction"
    cache: "ResultCache"
    secrets: "Secrets"
    execution: "Execution"
    outputs: "Outputs"
    ledger: "Ledger"
    ending: Ending
