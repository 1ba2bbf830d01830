"""Whose pressure is another one than before: told once, to who watches."""

from __future__ import annotations

from headgate.admission.accounts import Account, KeyState, Provider
from headgate.admission.items import PressureChanged
from headgate.admission.telling import Effects


class PressureWatch:
    """Compares the pressure on keys with what was told of it last. Pure; owned by the controller."""

    __slots__ = ("_effects", "is_on")

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self.is_on = False

    def note(self, account: Account, now: float) -> None:
        """Tell what a decision changed: on the keys of its account, or of its provider where that became full or free."""
        provider = account.provider
        if provider.is_full is not provider.was_full:
            self.note_provider(provider, now)
            return
        for key in account.keys.values():
            self.note_key(key, now)

    def note_provider(self, provider: Provider, now: float) -> None:
        """Tell what changed on any key of a provider."""
        provider.was_full = provider.is_full
        for account in provider.accounts.values():
            for key in account.keys.values():
                self.note_key(key, now)

    def note_key(self, key: KeyState, now: float) -> None:
        """Tell if the pressure on a key has changed."""
        pressure = key.pressure(now)
        if pressure != key.told:
            key.told = pressure
            self._effects.pending.append(PressureChanged(key.key, pressure))

    def forget(self, account: Account) -> None:
        """Tell that nothing presses on keys that are no more."""
        for key in account.keys.values():
            if key.told is not None:
                self._effects.pending.append(PressureChanged(key.key, None))
