"""A task of inspect_ai's own, run by it: `python -m tests.storage.inspect_task FOLDER` leaves its log in the folder."""

from __future__ import annotations

import sys
from typing import Any

from inspect_ai import Task
from inspect_ai import eval as run_task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver


@solver
def answers() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if state.sample_id == "broken":
            raise ConnectionError("HTTP 503: no instances available for key sk-abcdefgh12345678")
        return await generate(state)

    return solve


@scorer(metrics=[mean()])
def graded() -> Scorer:
    grades: dict[str, Any] = {"right": "C", "partly": "P", "number": 0.25, "ten": 7, "parts": {"a": 1.0}, "odd": "good"}

    async def score(state: TaskState, _target: Target) -> Score:
        return Score(value=grades[str(state.sample_id)], explanation="graded\nby rule")

    return score


def main(folder: str) -> None:
    """Run the task, each sample twice."""
    answer = ModelOutput.from_content("mockllm/model", "4")
    answer.usage = ModelUsage(input_tokens=5, output_tokens=2, total_tokens=10, input_tokens_cache_read=3)
    names = ("right", "partly", "number", "broken", "ten", "parts", "odd")
    task = Task(
        name="adding",
        dataset=MemoryDataset([Sample(id=name, input="2 + 2?", target="4") for name in names]),
        solver=answers(),
        scorer=graded(),
    )
    model = get_model("mockllm/model", custom_outputs=[answer] * 20)
    run_task(task, model=model, epochs=2, log_dir=folder, display="none", fail_on_error=False)


if __name__ == "__main__":
    main(sys.argv[1])
