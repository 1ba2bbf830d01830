"""The parts of the placement benchmark: a real Ray cluster of several nodes, and traces in virtual time."""

from headgate.bench.placement.cycles import Cycles, cycles
from headgate.bench.placement.parameters import PlacementParameters
from headgate.bench.placement.plain_ray import PlainRay, plain_ray
from headgate.bench.placement.replayed import Replayed, replayed
from headgate.bench.placement.site import Site, site
from headgate.bench.placement.starts import starts
from headgate.bench.placement.stops import Stops, stops

__all__ = [
    "Cycles",
    "PlacementParameters",
    "PlainRay",
    "Replayed",
    "Site",
    "Stops",
    "cycles",
    "plain_ray",
    "replayed",
    "site",
    "starts",
    "stops",
]
