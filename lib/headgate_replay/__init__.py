"""Traces through Headgate's decision makers in virtual time, beside the rules of other systems and what nobody beats.

`headgate_replay.placement` replays jobs through the placement ledger, `headgate_replay.elastic` requests through the
elastic pool. In both a trace is read, played under each policy of a comparison, and measured; the same input gives the
same figures on every machine.
"""

__all__: list[str] = []
