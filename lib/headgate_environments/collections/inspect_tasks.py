"""`inspect:<package>/<task>` and `inspect:<file>.py@<task>`: tasks of inspect_ai, with their solvers and scorers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from headgate.core.errors import EnvironmentFailedError, HeadgateError
from headgate.environments import EnvironmentSpec, ForJudge, Score
from headgate_environments.collections.members import member_of, required, unknown
from headgate_environments.collections.resumed import MAX_ROUNDS, REPLY_CHARS, Ask, AskedEnvironment, GradedEnvironment

PREFIX: Final = "inspect"
_FEATURE: Final = "collection 'inspect'"
_GRADERS: Final = ("inspect_ai/model_graded_qa", "inspect_ai/model_graded_fact")
_UNREADABLE: Final = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


class InspectTasks:
    """The samples of one inspect task. Its solver runs as under inspect, with a `generate` that asks our model."""

    def __init__(self, name: str, task: Any) -> None:
        self._name = name
        self._task = task
        self._scorer = _scorer_of(task)

    async def play(self, index: int, ask: Ask) -> Score | ForJudge:
        """Run the task's solver on sample `index`, then its first scorer; if that is a grader, return its question.

        Raises:
            EnvironmentFailedError: if the scorer does not return a number.
        """
        sample = deepcopy(self._task.dataset[index])
        sample.id = index if sample.id is None else sample.id
        async with _models().begun(self._name, sample, has_sandbox=bool(_sandboxes(self._task, [sample]))):
            return await self._played(sample, index, ask)

    async def _played(self, sample: Any, index: int, ask: Ask) -> Score | ForJudge:
        models = _models()
        model, asked = models.asking_model(ask)
        state = self._state(sample, index)

        async def generate(current: Any, tool_calls: Any = "loop", **further: Any) -> Any:
            further.pop("cache", None)
            config = _required("model").GenerateConfig(**further)
            return await _required("_eval.task.generate").task_generate(model, current, tool_calls, False, config)

        try:
            for solver in filter(None, (self._task.setup, self._task.solver)):
                state = await solver(state, generate)
        except models.RoundsOverError:
            state.output = asked.output
        _required("solver._task_state").set_sample_state(state)
        models.grader_only()
        try:
            return await self._scored(state)
        except models.GraderAskedError as judge:
            return ForJudge((judge.question,))

    def target(self, index: int) -> str:
        """Return the first target of sample `index`; if it has choices, in the form that `multiple_choice` expects."""
        sample = self._task.dataset[index]
        target = sample.target if isinstance(sample.target, str) else next(iter(sample.target), "")
        return f"ANSWER: {target}" if sample.choices else target

    def _state(self, sample: Any, index: int) -> Any:
        states = _required("solver._task_state")
        state = states.TaskState(
            model=_required("model").ModelName("headgate/model"),
            sample_id=sample.id,
            epoch=1,
            input=sample.input,
            messages=_required("_eval.task.util").sample_messages(sample),
            target=_required("scorer").Target(sample.target),
            metadata=sample.metadata or {},
        )
        state.choices = _draws().DrawnChoices(sample.choices or [], index)
        states.set_sample_state(state)
        return state

    async def _scored(self, state: Any) -> Score:
        try:
            given = await self._scorer(state, state.target)
        except _UNREADABLE as error:  # else a model could void its sample with a reply that the scorer cannot parse
            return Score(0.0, success=False, why=f"the scorer cannot read the reply: {type(error).__name__}")
        value = None if given is None else given.value
        if isinstance(value, list | dict) or value is None:
            raise EnvironmentFailedError(f"the scorer of {self._name!r} gives {value!r:.80}, not one value")
        number = _required("scorer").value_to_float()(value)
        if math.isnan(number):
            raise EnvironmentFailedError(f"the scorer of {self._name!r} could not score the sample")
        clamped = min(1.0, max(0.0, number))
        # Some scorers return the whole reply, which is no answer to vote on.
        answer = given.answer if isinstance(given.answer, str) and given.answer != state.output.completion else None
        why = f"inspect's scorer gives {value!r:.80}"
        return Score(clamped, success=clamped >= 1.0, why=why, answer=answer)


class InspectCollection:
    """Tasks of installed packages that extend inspect, and tasks in files."""

    prefix = PREFIX
    summary = "Tasks written for inspect_ai, by package/task or path/to/file.py@task"
    extra = "inspect"

    def names(self) -> tuple[str, ...]:
        """Return the names of the tasks that installed packages register with inspect, sorted."""
        _required("_util.entrypoints").ensure_entry_points()
        registry = _required("_util.registry")
        tasks = registry.registry_find(lambda info: info.type == "task" and "/" in info.name)
        return tuple(sorted(f"{PREFIX}:{registry.registry_info(task).name}" for task in tasks))

    def environment(self, name: str) -> AskedEnvironment:
        """Make the environment `name` and load its data."""
        task = self._task(name, member_of(name, PREFIX))
        _check(name, task)
        made = GradedEnvironment if _grader_of(task) else AskedEnvironment
        return made(_spec(name, task), InspectTasks(name, task))

    def _task(self, name: str, member: str) -> Any:
        loader = _required("_eval.loader")
        path, at, _ = member.partition("@")
        if at and not Path(path).is_file():
            raise unknown(name, (), why=f"there is no file {path!r} in {str(Path.cwd())!r}")
        if not at and _required("_util.registry").registry_lookup("task", member) is None:
            raise unknown(name, self.names())
        try:
            with _draws().same_draws():
                return loader.load_task_spec(member)[0]
        except (LookupError, _required("_util.error").PrerequisiteError) as error:
            raise unknown(name, (), why=str(error)) from error
        except Exception as error:
            raise _cannot_be_made(name, error) from error


def inspect_tasks() -> InspectCollection:
    """Return the collection `inspect`."""
    return InspectCollection()


def _spec(name: str, task: Any) -> EnvironmentSpec:
    return EnvironmentSpec(
        name=name,
        summary=f"The inspect task {task.name}: {len(task.dataset)} samples, its own solver and first scorer",
        daily_rate=100.0,
        data_length=len(task.dataset),
        max_rounds=MAX_ROUNDS,
        timeout_s=float(task.time_limit or 600.0),
        reply_chars=REPLY_CHARS,
        licence="that of its package",
        source=f"inspect task {name.partition(':')[2]}",
        solver_rate=0.0,
        needs_judge=bool(_grader_of(task)),
        runs_programs=bool(_sandboxes(task, task.dataset)),
    )


def _check(name: str, task: Any) -> None:
    """Refuse a task that a text episode with one model cannot play."""
    info = _required("_util.registry").registry_info
    grader = _grader_of(task)
    if any("model_graded" in info(scorer).name for scorer in task.scorer or ()) and not grader:
        raise EnvironmentFailedError(
            f"environment {name!r} asks a grader model in a way that no judge of a run can be asked",
            next_step="Give the task model_graded_qa or model_graded_fact first, without a grade_pattern.",
        )
    if others := sorted(_sandboxes(task, task.dataset) - {"local"}):
        raise EnvironmentFailedError(
            f"environment {name!r} needs containers (the sandbox {others[0]!r}), which Headgate does not start",
            next_step="Run it with `inspect eval`, and bring its log in by `headgate import`.",
        )
    if not task.scorer:
        raise EnvironmentFailedError(f"environment {name!r} has no scorer", next_step="Give the task a scorer.")
    if not len(task.dataset):
        raise EnvironmentFailedError(f"environment {name!r} has no samples", next_step="Give the task a dataset.")


def _sandboxes(task: Any, samples: Iterable[Any]) -> set[str]:
    """Return the kinds of sandboxes that the samples need."""
    needed = (task.sandbox, *(sample.sandbox for sample in samples))
    return {str(one.type) for one in needed if one is not None}


def _grader_of(task: Any) -> str:
    """Return the name of the task's scorer if it asks a grader for the score; empty if it scores by rules."""
    registry = _required("_util.registry")
    first = next(iter(task.scorer or ()), None)
    name = str(registry.registry_info(first).name) if first is not None else ""
    return name if name in _GRADERS and not registry.registry_params(first).get("grade_pattern") else ""


def _scorer_of(task: Any) -> Any:
    """Return the first scorer, without the grader that the task names: the run names the judge."""
    registry, first = _required("_util.registry"), next(iter(task.scorer))
    given = registry.registry_params(first)
    if not (grader := _grader_of(task)) or given.get("model") is None:
        return first
    kept = {name: value for name, value in given.items() if name not in ("model", "reducer")}
    return getattr(_required("scorer"), grader.rpartition("/")[2])(**kept)


def _required(module: str) -> Any:
    return required(f"inspect_ai.{module}", _FEATURE, "inspect")


def _models() -> Any:
    return required("headgate_environments.collections.inspect_model", _FEATURE, "inspect")


def _draws() -> Any:
    return required("headgate_environments.collections.inspect_draws", _FEATURE, "inspect")


def _cannot_be_made(name: str, error: Exception) -> HeadgateError:
    if isinstance(error, HeadgateError):
        return error
    return EnvironmentFailedError(
        f"environment {name!r} cannot be made: {type(error).__name__}: {error}",
        next_step="Fix the task; `inspect list tasks` shows what inspect finds.",
    )
