"""The one event stream and its sinks: log, JSON lines, Prometheus, memory; and the monitoring API."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
