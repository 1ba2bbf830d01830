"""Files of seed 003 and jobs: generates jobs from submissions, reads and writes its files, compares results."""

from headgate.jobqueue.generator.exchange import (
    Taken,
    all_jobs,
    contents_of,
    put_into,
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
from headgate.jobqueue.generator.names import team_slug
from headgate.jobqueue.generator.reading import parsed_json, read_json
from headgate.jobqueue.generator.remote import QueueServer, contents_of_server, send
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
from headgate.jobqueue.generator.seed_jobs import imported_jobs, jobs_document, jobs_of
from headgate.jobqueue.generator.seed_resources import resources_document, resources_of, seed_documents
from headgate.jobqueue.generator.selection import (
    DEFAULT_TOP,
    ChosenTeam,
    chosen_submissions,
    chosen_teams,
)
from headgate.jobqueue.generator.servers import servers_document, servers_of
from headgate.jobqueue.generator.submissions import Submission, Track, read_submissions, submission_of
from headgate.jobqueue.generator.writing import json_bytes, write_files

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
    "QueueServer",
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
    "parsed_json",
    "put_into",
    "read_instances",
    "read_json",
    "read_submissions",
    "resources_document",
    "resources_of",
    "seed_documents",
    "send",
    "servers_document",
    "servers_of",
    "submission_of",
    "team_slug",
    "unserved_jobs",
    "write_files",
]
