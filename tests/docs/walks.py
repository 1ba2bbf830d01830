"""What a reader types: the files and commands of a page, in order, and the little that a test must do otherwise.

A page that the tables below do not name is followed to the letter, from an empty folder.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from tests.docs.pages import Block, blocks
from tests.docs.terminal import CommandFailed, Terminal

LANGUAGES: Final = ("bash", "sh", "shell", "console")


@dataclass(frozen=True, slots=True)
class Walk:
    """A page, or sections of one, that a reader follows in one go.

    Attributes:
        sections: headings of the second level; without any the whole page.
    """

    page: str
    sections: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return what tests call it."""
        return self.page if not self.sections else f"{self.page}: {self.sections[0]}"

    def blocks(self) -> list[Block]:
        """Return its commands and its files, in order."""
        return [
            block
            for block in blocks()
            if block.page == self.page
            and (not self.sections or block.section in self.sections)
            and (block.language in LANGUAGES or _is_file(block.title))
        ]


@dataclass(frozen=True, slots=True)
class Excluded:
    """Commands of a page that no test can run, by a pattern, and why; those of one section where it is named."""

    page: str
    pattern: str
    why: str
    section: str = ""


@dataclass(frozen=True, slots=True)
class Changed:
    """A text that stands for something that a test does not have, and what it has instead."""

    page: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class UntilStopped:
    """Commands that run until Ctrl-C.

    Attributes:
        ready: a pattern of what such a command writes when it works.
        stays: whether the reader leaves it running; else he presses Ctrl-C then.
    """

    pattern: str
    ready: str
    stays: bool = True


PROVIDER: Final = "headgate elastic fake-engine --port 9000 --model my-model --token-s 0.001"
"""Stands for a provider: it answers as one, whatever model is asked for."""

ROSTER: Final = """\
cat > roster.yaml <<'END'
models: [{name: my-model, base_url: "http://127.0.0.1:9000/v1"}]
END
"""
"""A roster of that provider's model."""

BASELINES: Final = """\
cat > roster.yaml <<'END'
defaults: {base_url: "http://127.0.0.1:8001/v1", options: {headgate_task_header: true}}
models:
- {name: solver, model: baseline-solver}
- {name: random, model: baseline-random}
END
headgate serve-baselines --port 8001
"""
"""The roster that most pages take for granted, and its endpoint."""

SHORT_WINDOWS: Final = r"""
sed -i '/name: affine-sat$/,/slug:/ {s/duration_s: 540/duration_s: 3/; s/interval: 600/interval: 20/}' prefect.yaml
"""
"""A window of three seconds every twenty in place of one of nine minutes every ten, so that a test can see its end."""

ALSO_PLAYED: Final = ("textcraft=http://127.0.0.1:36001,babyai=", "agentgym:textcraft-server,agentgym:babyai-server")
"""The games of AgentGym's servers that Headgate plays, too."""

OWN_CERTIFICATE: Final = """\
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -keyout $HOME/key.pem -out $HOME/certificate.pem
"""
"""A certificate that no authority signed, in the place of the reader's."""

SHOW_17: Final = """\
for job in 17 18; do headgate jobqueue add --id $job --team team_a -- true; done
headgate jobqueue show 17"""
"""The jobs of the page are there when it speaks of them; workers of the page take none of a team."""

OWN_PACKAGE: Final = """\
pip install --quiet --no-index --no-deps --no-build-isolation --target "$HOME/packages" .
export PYTHONPATH=$HOME/packages"""
"""Installs beside the project's environment, which a test leaves as it is, with the build tool that is there."""

PARTS: Final[Mapping[str, Sequence[tuple[str, ...]]]] = {
    "README.md": (("Evaluate your models",), ("Keep sampling",)),
    "docs/tutorials/evaluate-two-models.md": (
        ("Install and look", "Look at a task"),
        ("Sample baselines yourself", "Look at the samples", "Sample a model"),
    ),
    "docs/how-to/jobqueue-server.md": (("Serve a queue",), ("Create tokens",)),
    "docs/how-to/challenge.md": (("Generate, import and export jobs",), ("Serve and call policies",)),
    "docs/how-to/prefect.md": (("Sample on a schedule",), ("Drive a job queue with Prefect",)),
    "docs/how-to/placement.md": (("Place work by priority", "Simulate a trace"), ("Use a Ray cluster",)),
    "docs/how-to/elastic.md": (("Run an elastic pool",), ("Share GPUs with a training",)),
    "docs/how-to/monitor.md": (
        ("Watch a campaign", "Look at a run as a trace", "Find out why sampling is slow"),
        ("Restart and recover",),
    ),
}
"""Sections that are followed together; a part needs nothing of the others. Other pages are followed as a whole."""

SAMPLED: Final = """\
headgate run --roster baselines --environment affine:sat,agentgym:textcraft --instances 4
"""
"""A store with some samples."""

QUEUE: Final = """\
headgate jobqueue serve --database sqlite:///walk.db
token=$(headgate jobqueue token create reader --scopes admin --database sqlite:///walk.db)
"""
"""A queue that runs, and a token of the reader's."""

PREFECT: Final = """\
export PREFECT_API_URL=http://127.0.0.1:4200/api
headgate serve-prefect --background
prefect block register -m blocks
"""
"""A Prefect server that knows the blocks."""

EVALUATION: Final = """\
cat > eval.py <<'END'
import json, os
json.dump({"q_score": 1.0}, open(os.environ["HEADGATE_RESULT_FILE"], "w"))
END
echo '{"team_a": [{"host": "10.0.0.1", "port": 8080}, {"host": "10.0.0.2", "port": 8080}]}' > resources.json
echo '[{"id": 1, "payload": {"team_slug": "team_a", "task": "fold_a_towel"}, "resource_type": "team_a"}]' > jobs.json
headgate jobqueue import --database sqlite:///.headgate/jobqueue.db
token=$(headgate jobqueue token create reader --scopes admin)
"""
"""The program that a reader has a job for, that job, the policy servers of a team, and a token."""

CHALLENGE: Final = """\
mkdir -p eval-results test_instances/turning_on_radio
echo '{}' > test_instances/turning_on_radio/house_task_turning_on_radio_0_242_template-tro_state.json
"""
"""The files of a challenge that the page does not show."""

POOLS: Final = """\
echo 'pools: [{name: rlhf, quota: {cpu: 4}}]' > pools.yaml
"""

GIVEN: Final[Mapping[str, str]] = {
    "README.md: Evaluate your models": PROVIDER,
    "README.md: Keep sampling": f"{PROVIDER}\n{ROSTER}",
    "docs/tutorials/evaluate-two-models.md: Sample baselines yourself": PROVIDER,
    "docs/how-to/alerts.md": PREFECT + BASELINES,
    "docs/how-to/challenge.md: Generate, import and export jobs": CHALLENGE + QUEUE,
    "docs/how-to/console.md": BASELINES,
    "docs/how-to/deploy.md": PROVIDER
    + """
export OPENAI_BASE_URL=http://127.0.0.1:9000/v1 OPENAI_MODEL=my-model
""",
    "docs/how-to/jobqueue-server.md: Serve a queue": OWN_CERTIFICATE,
    "docs/how-to/jobqueue-workers.md": EVALUATION,
    "docs/how-to/limits.md": PREFECT + BASELINES + "export HEADGATE_ROSTER=roster.yaml",
    "docs/how-to/monitor.md: Watch a campaign": BASELINES + SAMPLED,
    "docs/how-to/monitor.md: Restart and recover": BASELINES,
    "docs/how-to/steer.md": BASELINES,
    "docs/how-to/own-models.md": PROVIDER
    + "\n"
    + BASELINES
    + """\
echo '{"models": [{"name": "solver", "base_url": "http://127.0.0.1:8001/v1"}]}' > models.json
python -u -m http.server 8088
""",
    "docs/how-to/placement.md: Use a Ray cluster": POOLS,
    "docs/how-to/prefect.md: Sample on a schedule": SHORT_WINDOWS,
    "docs/how-to/prefect.md: Drive a job queue with Prefect": PREFECT
    + QUEUE
    + """\
prefect work-pool create headgate --type process
export HEADGATE_JOBQUEUE_TOKEN="$token"
""",
    "docs/how-to/remote-environments.md": BASELINES
    + """\
export HEADGATE_ROSTER=roster.yaml
python -m headgate.simulation.agentgym textcraft --port 36001
python -m headgate.simulation.agentgym babyai --port 36002
mkdir -p tasks && echo '[]' > tasks/0 && echo '[]' > tasks/1
python -u -m http.server 8088
""",
}
"""What a page takes for granted, as commands that come before its own."""

EXCLUDED: Final = (
    Excluded("README.md", r"^make (demo|test)$", "these targets have tests of their own, and run these tests"),
    Excluded("docs/tutorials/evaluate-two-models.md", r"^make (demo|setup)$", "these targets have tests of their own"),
    Excluded("docs/how-to/remote-environments.md", r"^textcraft ", "a program of AgentGym"),
    Excluded("docs/how-to/deploy.md", r"^docker ", "needs the daemon of Docker and images from the internet"),
    Excluded("docs/how-to/deploy.md", r"^kubectl ", "needs a Kubernetes cluster"),
    Excluded("docs/how-to/prefect.md", r"^docker ", "needs the daemon of Docker and images from the internet"),
    Excluded("docs/how-to/placement.md", r"^kubectl ", "needs a Kubernetes cluster"),
    Excluded("docs/how-to/placement.md", r"jobs\.jsonl|openb_pod", "the reader's jobs, and a data set of others"),
    Excluded("docs/how-to/elastic.md", r"sglang|vllm", "needs a GPU"),
    Excluded("docs/how-to/elastic.md", r"train\.py", "needs a cluster and a training; its example plays it"),
    Excluded("docs/how-to/checkpoints.md", r"--engine vllm", "needs a GPU"),
    Excluded("docs/how-to/monitor.md", r"^headgate repair .*jobqueue", "a job queue of the reader's"),
    Excluded(
        "docs/how-to/remote-environments.md",
        r".",
        "needs a Ray cluster; tests/run/hosts run on one",
        "Run episodes on the nodes of a Ray cluster",
    ),
    Excluded(
        "docs/how-to/deploy.md",
        r".",
        "needs PostgreSQL and several machines; tests/chaos have both",
        "Share one campaign between machines",
    ),
    Excluded(
        "docs/how-to/deploy.md",
        r".",
        "needs SLURM or Kubernetes; `make test-slurm` sends a chain to a real one",
        "Send an evaluation to a cluster",
    ),
    Excluded(
        "docs/how-to/own-models.md",
        r".",
        "needs a GPU and a cluster; tests/run start real engines",
        "Serve models from weights",
    ),
    Excluded(
        "docs/how-to/jobqueue-workers.md",
        r".",
        "needs an environment of the reader's; tests/run/jobs have one",
        "Take samples with outside workers",
    ),
    Excluded(
        "docs/how-to/jobqueue-workers.md",
        r".",
        "needs SLURM; `make test-slurm` runs eval.sh on a real one",
        "Run workers on SLURM",
    ),
)

CHANGED: Final = (
    Changed("*", "https://models.example.com/v1", "http://127.0.0.1:9000/v1"),
    Changed("*", "http://queue.example.com:8000", "http://127.0.0.1:8000"),
    Changed("docs/how-to/remote-environments.md", "sciworld=http://127.0.0.1:36001,webshop=", ALSO_PLAYED[0]),
    Changed("docs/how-to/remote-environments.md", "agentgym:sciworld-server,agentgym:webshop-server", ALSO_PLAYED[1]),
    Changed("docs/how-to/alerts.md", "https://hooks.example.com", "http://127.0.0.1:9"),
    Changed("docs/how-to/alerts.md", "/usr/local/bin/page-me", "/bin/true"),
    Changed("docs/tutorials/evaluate-two-models.md", "--duration 60", "--duration 5"),
    Changed("docs/how-to/challenge.md", "TOKEN=…", 'TOKEN="$token"'),
    Changed("docs/how-to/jobqueue-workers.md", "TOKEN=hgq_…", 'TOKEN="$token"'),
    Changed("docs/how-to/jobqueue-workers.md", "headgate jobqueue show 17", SHOW_17),
    Changed("docs/how-to/jobqueue-server.md", "sqlite:////srv/headgate/", "sqlite:///"),
    Changed("docs/how-to/jobqueue-server.md", "/etc/headgate/", "$HOME/"),
    Changed("docs/how-to/own-environment.md", "pip install -e .", OWN_PACKAGE),
    Changed("docs/how-to/own-models.md", "http://127.0.0.1:8000/v1", "http://127.0.0.1:9000/v1"),
    Changed("docs/how-to/placement.md", "/var/lib/ray", "$HOME/ray"),
    Changed("docs/how-to/own-models.md", "https://registry.example.com", "http://127.0.0.1:8088"),
    Changed("docs/how-to/remote-environments.md", "https://tasks.example.com/api", "http://127.0.0.1:8088"),
    Changed("docs/how-to/monitor.md", "--duration 600", "--duration 5 --set events_file=events.jsonl"),
)
"""Names of servers that a test has none of, seconds in place of minutes, and paths in the home of the test."""

STATUSES: Final[Mapping[tuple[str, str], int]] = {
    ("docs/tutorials/evaluate-two-models.md", "headgate doctor"): 3,
}
"""Commands that the page says do not succeed."""

UNTIL_STOPPED: Final = (
    UntilStopped(r"^headgate serve-baselines", "answer at http://"),
    UntilStopped(r"^headgate elastic (fake-engine|serve)(?!.*--check)", "http://"),
    UntilStopped(r"^headgate jobqueue serve( --host 0.0.0.0)?$", "Job queue at", stays=False),
    UntilStopped(r"^headgate jobqueue serve --[^&]*$", "Job queue at"),
    UntilStopped(r"^headgate jobqueue policy-server", "http://"),
    UntilStopped(r"^headgate jobqueue work --command", "worker .* at http", stays=False),
    UntilStopped(r"^headgate placement up(?!.*--detach)", "Ctrl-C"),
    UntilStopped(r"^headgate placement status --watch", "rlhf", stays=False),
    UntilStopped(r"^headgate (elastic|jobqueue) status --watch", r"\w", stays=False),
    UntilStopped(r"^headgate run .*(--enable-monitoring|events_file)", "campaign_started"),
    UntilStopped(r"^headgate run (?!.*(--instances|--duration|--campaign))", "campaign_started", stays=False),
    UntilStopped(r"^headgate console --jobqueue", "http://", stays=False),
    UntilStopped(r"^headgate console", "http://"),
    UntilStopped(r"^prefect worker start", "Worker .* started"),
    UntilStopped(r"^python -(u )?-?m (headgate.simulation.agentgym|http.server)", "http://"),
)


def walks() -> list[Walk]:
    """Return what readers follow: the README, the tutorials, and every how-to with commands."""
    pages = sorted({block.page for block in blocks(*LANGUAGES)})
    return [
        Walk(page, sections)
        for page in pages
        if page in PARTS or page.startswith(("docs/how-to/", "docs/tutorials/"))
        for sections in PARTS.get(page, ((),))
    ]


def follow(walk: Walk, terminal: Terminal) -> None:
    """Write the files and run the commands of a walk, in order, as its reader does, and leave running what he leaves.

    Raises:
        CommandFailed: if a command does not do what the page says; the text names page and line.
    """
    for command in commands_of(GIVEN.get(walk.name, "")):
        _run(command, terminal)
    for block in walk.blocks():
        code = changed(block)
        if _is_file(block.title):
            path = terminal.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code + "\n")
            continue
        for command in commands_of(code):
            if any(is_of(row, block) and re.search(row.pattern, command) for row in EXCLUDED):
                continue
            try:
                _run(command, terminal, STATUSES.get((block.page, command), 0))
            except CommandFailed as failure:
                raise CommandFailed(f"{block.page}:{block.line}\n{failure}") from None


def _run(command: str, terminal: Terminal, status: int = 0) -> None:
    for row in UNTIL_STOPPED:
        if re.search(row.pattern, command):
            server = terminal.serve(command, row.ready)
            if not row.stays:
                terminal.interrupt(server)
            return
    terminal.run(command, status=status)


def commands_of(script: str) -> Iterator[str]:
    """Give the commands of a script one by one; a command may have several lines."""
    lines: list[str] = []
    for line in script.splitlines():
        lines.append(line)
        text = "\n".join(lines)
        if not text.strip() or line.endswith("\\"):
            continue
        checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        if checked.returncode == 0 and "here-document" not in checked.stderr:
            yield text
            lines = []
    assert not lines, f"no command: {script}"


def changed(block: Block) -> str:
    """Return the code of a block as a test runs it."""
    code = block.code
    for row in CHANGED:
        if is_of(row, block):
            code = code.replace(row.old, row.new)
    return code


def is_of(row: Excluded | Changed, block: Block) -> bool:
    """Return whether a row of a table is about the page of a block, and about its section where it names one."""
    section = row.section if isinstance(row, Excluded) else ""
    return row.page in ("*", block.page) and section in ("", block.section)


def _is_file(title: str) -> bool:
    return bool(title) and " " not in title and PurePath(title).suffix != ""
