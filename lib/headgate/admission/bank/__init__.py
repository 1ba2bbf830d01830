"""The slot bank: what a process holds of a limit that processes share, decided without input and output."""

from headgate.admission.bank.bank import SlotBank, fair_shares, split_slots
from headgate.admission.bank.terms import (
    BankCall,
    BankRules,
    LeaseBlock,
    LimitSeen,
    LookAtLimit,
    Outage,
    Peer,
    RenewBlock,
    ReturnBlock,
)

__all__ = [
    "BankCall",
    "BankRules",
    "LeaseBlock",
    "LimitSeen",
    "LookAtLimit",
    "Outage",
    "Peer",
    "RenewBlock",
    "ReturnBlock",
    "SlotBank",
    "fair_shares",
    "split_slots",
]
