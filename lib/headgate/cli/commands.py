"""Every command of `headgate`: where it is and what its one line of help says. Loaded when called."""

from __future__ import annotations

from typing import Final

COMMANDS: Final = {
    "run": ("running:run", "Sample the roster's models in every environment until stopped."),
    "judge": ("judging:judge", "Sample environments whose answers another model judges, each task once."),
    "arena": ("arena:arena", "Have a judge compare answers two at a time, and rate the models by it."),
    "plan": ("plan:plan", "Compare the samples that the rates demand with what workers and endpoints carry."),
    "models": ("listing:models", "Check the roster and list its models."),
    "environments": ("environments:environments", "List the environments that are installed, or try one."),
    "query": ("data:query", "Ask the stored samples a question in SQL."),
    "summary": ("data:summary", "Show counts, means and intervals per model and environment."),
    "leaderboard": (
        "leaderboard:leaderboard",
        "Compare models: means with intervals by task, ranks, paired differences and pass@k.",
    ),
    "report": ("data:report", "Write a self-contained HTML report of the stored samples."),
    "export": ("data:export", "Write stored samples as JSON lines or in the formats of other tools."),
    "import": ("data:import_", "Store samples from a file that another tool wrote."),
    "compact": ("data:compact", "Merge small parts of the store into large ones."),
    "verify": ("data:verify", "Read every stored object and compare it with its checksum."),
    "trace": ("trace:trace", "Turn a file of events into a trace that Perfetto opens."),
    "why": ("why:why", "Say which gate holds a task, why, and until when."),
    "doctor": ("diagnosis:doctor", "Check what a campaign needs on this machine."),
    "serve-baselines": ("serving:serve_baselines", "Serve the baseline agents as an OpenAI-compatible endpoint."),
    "serve-model": ("serving:serve_model", "Serve a small real language model."),
    "serve-prefect": ("serving:serve_prefect", "Serve Prefect's API and UI on this machine."),
    "bench": ("benching:bench", "Run a benchmark scenario beside its rivals."),
    "demo": ("demo:demo", "Run the main job from end to end on this machine."),
}
"""Name -> where the command is, and its one-line help. Loaded when called: none waits for the imports of another."""

CONFIG_COMMANDS: Final = {
    "show": ("configuration:show", "Show every setting with its value and where it came from."),
    "check": ("configuration:check", "Check settings, roster, environments and rates without running anything."),
}
"""The same for `headgate config …`."""

LIMITS_COMMANDS: Final = {
    "show": ("limits:show", "Show limits, the slots that are taken, and who holds them."),
    "apply": ("limits:apply", "Create or change the limits of a block or file."),
    "set": ("limits:set_", "Change a limit while it is in use."),
    "audit": ("limits:audit", "Compare the slots that limits count with those that are held."),
}
"""The same for `headgate limits …`."""

JOBQUEUE_COMMANDS: Final = {
    "serve": ("jobqueue_serving:serve", "Serve a job queue to outside workers."),
    "add": ("jobqueue_working:add", "Add commands to a queue as jobs."),
    "work": ("jobqueue_working:work", "Work on a queue's jobs by running a command for each."),
    "reserve": ("jobqueue_working:reserve", "Within a job's command: wait for its policy server and print it."),
    "status": ("jobqueue_watching:status", "Show jobs by state, by team and task, and policy servers."),
    "jobs": ("jobqueue_watching:jobs", "List jobs."),
    "show": ("jobqueue_watching:show", "Show one job and its history."),
    "dead": ("jobqueue_watching:dead", "List dead jobs with their last error."),
    "requeue": ("jobqueue_watching:requeue", "Let workers try dead jobs again."),
    "withdraw": ("jobqueue_watching:withdraw", "Make jobs dead; workers that run them stop."),
    "resources": ("jobqueue_watching:resources", "List the policy servers."),
    "drain": ("jobqueue_watching:drain", "Stop assigning a policy server; let its job finish."),
    "open": ("jobqueue_watching:open_", "Assign a policy server again."),
    "remove": ("jobqueue_watching:remove", "Remove a policy server."),
    "generate": (
        "jobqueue_files:generate",
        "Generate a challenge's jobs from submissions, instances and policy servers.",
    ),
    "import": ("jobqueue_files:import_", "Import jobs and policy servers from files."),
    "export": ("jobqueue_files:export", "Export a queue's jobs and policy servers to files."),
    "results": ("jobqueue_files:results", "Compare evaluated scores with reported ones, as CSV."),
    "collect": ("jobqueue_collecting:collect", "Store the results of completed jobs as samples."),
    "policy-server": ("jobqueue_policy:policy_server", "Serve a baseline policy to simulators."),
    "evaluate": ("jobqueue_policy:evaluate", "Evaluate one job against a policy server in the grid simulator."),
}
"""The same for `headgate jobqueue …`."""

TOKEN_COMMANDS: Final = {
    "create": ("jobqueue_tokens:create", "Create a token and print it, once."),
    "list": ("jobqueue_tokens:list_", "List tokens, without their secrets."),
    "rotate": ("jobqueue_tokens:rotate", "Give a token a new secret; the old one works for an hour more."),
    "revoke": ("jobqueue_tokens:revoke", "End a token within five seconds."),
}
"""The same for `headgate jobqueue token …`."""

PLACEMENT_COMMANDS: Final = {
    "up": ("placement_running:up", "Start the ledger of placements on a Ray cluster, and open pools."),
    "down": ("placement_running:down", "Stop all placed work, and the ledger."),
    "status": ("placement_watching:status", "Show pools, placement groups, and work that runs or waits."),
    "submit": ("placement_submitting:submit", "Run a command or a class in a placement group, by priority."),
    "why": ("placement_watching:why", "Say which rule holds a request, and what was not open to it."),
    "events": ("placement_watching:events", "Write what happened lately as a file of events."),
    "cancel": ("placement_steering:cancel", "Take requests out; work that runs is stopped."),
    "apply": ("placement_steering:apply", "Open or change the pools and rules of a file."),
    "close": ("placement_steering:close", "Close a pool: its work is stopped, its groups go."),
    "audit": ("placement_steering:audit", "Compare the ledger with Ray, and remove what leaked."),
    "simulate": ("placement_simulating:simulate", "Replay job traces under different rules of placement."),
}
"""The same for `headgate placement …`."""

ELASTIC_COMMANDS: Final = {
    "serve": ("elastic_serving:serve", "Serve a pool of engines behind one OpenAI-compatible gateway."),
    "status": ("elastic_steering:status", "Show workers, load, and how many workers are wanted and why."),
    "scale": ("elastic_steering:scale", "Have so many workers awake whatever the load, or `auto` again."),
    "drain": ("elastic_steering:drain", "Put a worker to sleep and leave it asleep."),
    "wake": ("elastic_steering:wake", "Wake a worker, or all of them for a while."),
    "release": ("elastic_steering:release", "Have a worker follow the load again."),
    "resume": ("elastic_steering:resume", "Follow the load again after `scale` or `wake --all`."),
    "check": ("elastic_checking:check", "Ask engines what they are, and whether they can be put to sleep."),
    "replay": ("elastic_replaying:replay", "Replay a load under our policies and the rules of others."),
    "fake-engine": ("elastic_fakes:fake_engine", "Serve a simulated engine, to try a pool without a GPU."),
    "demo": ("elastic_demo:demo", "See workers wake and sleep with a load, on this machine."),
}
"""The same for `headgate elastic …`."""
