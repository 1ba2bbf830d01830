"""Placement: GPU work with priorities on Ray placement groups, preempting when it must.

    from headgate.placement import amounts, connect

    with connect() as placement:
        pool = placement.pool("rlhf", quota=amounts(cpu=6, gpu=2))
        work = pool.submit(Training, resources=amounts(cpu=2, gpu=1), priority=9, labels={"role": "train"})
        print(work.result())

Names are loaded when they are first asked for: rules and checks need no Ray, and what needs it says so where it is
missing. Some parts are offered as modules, too: `roles` (a small training), `schedulemesh` (the front of an older
system), `cluster` (the ledger on Ray), and those that hold the values and rules which a replay of the ledger needs.
"""

from headgate.core import names_by_stub

# At once and not when asked for: the function has the name of its module, which any import of that would put here.
from headgate.placement.amounts import amounts as amounts

__getattr__, __dir__, __all__ = names_by_stub(__name__, __file__)
