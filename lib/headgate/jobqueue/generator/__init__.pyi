from .exchange import (
    Taken as Taken,
    all_jobs as all_jobs,
    contents_of as contents_of,
    contents_of_server as contents_of_server,
    put_into as put_into,
    send as send,
    unserved_jobs as unserved_jobs,
)
from .generation import (
    Generation as Generation,
    HasResult as HasResult,
    Reason as Reason,
    Rules as Rules,
    Skipped as Skipped,
    generated as generated,
    generated_from as generated_from,
)
from .json_files import (
    json_bytes as json_bytes,
    parsed_json as parsed_json,
    read_json as read_json,
    team_slug as team_slug,
    write_files as write_files,
)
from .legacy_files import (
    imported_jobs as imported_jobs,
    jobs_document as jobs_document,
    legacy_documents as legacy_documents,
    resources_of as resources_of,
)
from .results import (
    COLUMNS as COLUMNS,
    ComparedTask as ComparedTask,
    Evaluation as Evaluation,
    EvaluationOf as EvaluationOf,
    ResultFolder as ResultFolder,
    as_csv as as_csv,
    compared as compared,
    evaluations_of_jobs as evaluations_of_jobs,
)
from .legacy_files import servers_document as servers_document, servers_of as servers_of
from .submissions import (
    DEFAULT_TOP as DEFAULT_TOP,
    ChosenTeam as ChosenTeam,
    Instance as Instance,
    Instances as Instances,
    Submission as Submission,
    Track as Track,
    chosen_submissions as chosen_submissions,
    chosen_teams as chosen_teams,
    read_instances as read_instances,
    read_submissions as read_submissions,
    submission_of as submission_of,
)
