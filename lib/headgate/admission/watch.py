"""Whose pressure is another one than before: told once, to who watches."""

from __future__ import annotations

from headgate.admission.accounts import Account, KeyState, Provider
from headgate.admission.items import PressureChanged, PressureReason
from headgate.admission.telling import Effects


class PressureWatch:
    """Compares the pressure on keys with what was told of it last. Pure; owned by the controller.

    That a provider has no slot left is told on each of its models, of which there may be hundreds. So it is told once
    somebody has had to wait for one, until one stays free, and not whenever the last one is taken and given back.
    """

    __slots__ = ("_effects", "is_on")

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self.is_on = False

    def note(self, account: Account, now: float) -> None:
        """Tell what a decision about an account changed; on a whole provider if it is short of slots or no more so."""
        provider = account.provider
        if provider.is_short is not _is_short(provider):
            self.note_provider(provider, now)
            return
        for key in account.keys.values():
            self.note_key(key, now)

    def note_provider(self, provider: Provider, now: float) -> None:
        """Tell what changed on any key of a provider."""
        provider.is_short = _is_short(provider)
        for account in provider.accounts.values():
            for key in account.keys.values():
                self.note_key(key, now)

    def note_key(self, key: KeyState, now: float) -> None:
        """Tell if the pressure on a key has changed."""
        pressure = key.pressure(now)
        if pressure is not None and pressure.reason is PressureReason.NO_SLOTS and not key.account.provider.is_short:
            pressure = None
        if pressure != key.told:
            key.told = pressure
            self._effects.pending.append(PressureChanged(key.key, pressure))

    def forget(self, account: Account) -> None:
        """Tell that nothing presses on keys that are no more."""
        for key in account.keys.values():
            if key.told is not None:
                self._effects.pending.append(PressureChanged(key.key, None))


def _is_short(provider: Provider) -> bool:
    return provider.is_full and (provider.is_short or provider.waiters.ready > 0)
