"""The vocabulary: tasks, samples, leases, events, errors, ids, time. Imports nothing else of Headgate.

Each name is loaded on first use: importing an error does not load a hundred kinds of events.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
