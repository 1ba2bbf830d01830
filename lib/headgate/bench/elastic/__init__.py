"""The parts of the elastic benchmark: the ramp, public traces, and short loads, all in virtual time."""

from headgate.bench.elastic.charts import charts_of
from headgate.bench.elastic.parameters import STARTS, ElasticParameters
from headgate.bench.elastic.probing import Probes, probes
from headgate.bench.elastic.replaying import Played, ramps, traces

__all__ = [
    "STARTS",
    "ElasticParameters",
    "Played",
    "Probes",
    "charts_of",
    "probes",
    "ramps",
    "traces",
]
