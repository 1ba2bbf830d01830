"""The vocabulary: tasks, samples, leases, events, errors, ids, time. Imports nothing else of Headgate.

Each name is loaded when it is first asked for: an error alone does not wait for a hundred kinds of events.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
