"""A fixed matrix whose answers another model judges."""

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
    """Have a judge read what every model answers in every environment that needs one, each task once.

    Stored samples are not taken again. A cancelled run starts no new sample and has the answers so far judged; the
    next run takes the rest again.

    Args:
        instances: Tasks per model and environment: those with the numbers 0 to n-1.
        judge: Name of a Model Endpoint block that the judge is behind. Empty: HEADGATE_JUDGE_URL of the worker.
        judge_model: The judge, as its endpoint calls it. Empty: the block's served name, else HEADGATE_JUDGE_MODEL.
        judgements: How often each answer is judged; the score is made of all of them. Empty: the setting, 1.
        rubric: Name of a Judge Rubric block to judge by, in any environment. Empty: the environments' own.
        environments: What to run. Empty: everything that is installed and needs a judge.
        models: Models of the roster by name, or by name@revision. Empty: all of them.
        roster: Name of a Model Roster block. Empty: HEADGATE_ROSTER of the worker, else its OPENAI_BASE_URL.
        store: Name of a Sample Store block. Empty: HEADGATE_STORE of the worker, else the folder .headgate/samples.
        limits: Name of an Admission Limits block. Empty: nothing bounds the requests of several runs together.
        reports: Name of a Report Store block that keeps the trace of the run, for Perfetto. Empty: no trace is made.
        campaign: What the samples are counted under; another name runs everything anew.
        workers: Maximum number of rollouts in progress. Empty: the setting, 20.
        settings: Any further setting by its name, e.g. {"max_unjudged": 500}.
        repeats: Samples of each task, with another seed each, for pass@k and maj@k. Empty: the setting, 1.

    Returns:
        Counts of samples taken, scored, stored, without a verdict, and left to the next run.
    """
    sampling = orchestration.SamplingOrder.of(locals(), judge="")
    return await orchestration.run_judging(
        sampling, instances, judge=judge, judge_model=judge_model, judgements=judgements, rubric=rubric
    )
