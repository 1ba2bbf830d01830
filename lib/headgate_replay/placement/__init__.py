"""Job traces replayed through the placement ledger in virtual time, compared with other policies and with bounds."""

from headgate.core import names_by_stub

__getattr__, __dir__, __all__ = names_by_stub(__name__, __file__)
