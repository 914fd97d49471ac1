"""A collector on loopback that takes spans by OTLP over HTTP and keeps them."""

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.loopback import Asked, Said, site


class Collector:
    """The spans that arrived, and what they came with."""

    def __init__(self) -> None:
        self.url = ""
        self.paths: set[str] = set()
        self.headers: dict[str, str] = {}
        self.spans: list[Any] = []
        self.service = ""

    async def take(self, asked: Asked) -> Said:
        body = gzip.decompress(asked.body) if asked.headers.get("content-encoding") == "gzip" else asked.body
        message = ExportTraceServiceRequest.FromString(body)
        self.paths.add(asked.path)
        self.headers = asked.headers
        for resource in message.resource_spans:
            self.service = next(one.value.string_value for one in resource.resource.attributes if one.key == "service.name")
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        return Said(200, b"", {"content-type": "application/x-protobuf"})


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    async with site(made.take) as server:
        made.url = f"http://127.0.0.1:{server.port}"
        yield made
