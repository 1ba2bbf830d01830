"""The job queue: generate jobs, collect results until no job is left, requeue dead jobs."""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows import parameters as p
from headgate import orchestration
from headgate.jobqueue.generator import Rules


@flow(name="generate-jobs", flow_run_name="generate jobs from {submissions_dir}")
async def generate_jobs(
    submissions_dir: p.Path = "challenge_submissions",
    test_instances_dir: p.Path = "test_instances",
    resources_raw_file: p.Path = "resources-raw.json",
    results_dir: str = "",
    top: p.Top = 5,
    all_tasks_teams: list[p.Name] = [],  # noqa: B006 - the form shows it; never changed
    unserved_too: bool = False,
    legacy_groups: bool = False,
    jobqueue: p.Block = "",
    send: bool = True,
    output_dir: str = "",
    dry_run: bool = False,
) -> dict[str, Any]:
    """Generate a job for each team, task and test instance that has no result, and send them to a job queue.

    Jobs already in the queue stay as they are, so a run can be repeated.

    Args:
        submissions_dir: Folder of submissions, on the worker.
        test_instances_dir: Folder of test instances, one folder per task.
        resources_raw_file: File of each team's policy servers, by team slug.
        results_dir: Folder of results; instances that have one are skipped. Empty: none are.
        top: Number of submissions evaluated in each track.
        all_tasks_teams: Teams, by slug, that are evaluated also on tasks without a score.
        unserved_too: Also generate jobs that none of the team's policy servers takes yet.
        legacy_groups: Bind each job to a group of equal servers, as in the files of a legacy-protocol server.
        jobqueue: Name of a Job Queue Server block. Empty: the worker's HEADGATE_JOBQUEUE_URL.
        send: Send jobs and policy servers to the job queue.
        output_dir: Folder for jobs.json and resources.json. Empty: no files are written.
        dry_run: Report what would be generated; send and write nothing.

    Returns:
        Counts of jobs generated, skipped, new in the queue, and waiting for a policy server.
    """
    return await orchestration.run_generation(
        Rules(top, frozenset(all_tasks_teams), legacy_groups=legacy_groups, unserved_too=unserved_too),
        submissions_dir=submissions_dir,
        instances_dir=test_instances_dir,
        resources_file=resources_raw_file,
        results_dir=results_dir,
        jobqueue=jobqueue,
        is_sent=send,
        output_dir=output_dir,
        is_dry=dry_run,
    )


@flow(name="drain-jobqueue", flow_run_name="drain job queue, campaign {campaign}")
async def drain_jobqueue(
    jobqueue: p.Block = "",
    store: p.Block = "",
    campaign: p.Name = "jobqueue",
    score_field: p.Name = "q_score",
    hours: p.Hours | None = None,
    poll_s: p.Seconds = 5.0,
    workers: p.LocalWorkers = 0,
    command: list[str] = [],  # noqa: B006 - the form shows it; never changed
    reserve: p.Reserve = "ask",
    fail_on_dead: bool = True,
    results_dir: str = "",
    settings: p.Settings = {},  # noqa: B006
) -> dict[str, Any]:
    """Collect the results of a job queue as samples until no job is pending or in progress.

    Each result is stored once; however a run ends, the next one continues. A cancelled run stores what it has, and its
    own workers return their jobs to the queue.

    Args:
        jobqueue: Name of a Job Queue Server block. Empty: the worker's HEADGATE_JOBQUEUE_URL.
        store: Name of a Sample Store block. Empty: the worker's HEADGATE_STORE, else the folder .headgate/samples.
        campaign: Name that the samples are counted under; a new name stores everything again.
        score_field: Field of a result that holds its score, in [0, 1]; dots lead into nested objects.
        hours: End after this many hours even if jobs remain. Empty: when no job is pending or in progress.
        poll_s: Seconds between two requests to the queue.
        workers: Number of jobs that this run works on at a time. 0: none; others do the work, such as a SLURM array.
        command: Command that its workers run for each job, e.g. ["headgate", "jobqueue", "evaluate"].
        reserve: When that command gets its policy server, if the job needs one.
        fail_on_dead: Dead jobs make the run Failed.
        results_dir: Folder of results, TEAM/metrics/TASK_NUMBER.json, for jobs completed without one. Empty: none.
        settings: Other settings by name, e.g. {"batch_size": 100}.

    Returns:
        Counts of jobs done, dead and left, and of samples stored.
    """
    return await orchestration.run_drain(
        jobqueue=jobqueue,
        store=store,
        campaign=campaign,
        score_field=score_field,
        duration_s=None if hours is None else hours * 3_600.0,
        poll_s=poll_s,
        workers=workers,
        command=command,
        reserve=reserve,
        fail_on_dead=fail_on_dead,
        results_dir=results_dir,
        settings=settings,
    )


@flow(name="requeue-dead-jobs", flow_run_name="requeue dead jobs")
async def requeue_dead_jobs(
    jobqueue: p.Block = "", team: str = "", task: str = "", error_contains: str = "", dry_run: bool = False
) -> dict[str, Any]:
    """Requeue dead jobs with a full set of attempts: all that failed, or those of a team, a task or an error.

    Args:
        jobqueue: Name of a Job Queue Server block. Empty: the worker's HEADGATE_JOBQUEUE_URL.
        team: Only jobs of this team. Empty: all teams.
        task: Only jobs of this task. Empty: all tasks.
        error_contains: Only jobs whose last error contains this text. Empty: all that were not withdrawn.
        dry_run: List the jobs and leave them dead.

    Returns:
        Number of matching jobs, and the ids of those requeued.
    """
    return await orchestration.run_requeueing(
        jobqueue=jobqueue, team=team, task=task, error_contains=error_contains, is_dry=dry_run
    )
