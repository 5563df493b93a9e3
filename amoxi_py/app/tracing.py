"""Sends spans where OpenTelemetry's own variables say, when the SDK is installed and nobody else has set it up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

log = logging.getLogger("amoxi_py.app")

_LAST_MOMENTS_MS = 3000
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def start_tracing(app_name: str, environ: Mapping[str, str]) -> Callable[[], None]:
    """Begin to send spans when an endpoint is named; return what sends those that are still kept, and blocks.

    The SDK reads its variables itself (`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_TRACES_SAMPLER`, ...); the service is named
    as the app, unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` name it.
    """
    wanted = any(environ.get(name, "").strip() for name in _ENDPOINTS)
    if not wanted or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return _nothing
    from opentelemetry import trace

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return _nothing  # the app has set it up in its own way, or this is a second life
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        log.warning("no spans are sent, because %r is not installed: pip install 'amoxi-py[otel]'", error.name)
        return _nothing
    resource = Resource.create({"service.name": app_name}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return lambda: None if provider.force_flush(_LAST_MOMENTS_MS) else log.warning("some spans could not be sent")


def _nothing() -> None:
    return None
