"""The job queue: hands (team, task, instance) jobs and policy servers to workers that Headgate does not start.

Its parts are offered as modules and loaded one by one: a worker on a cluster's node needs neither the server nor a
database's driver. `headgate.jobqueue.worker` is what evaluation code imports; `server`, `generator`, `policy` and
`stores` have front doors of their own; the others hold the values and rules that all of them share.
"""

__all__ = [
    "desk",
    "errors",
    "generator",
    "job",
    "ledger",
    "names",
    "outcomes",
    "policy",
    "port",
    "resource",
    "server",
    "stores",
    "wire",
    "worker",
]
