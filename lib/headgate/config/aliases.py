"""The environment variables that a setting is read from."""

from __future__ import annotations

from pydantic import AliasChoices


def affine_names(name: str, *others: str) -> AliasChoices:
    """Return the names of a setting of Affine's runner: `HEADGATE_X`, then `AFFINE_X`, then its bare name."""
    bare = (name, *others)
    return AliasChoices(*(prefix + n for prefix in ("HEADGATE_", "AFFINE_", "") for n in bare))


def own_and_affine_names(own: str, *affine: str) -> AliasChoices:
    """Return the names of a setting of Affine's runner that has a name of our own: that first, then the others."""
    return AliasChoices("HEADGATE_" + own, *affine_names(*affine).choices)


def own_name(name: str) -> AliasChoices:
    """Return the one name of a setting of our own."""
    return AliasChoices("HEADGATE_" + name)
