"""Files of jobs and policy servers: jobs from submissions, the legacy protocol's files, comparison of results."""

from headgate.jobqueue.generator.exchange import (
    Taken,
    all_jobs,
    contents_of,
    contents_of_server,
    put_into,
    send,
    unserved_jobs,
)
from headgate.jobqueue.generator.generation import (
    Generation,
    HasResult,
    PlannedJob,
    Reason,
    Rules,
    Skipped,
    generated,
)
from headgate.jobqueue.generator.instances import INSTANCE_SUFFIX, Instance, Instances, read_instances
from headgate.jobqueue.generator.json_files import json_bytes, parsed_json, read_json, write_files
from headgate.jobqueue.generator.legacy_jobs import imported_jobs, jobs_document, jobs_of
from headgate.jobqueue.generator.legacy_resources import legacy_documents, resources_document, resources_of
from headgate.jobqueue.generator.problems import team_slug
from headgate.jobqueue.generator.results import (
    COLUMNS,
    ComparedTask,
    Evaluation,
    EvaluationOf,
    ResultFolder,
    as_csv,
    compared,
    evaluations_of_jobs,
)
from headgate.jobqueue.generator.servers import servers_document, servers_of
from headgate.jobqueue.generator.submissions import (
    DEFAULT_TOP,
    ChosenTeam,
    Submission,
    Track,
    chosen_submissions,
    chosen_teams,
    read_submissions,
    submission_of,
)

__all__ = [
    "COLUMNS",
    "DEFAULT_TOP",
    "INSTANCE_SUFFIX",
    "ChosenTeam",
    "ComparedTask",
    "Evaluation",
    "EvaluationOf",
    "Generation",
    "HasResult",
    "Instance",
    "Instances",
    "PlannedJob",
    "Reason",
    "ResultFolder",
    "Rules",
    "Skipped",
    "Submission",
    "Taken",
    "Track",
    "all_jobs",
    "as_csv",
    "chosen_submissions",
    "chosen_teams",
    "compared",
    "contents_of",
    "contents_of_server",
    "evaluations_of_jobs",
    "generated",
    "imported_jobs",
    "jobs_document",
    "jobs_of",
    "json_bytes",
    "legacy_documents",
    "parsed_json",
    "put_into",
    "read_instances",
    "read_json",
    "read_submissions",
    "resources_document",
    "resources_of",
    "send",
    "servers_document",
    "servers_of",
    "submission_of",
    "team_slug",
    "unserved_jobs",
    "write_files",
]
