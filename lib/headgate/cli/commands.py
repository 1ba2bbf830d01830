"""Every command of `headgate`, with its module and its one-line help; a module is loaded when it is called."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Final

from headgate.core import entry_points_of

GROUP: Final = "headgate.commands"
"""Entry points of this group add commands: `name = "module:function"`, the module's first line being its help.

A name of two words, such as `elastic replay`, is a command of a group."""

TOPICS: Final = (
    ("", "Evaluate models", "run rank judge arena follow submit demo"),
    ("", "Prepare", "doctor plan models environments config"),
    ("", "Watch and steer", "console why controls pause resume set retry withdraw drain undo audit"),
    ("", "Results", "leaderboard summary report query export"),
    ("", "Stored samples", "import invalidate rescore forget compact verify repair"),
    ("", "Machines and services", "limits jobqueue placement elastic serve-model serve-baselines serve-prefect"),
    ("", "Measure", "bench trace"),
    ("jobqueue", "Serve and work", "serve token work reserve policy-server evaluate"),
    ("jobqueue", "Jobs", "add status jobs show dead requeue withdraw"),
    ("jobqueue", "Policy servers", "resources drain open remove"),
    ("jobqueue", "Challenges and files", "generate results collect import export"),
)
"""Topics in the help of a group of commands ("" is `headgate` itself), in this order: group, title, commands."""

GROUPS: Final = {
    "config": "Show and check settings.",
    "submit": "Send an evaluation to a cluster, as a chain that resumes itself.",
    "limits": "Show and change the limits on requests in flight that Prefect keeps.",
    "jobqueue": "Serve jobs and policy servers to outside workers, and work on them.",
    "jobqueue token": "Create, list, rotate and revoke the tokens of a queue.",
    "placement": "Run work on a Ray cluster by priority, preempting what is less important.",
    "elastic": "Run inference engines as a pool that wakes and sleeps with its load.",
}
"""Name of a group of commands -> its help; a group within another one comes after it."""

COMMANDS: Final = {
    "run": ("run:run", "Sample the roster's models in every environment until stopped."),
    "rank": ("run:rank", "Rank the roster's models on the same tasks, and stop sampling each one once it is ranked."),
    "judge": ("judge:judge", "Sample environments whose answers another model judges."),
    "follow": ("follow:follow", "Evaluate the checkpoints of a training as they appear."),
    "arena": ("arena:arena", "Have a judge compare answers in pairs, and rate the models."),
    "plan": ("plan:plan", "Compare the demanded samples with what workers and endpoints can do."),
    "models": ("models:models", "Check the roster and list its models."),
    "environments": ("environments:environments", "List the environments that are installed, or try one."),
    "query": ("data:query", "Query the stored samples in SQL."),
    "summary": ("data:summary", "Show counts, means and intervals per model and environment."),
    "leaderboard": (
        "leaderboard:leaderboard",
        "Compare models: means with intervals by task, ranks, paired differences, pass@k and maj@k.",
    ),
    "report": ("data:report", "Write a self-contained HTML report of the stored samples."),
    "export": ("data:export", "Write stored samples as JSON lines or in the formats of other tools."),
    "import": ("data:import_", "Store samples from a file that another tool wrote."),
    "invalidate": ("corrections:invalidate", "Exclude stored samples from every count, or include them again."),
    "rescore": ("corrections:rescore", "Score stored conversations again, without asking their models."),
    "forget": ("corrections:forget", "Delete stored samples, or only their conversations."),
    "compact": ("data:compact", "Merge small parts of the store into large ones."),
    "verify": ("data:verify", "Read every stored object and compare it with its checksum."),
    "repair": ("data:repair_", "Recover a damaged journal, or another database of Headgate."),
    "console": ("console_server:console", "Serve the console: watch and steer everything that runs, in a browser."),
    "pause": ("steer:pause", "Pause a model, an environment, or the whole run, until it is resumed."),
    "resume": ("steer:resume", "Resume what was paused."),
    "set": ("steer:set_", "Change a rate, a cap, a budget or the workers while a campaign runs."),
    "retry": ("steer:retry", "End error pauses and cooldowns now."),
    "withdraw": ("steer:withdraw", "Withdraw queued samples."),
    "drain": ("steer:drain", "Finish the samples in progress, then stop the run."),
    "undo": ("steer:undo", "Undo a change of pause, resume or set."),
    "controls": ("steer:controls", "Show what is paused or set, and who changed what."),
    "trace": ("trace:trace", "Turn a file of events into a trace that Perfetto opens."),
    "why": ("why:why", "Say which gate holds a task, why, and until when."),
    "audit": ("audit:audit", "Show who changed what, and when."),
    "doctor": ("doctor:doctor", "Check what a campaign needs on this machine."),
    "serve-baselines": ("servers:serve_baselines", "Serve the baseline agents as an OpenAI-compatible endpoint."),
    "serve-model": ("servers:serve_model", "Serve a language model with llama.cpp."),
    "serve-prefect": ("servers:serve_prefect", "Serve Prefect's API and UI on this machine."),
    "demo": ("demo:demo", "Sample a few models from end to end on this machine."),
    "config show": ("config:show", "Show every setting with its value and where it came from."),
    "config check": ("config:check", "Check settings, roster, environments and rates without running anything."),
    "submit slurm": ("submit.slurm:slurm", "Send an evaluation to SLURM as a chain of tasks."),
    "submit kubernetes": ("submit.kubernetes:kubernetes", "Send an evaluation to Kubernetes as a Job."),
    "limits show": ("limits:show", "Show limits, the slots that are taken, and who holds them."),
    "limits apply": ("limits:apply", "Create or change the limits of a block or file."),
    "limits set": ("limits:set_", "Change a limit while it is in use."),
    "limits audit": ("limits:audit", "Compare the slots that limits count with those that are held."),
    "jobqueue serve": ("jobqueue.serve:serve", "Serve a job queue to outside workers."),
    "jobqueue add": ("jobqueue.work:add", "Add commands to a queue as jobs."),
    "jobqueue work": ("jobqueue.work:work", "Work on a queue's jobs: run commands, or take samples."),
    "jobqueue reserve": ("jobqueue.work:reserve", "Within a job's command: wait for its policy server and print it."),
    "jobqueue status": ("jobqueue.jobs:status", "Show jobs by state, by team and task, and policy servers."),
    "jobqueue jobs": ("jobqueue.jobs:jobs", "List jobs."),
    "jobqueue show": ("jobqueue.jobs:show", "Show one job and its history."),
    "jobqueue dead": ("jobqueue.jobs:dead", "List dead jobs with their last error."),
    "jobqueue requeue": ("jobqueue.jobs:requeue", "Let workers try dead jobs again."),
    "jobqueue withdraw": ("jobqueue.jobs:withdraw", "Make jobs dead; workers that run them stop."),
    "jobqueue resources": ("jobqueue.jobs:resources", "List the policy servers."),
    "jobqueue drain": ("jobqueue.jobs:drain", "Stop assigning a policy server; let its job finish."),
    "jobqueue open": ("jobqueue.jobs:open_", "Assign a policy server again."),
    "jobqueue remove": ("jobqueue.jobs:remove", "Remove a policy server."),
    "jobqueue generate": (
        "jobqueue.files:generate",
        "Generate a challenge's jobs from submissions, instances and policy servers.",
    ),
    "jobqueue import": ("jobqueue.files:import_", "Import jobs and policy servers from files."),
    "jobqueue export": ("jobqueue.files:export", "Export a queue's jobs and policy servers to files."),
    "jobqueue results": ("jobqueue.files:results", "Compare evaluated scores with reported ones, as CSV."),
    "jobqueue collect": ("jobqueue.collect:collect", "Store the results of completed jobs as samples."),
    "jobqueue policy-server": ("jobqueue.policy:policy_server", "Serve a baseline policy to simulators."),
    "jobqueue evaluate": (
        "jobqueue.policy:evaluate",
        "Evaluate one job against a policy server in the grid simulator.",
    ),
    "jobqueue token create": ("jobqueue.tokens:create", "Create a token and print it once."),
    "jobqueue token list": ("jobqueue.tokens:list_", "List tokens, without their secrets."),
    "jobqueue token rotate": (
        "jobqueue.tokens:rotate",
        "Give a token a new secret; the old one works for an hour more.",
    ),
    "jobqueue token revoke": ("jobqueue.tokens:revoke", "Revoke a token; servers refuse it within five seconds."),
    "placement up": ("placement.admin:up", "Start the ledger of placements on a Ray cluster, and open pools."),
    "placement down": ("placement.admin:down", "Stop all placed work, and the ledger."),
    "placement status": ("placement.status:status", "Show pools, placement groups, and running and waiting work."),
    "placement submit": ("placement.submit:submit", "Run a command or a class in a placement group, by priority."),
    "placement why": ("placement.status:why", "Say why a request waits, and why each way to place it failed."),
    "placement events": ("placement.status:events", "Write the latest events to a file."),
    "placement cancel": ("placement.admin:cancel", "Cancel requests; running work is stopped."),
    "placement apply": ("placement.admin:apply", "Open or change the pools and rules of a file."),
    "placement close": ("placement.admin:close", "Close a pool: stop its work and remove its groups."),
    "placement audit": ("placement.admin:audit", "Compare the ledger with Ray, and remove leaks."),
    "elastic serve": ("elastic.serve:serve", "Serve a pool of engines behind one OpenAI-compatible gateway."),
    "elastic status": ("elastic.pool:status", "Show workers, load, how many workers are wanted, and why."),
    "elastic scale": ("elastic.pool:scale", "Keep this many workers awake whatever the load, or return to auto."),
    "elastic drain": ("elastic.pool:drain", "Put a worker to sleep and leave it asleep."),
    "elastic wake": ("elastic.pool:wake", "Wake a worker, or all of them for a while."),
    "elastic release": ("elastic.pool:release", "Let a worker follow the load again."),
    "elastic resume": ("elastic.pool:resume", "Follow the load again after scale, or wake --all."),
    "elastic check": ("elastic.serve:check", "Ask engines what they are, and whether they can be put to sleep."),
    "elastic fake-engine": (
        "elastic.demo:fake_engine",
        "Serve a simulated engine, to try a pool without a GPU.",
    ),
    "elastic demo": ("elastic.demo:demo", "See workers wake and sleep with a load, on this machine."),
}
"""Name -> module and function of the command, and its one-line help. No command waits for the imports of another."""


def all_commands() -> dict[str, tuple[str, str]]:
    """Return every command with its place and one-line help, those of installed packages included."""
    ours = {name: (f"headgate.cli.{place}", line) for name, (place, line) in COMMANDS.items()}
    return ours | {one.name: (one.value, _first_line(one.module)) for one in entry_points_of(GROUP)}


def _first_line(module: str) -> str:
    """Return the first line of a module's docstring without importing it; nothing where there is no source."""
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:
        return ""
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ""
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
