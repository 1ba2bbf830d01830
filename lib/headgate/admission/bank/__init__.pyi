from .bank import SlotBank as SlotBank, fair_shares as fair_shares, split_slots as split_slots
from .terms import (
    BankCall as BankCall,
    BankRules as BankRules,
    LeaseBlock as LeaseBlock,
    LimitSeen as LimitSeen,
    LookAtLimit as LookAtLimit,
    Outage as Outage,
    Peer as Peer,
    RenewBlock as RenewBlock,
    ReturnBlock as ReturnBlock,
)
