"""`/metrics` of a fake engine, in the words of SGLang and of vLLM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from headgate.simulation.engines.core import EngineCore

_STATES: Final = ("awake", "weights_offloaded", "discard_all")


def exposition(core: EngineCore) -> web.Response:
    """Return the metrics of an engine as Prometheus reads them."""
    registry = CollectorRegistry()
    registry.register(_Collector(core))
    return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


class _Collector(Collector):
    def __init__(self, core: EngineCore) -> None:
        self._core = core

    def collect(self) -> Iterator[Metric]:
        """Yield the families of the API that the engine speaks."""
        return _sglang(self._core) if self._core.plan.api == "sglang" else _vllm(self._core)


def _sglang(core: EngineCore) -> Iterator[Metric]:
    labels = {"engine_type": "unified", "model_name": core.plan.model, "pp_rank": "0", "tp_rank": "0"}
    usage = core.used_tokens / core.plan.token_room
    gauges = {
        "num_running_reqs": core.running_count,
        "num_queue_reqs": len(core.waiting),
        "num_used_tokens": core.used_tokens,
        "token_usage": usage,
        "utilization": core.running_count / core.plan.slots,
        "gen_throughput": throughput(core),
        "cache_hit_rate": 0.0,
        "num_paused_reqs": len(core.running) if core.is_frozen else 0,
        "num_retracted_reqs": core.counts["retracted"],
    }
    for name, value in gauges.items():
        yield _gauge(f"sglang:{name}", labels, value)
    for name, key in (("prompt_tokens", "prompt_tokens"), ("generation_tokens", "tokens"), ("num_requests", "ended")):
        yield _counter(f"sglang:{name}", labels, core.counts[key])


def _vllm(core: EngineCore) -> Iterator[Metric]:
    labels = {"engine": "0", "model_name": core.plan.model}
    yield _gauge("vllm:num_requests_running", labels, core.running_count)
    yield _gauge("vllm:num_requests_waiting", labels, len(core.waiting))
    reasons = GaugeMetricFamily("vllm:num_requests_waiting_by_reason", "waiting", labels=[*labels, "reason"])
    reasons.add_metric([*labels.values(), "capacity"], len(core.waiting))
    reasons.add_metric([*labels.values(), "deferred"], 0)
    yield reasons
    yield _gauge("vllm:kv_cache_usage_perc", labels, core.used_tokens / core.plan.token_room)
    cache = {"engine": "0", "block_size": "1", "num_gpu_blocks": str(core.plan.token_room)}
    yield _gauge("vllm:cache_config_info", cache, 1)
    asleep = "discard_all" if core.memory.are_weights_lost else "weights_offloaded"
    now = asleep if core.memory.released else "awake"
    sleep = GaugeMetricFamily("vllm:engine_sleep_state", "sleep state", labels=[*labels, "sleep_state"])
    for state in _STATES:
        sleep.add_metric([*labels.values(), state], float(state == now))
    yield sleep
    yield _counter("vllm:num_preemptions", labels, core.counts["retracted"])
    yield _counter("vllm:prompt_tokens", labels, core.counts["prompt_tokens"])
    yield _counter("vllm:generation_tokens", labels, core.counts["tokens"])
    success = CounterMetricFamily("vllm:request_success", "ended", labels=[*labels, "finished_reason"])
    for reason in ("stop", "length", "abort"):
        success.add_metric([*labels.values(), reason], core.counts[reason])
    yield success


def throughput(core: EngineCore) -> float:
    """Return generated tokens per second, as the plan has them."""
    return len(core.running) / core.plan.token_s if core.plan.token_s else 0.0


def _gauge(name: str, labels: Mapping[str, str], value: float) -> Metric:
    family = GaugeMetricFamily(name, name, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _counter(name: str, labels: Mapping[str, str], value: float) -> Metric:
    family = CounterMetricFamily(name, name, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family
