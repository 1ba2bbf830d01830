"""Placement: GPU work with priorities on Ray placement groups, preempting when it must.

    from headgate.placement import amounts, connect

    with connect() as placement:
        pool = placement.pool("rlhf", quota=amounts(cpu=6, gpu=2))
        work = pool.submit(Training, resources=amounts(cpu=2, gpu=1), priority=9, labels={"role": "train"})
        print(work.result())

Names are loaded on first use: rules and checks need no Ray, and names that do need it say so where it is missing. Some
parts are also exported as modules: `roles` (a small training), `schedulemesh` (the API of an older system), `cluster`
(the ledger on Ray), and those with the values and rules that a replay of the ledger needs.
"""

from headgate.core import names_by_stub

# Imported eagerly: the function has the name of its module, and importing the module would bind that name here instead.
from headgate.placement.amounts import amounts as amounts

__getattr__, __dir__, __all__ = names_by_stub(__name__, __file__)
