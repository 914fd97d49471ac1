"""Makes the metrics and spans of an App, if they are wanted. Off, nothing of them is even imported."""

import os
from typing import TYPE_CHECKING

from toolgate.extras import require

if TYPE_CHECKING:
    from toolgate.app.assembly import Parts
    from toolgate.gates.ledger.otlp import SpanExport
    from toolgate.gates.ledger.telemetry import CallMetrics

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def make_metrics(parts: "Parts") -> "CallMetrics | None":
    """Counts calls, and shows the health of tools beside them."""
    if not parts.settings.metrics:
        return None
    require("telemetry")
    from toolgate.gates.ledger.telemetry import CallMetrics

    made = CallMetrics()
    parts.hooks.add(made)
    made.registry.register(parts.health)
    return made


def make_tracing(parts: "Parts") -> "SpanExport | None":
    """Makes spans; gives the way by which they go out, if Toolgate sends them itself."""
    settings = parts.settings
    if not (settings.tracing or settings.otlp_url):
        return None
    require("telemetry")
    from toolgate.gates.ledger.telemetry import Tracing

    export = None
    if settings.otlp_url is not None or any(name in os.environ for name in ENDPOINT_VARIABLES):
        from toolgate.gates.ledger.otlp import SpanExport

        export = SpanExport(settings.otlp_url)
    parts.hooks.add(Tracing(None if export is None else export.provider))
    return export
