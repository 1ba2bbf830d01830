"""What SGLang tells of itself: loads, server, model."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from headgate.simulation.engines.core import EngineCore
from headgate.simulation.engines.metrics import throughput
from headgate.simulation.engines.plan import EnginePlan

VERSION: Final = "0.5.23"
ALL: Final = frozenset(("all",))
SECTIONS: Final = ALL | {"core", "memory", "spec", "lora", "disagg", "queues"}


def loads(core: EngineCore, include: frozenset[str]) -> dict[str, Any]:
    """Return the body of `/v1/loads`: one entry for each data-parallel rank, of which there is one here."""
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "version": VERSION,
        "accelerator": None,
        "num_accelerators": 1,
        "loads": [_rank(core, include)],
    }


def loads_as_text(core: EngineCore, include: frozenset[str]) -> str:
    """Return the same as Prometheus reads it; numbers of the core section only."""
    numbers = _rank(core, include & {"core"})
    rank = numbers.pop("dp_rank")
    return "".join(
        f'# TYPE sglang_{name} gauge\nsglang_{name}{{dp_rank="{rank}"}} {value}\n' for name, value in numbers.items()
    )


def server_info(plan: EnginePlan, random_seed: int) -> dict[str, Any]:
    """Return the body of `/server_info`."""
    state = {"effective_max_running_requests_per_dp": plan.slots, "memory_usage": _memory_gb(plan)}
    return {
        "model_path": plan.model,
        "served_model_name": plan.model,
        "enable_memory_saver": plan.has_memory_saver,
        "enable_weights_cpu_backup": plan.has_weights_backup,
        "enable_metrics": plan.has_metrics,
        "max_running_requests": plan.slots,
        "max_total_num_tokens": plan.token_room,
        "random_seed": random_seed,
        "tp_size": 1,
        "dp_size": 1,
        "status": "ready",
        "internal_states": [state],
        "version": VERSION,
    }


def model_info(plan: EnginePlan) -> dict[str, Any]:
    """Return the body of `/model_info`."""
    return {
        "model_path": plan.model,
        "tokenizer_path": plan.model,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
    }


def models(plan: EnginePlan) -> dict[str, Any]:
    """Return the body of `/v1/models`."""
    card = {"id": plan.model, "object": "model", "created": 0, "owned_by": "sglang", "root": plan.model}
    return {"object": "list", "data": [{**card, "max_model_len": plan.token_room}]}


def _rank(core: EngineCore, include: frozenset[str]) -> dict[str, Any]:
    waiting_tokens = sum(request.tokens for request in core.waiting.values())
    rank: dict[str, Any] = {
        "dp_rank": 0,
        "num_running_reqs": core.running_count,
        "num_waiting_reqs": len(core.waiting),
        "num_waiting_uncached_tokens": waiting_tokens,
        "num_used_tokens": core.used_tokens,
        "num_total_tokens": core.used_tokens + waiting_tokens,
        "max_total_num_tokens": core.plan.token_room,
        "max_running_requests": core.plan.slots,
        "token_usage": round(core.used_tokens / core.plan.token_room, 4),
        "gen_throughput": throughput(core),
        "cache_hit_rate": 0.0,
        "utilization": round(core.running_count / core.plan.slots, 4),
    }
    if include & {"all", "memory"}:
        rank["memory"] = _memory_gb(core.plan)
    if include & {"all", "queues"}:
        paused = len(core.running) if core.is_frozen else 0
        rank["queues"] = {"waiting": len(core.waiting), "grammar": 0, "paused": paused, "retracted": 0}
    return rank


def _memory_gb(plan: EnginePlan) -> dict[str, float]:
    """Return what was allocated at the start; a release does not change it (as in SGLang)."""
    return {"weight_gb": 16.0, "kv_cache_gb": 8.0, "graph_gb": 0.5, "token_capacity": plan.token_room}
