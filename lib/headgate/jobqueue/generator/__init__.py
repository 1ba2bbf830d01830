"""Files of jobs and policy servers: jobs from submissions, the legacy protocol's files, comparison of results."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
