from .backlog import BackgroundSink as BackgroundSink
from .views import status_document as status_document
from .fields import (
    duration as duration,
    event_fields as event_fields,
    event_name as event_name,
    json_safe as json_safe,
    printable as printable,
    safe_text as safe_text,
)
from .jsonl import JsonlSink as JsonlSink
from .log import LogSink as LogSink, key_values as key_values
from .log_setup import setup_logging as setup_logging
from .metrics import METRICS as METRICS, SPECS as SPECS
from .monitor import (
    DEFAULT_PORT as DEFAULT_PORT,
    MonitorServer as MonitorServer,
    Progress as Progress,
    Questions as Questions,
    monitor_app as monitor_app,
    serve_monitor as serve_monitor,
)
from .otel import OtelSink as OtelSink, has_collector as has_collector, otel_sink as otel_sink
from .perfetto import TraceSummary as TraceSummary, convert_events as convert_events
from .prometheus import (
    PrometheusSink as PrometheusSink,
    RequestCollector as RequestCollector,
    StatusCollector as StatusCollector,
    new_registry as new_registry,
    register_losses as register_losses,
)
from .stream import (
    EventStream as EventStream,
    Handler as Handler,
    LossySink as LossySink,
    Recorded as Recorded,
    Sink as Sink,
)
