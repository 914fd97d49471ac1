"""Sends spans to a collector by OTLP over HTTP, in a thread of OpenTelemetry's own. The standard variables
OTEL_EXPORTER_OTLP_* hold; a setting names the collector before them."""

import os

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from toolgate.threads import to_thread
from toolgate.version import VERSION

CLOSE_MILLISECONDS = 5_000


class SpanExport:
    """The way of an App's spans to a collector. It is no provider of the whole program, which may have its own."""

    def __init__(self, url: str | None) -> None:
        """`url`: of the collector; None: the variables name it."""
        exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces") if url is not None else OTLPSpanExporter()
        named = Resource.create({"service.name": "toolgate", "service.version": VERSION})  # OTEL_SERVICE_NAME wins below
        if "OTEL_SERVICE_NAME" in os.environ:
            named = named.merge(Resource({"service.name": os.environ["OTEL_SERVICE_NAME"]}))
        self.provider = TracerProvider(resource=named, shutdown_on_exit=False)
        self._processor = BatchSpanProcessor(exporter)
        self.provider.add_span_processor(self._processor)

    async def close(self) -> None:
        """Sends what is left, for as long as that may take."""
        await to_thread(self._processor.force_flush, CLOSE_MILLISECONDS)
        await to_thread(self.provider.shutdown)
