"""What a collection is: many environments of one package, found by a prefix and made when they are named."""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

from headgate.environments.protocol import Environment

COLLECTION_GROUP: Final = "headgate.environment_collections"
"""Entry-point group; the name is the prefix, a value is a callable without arguments that returns a `Collection`."""


@runtime_checkable
class Collection(Protocol):
    """The environments of one package: `prefix:member`. None is sampled unless somebody names it.

    Making a collection is cheap and imports nothing of its package; everything else may take seconds. Its environments
    run apart, in processes of their own (`headgate.environments.apart`): they may block, and what they raise, leak or
    crash harms nobody else.
    """

    @property
    def prefix(self) -> str:
        """What stands before the colon in the names of its environments."""
        ...

    @property
    def summary(self) -> str:
        """One line for listings."""
        ...

    @property
    def extra(self) -> str:
        """The optional extra that carries its package."""
        ...

    def names(self) -> tuple[str, ...]:
        """Return the names of its environments, prefix included, sorted: all that can be known without being told.

        Raises:
            MissingExtraError: if its package is not installed.
            EnvironmentFailedError: if its package cannot be used on this machine; says how to fix it.
        """
        ...

    def environment(self, name: str) -> Environment:
        """Make the environment `name`, prefix included, which need not be one of `names()`.

        Raises:
            UnknownEnvironmentError: if there is none; names the nearest.
            MissingExtraError: if a package is not installed.
            EnvironmentFailedError: if it cannot be made; says how to fix it.
        """
        ...
