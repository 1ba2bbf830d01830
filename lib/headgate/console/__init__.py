"""The console: one web page for operators on runs, job queues, elastic pools, placement and the store."""

from headgate.core import names_by_stub

__getattr__, __dir__, __all__ = names_by_stub(__name__, __file__)
