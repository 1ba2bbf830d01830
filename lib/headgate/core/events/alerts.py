"""What somebody who does not look is to be told of a run: its scores drop, an endpoint is another, nothing moves."""

from __future__ import annotations

from logging import WARNING

from headgate.core.events.event import Event


class ScoreDropped(Event, log_level=WARNING):
    """A model scores worse than it did; it is followed on from its new level.

    `environment` is empty for all of them together. `low` and `high` are a 95 % interval of `after` less `before`;
    `since` is in seconds since the epoch.
    """

    model: str
    environment: str
    before: float
    after: float
    low: float
    high: float
    since: float
    samples: int


class EndpointDrifted(Event, log_level=WARNING):
    """Another model answers than did, by the model name and the `system_fingerprint` in the answers."""

    model: str
    before: str
    after: str


class RunStalled(Event, log_level=WARNING):
    """Nothing was accepted for long although samples are due and none of their models is paused; told once."""

    campaign: str
    idle_s: float
    due: int
    reason: str


class RunMoved(Event):
    """A run that had stalled accepts samples again."""

    campaign: str
    stalled_for_s: float


class JobDied(Event, log_level=WARNING):
    """A job of the queue has failed too often, and is not tried again unless it is put back."""

    job_id: str
    team: str
    task: str
    attempts: int
    error: str
