"""The job queue: hands (team, task, instance) jobs and policy servers to workers that Headgate does not start.

Evaluation code imports `headgate.jobqueue.worker`; `server`, `generator`, `policy` and `stores` have front doors of
their own. Modules load on first use: a worker on a cluster node needs neither the server nor a database driver.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
