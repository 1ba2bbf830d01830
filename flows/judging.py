"""A fixed matrix of models and environments whose answers another model judges."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows import parameters as p
from headgate import orchestration


@flow(name="evaluate-with-judge", flow_run_name="judge {campaign}: {instances} instances")
async def evaluate_with_judge(  # noqa: PLR0917 - the fields of a form
    instances: p.Instances = 10,
    judge: p.Block = "",
    judge_model: str = "",
    judgements: p.Judgements | None = None,
    rubric: p.Block = "",
    environments: list[p.Name] = [],  # noqa: B006 - the form shows it; never changed
    models: list[p.Name] = [],  # noqa: B006
    roster: p.Block = "",
    store: p.Block = "",
    limits: p.Block = "",
    reports: p.Block = "",
    campaign: p.Name = "judged",
    workers: p.Workers | None = None,
    settings: p.Settings = {},  # noqa: B006
    *,
    repeats: p.Repeats | None = None,
) -> dict[str, Any]:
    """Sample every model in every environment that needs a judge, each task once, and have a judge score the answers.

    Stored samples are not taken again. A cancelled run starts no new sample and has the answers so far judged; the
    next run samples the rest.

    Args:
        instances: Tasks per model and environment, numbered 0 to n-1.
        judge: Name of the judge's Model Endpoint block. Empty: the worker's HEADGATE_JUDGE_URL.
        judge_model: Name of the judge at its endpoint. Empty: the block's served name, else HEADGATE_JUDGE_MODEL.
        judgements: How often each answer is judged; together they make the score. Empty: as the settings say (1).
        rubric: Name of a Judge Rubric block to judge by, in all environments. Empty: the environments' own rubrics.
        environments: Environments to run. Empty: all installed ones that need a judge.
        models: Models of the roster, by name or name@revision. Empty: all of them.
        roster: Name of a Model Roster block. Empty: the worker's HEADGATE_ROSTER, else its OPENAI_BASE_URL.
        store: Name of a Sample Store block. Empty: the worker's HEADGATE_STORE, else the folder .headgate/samples.
        limits: Name of an Admission Limits block. Empty: no limit shared by several runs.
        reports: Name of a Report Store block that keeps the run's trace, for Perfetto. Empty: no trace.
        campaign: Name that the samples are counted under; a new name runs everything again.
        workers: Maximum number of rollouts in progress. Empty: as the settings say (20).
        settings: Other settings by name, e.g. {"max_unjudged": 500}.
        repeats: Samples per task, each with its own seed, for pass@k and maj@k. Empty: as the settings say (1).

    Returns:
        Counts of samples taken, scored, stored, without a verdict, and left for the next run.
    """
    sampling = orchestration.SamplingOrder.of(locals(), judge="")
    return await orchestration.run_judging(
        sampling, instances, judge=judge, judge_model=judge_model, judgements=judgements, rubric=rubric
    )
