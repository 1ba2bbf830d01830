"""Rules of other systems, exactly, with their defaults; the pool carries them out as it does our own."""

from headgate.elastic.replay.rivals.fixed import Fixed
from headgate.elastic.replay.rivals.knative import Knative
from headgate.elastic.replay.rivals.seed import Seed
from headgate.elastic.replay.rivals.serve import Serve

__all__ = ["Fixed", "Knative", "Seed", "Serve"]
