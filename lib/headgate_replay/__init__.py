"""Traces replayed through Headgate's schedulers in virtual time, compared with other systems' rules and with bounds.

`headgate_replay.placement` replays jobs through the placement ledger, `headgate_replay.elastic` requests through the
elastic pool. Both read a trace, replay it under each policy of a comparison, and measure the results; the same input
gives the same figures on every machine.
"""

__all__: list[str] = []
