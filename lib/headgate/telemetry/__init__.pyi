from .backlog import BackgroundSink as BackgroundSink
from .views import status_document as status_document
from .fields import (
    counted as counted,
    duration as duration,
    event_name as event_name,
    json_safe as json_safe,
    printable as printable,
    safe_text as safe_text,
)
from .jsonl import JsonlSink as JsonlSink
from .log import LogSink as LogSink
from .log_setup import setup_logging as setup_logging
from .metrics import METRICS as METRICS
from .notices import Notice as Notice, Notices as Notices, Send as Send
from .notices import senders_of as senders_of
from .monitor import (
    MonitorServer as MonitorServer,
    Questions as Questions,
    Steered as Steered,
    monitor_app as monitor_app,
    serve_monitor as serve_monitor,
)
from .monitor_client import MonitorClient as MonitorClient
from .otel import OtelSink as OtelSink, has_collector as has_collector, otel_sink as otel_sink
from .perfetto import convert_events as convert_events
from .prometheus import (
    PrometheusSink as PrometheusSink,
    RequestCollector as RequestCollector,
    new_registry as new_registry,
    register_losses as register_losses,
)
from .stream import EventStream as EventStream, Handler as Handler, Recorded as Recorded, Sink as Sink
