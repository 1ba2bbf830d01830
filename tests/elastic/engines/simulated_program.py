"""What stands for the programs of vLLM and SGLang: takes their flags, and is the simulated engine that they ask for."""

import asyncio
import itertools
import os
import sys

from headgate.simulation.engines import EnginePlan, run_engine


def main(api: str, arguments: list[str]) -> None:
    """Serve what a command line asks for."""
    value = dict(itertools.pairwise(arguments))
    plan = EnginePlan(
        api=api,  # type: ignore[arg-type]
        model=value["--served-model-name"],
        slots=int(value["--max-num-seqs" if api == "vllm" else "--max-running-requests"]),
        has_memory_saver="--enable-memory-saver" in arguments,
        has_weights_backup="--enable-weights-cpu-backup" in arguments,
        has_sleep_mode="--enable-sleep-mode" in arguments,
        has_dev_mode=os.environ.get("VLLM_SERVER_DEV_MODE") == "1",
    )
    asyncio.run(run_engine(plan, host=value["--host"], port=int(value["--port"])))


if __name__ == "__main__":
    main("vllm", sys.argv[1:])
