"""Elastic: inference workers that wake, drain and sleep with the load, behind one queue.

`headgate.elastic.service` runs a pool, `headgate.elastic.engines` has the adapters of its workers, and
`headgate.elastic.gateway` is the OpenAI-compatible API in front of it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
