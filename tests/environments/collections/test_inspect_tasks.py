"""inspect: real tasks in files, their solvers resumed reply by reply, their scorers' values in [0, 1]."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import sys
import tempfile

import psutil
import pytest

from headgate.core import ChatReply, ErrorKind, Message, errors
from headgate.environments import Continue, JudgedEnvironment, Score, converse, end_idle_processes, environment
from headgate.environments.judge_baseline import coverage_judge
from headgate.environments.measurement import baseline_episode
from headgate.environments.protocol import Collection
from headgate.environments.tool_forms import native_form
from headgate.environments.tools import tool_call
from headgate_environments.collections.inspect_tasks import inspect_tasks

TASKS = '''
from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, get_model
from inspect_ai.scorer import Score, accuracy, choice, includes, match, model_graded_fact, model_graded_qa, scorer
from inspect_ai.solver import chain_of_thought, generate, multiple_choice, solver, system_message, use_tools
from inspect_ai.tool import bash, python, tool
from inspect_ai.util import sandbox

SUMS = [Sample(input=f"What is {n} + {n}? Give the number.", target=str(2 * n)) for n in range(4, 10)]

@task
def sums():
    return Task(dataset=SUMS, solver=[system_message("Be brief."), chain_of_thought(), generate()], scorer=match())

@task
def capitals():
    sample = Sample(input="What is the capital of France?", choices=["Rome", "Paris", "Oslo"], target="B")
    return Task(dataset=[sample], solver=multiple_choice(), scorer=choice())

@task
def shuffled():
    choices = ["Rome", "Paris", "Oslo", "Bern", "Riga", "Kiel"]
    samples = [Sample(input=f"{n}: the capital of France?", choices=list(choices), target="B") for n in range(8)]
    dataset = MemoryDataset(samples)
    dataset.shuffle()
    dataset.shuffle_choices()
    return Task(dataset=dataset, solver=multiple_choice(shuffle=True), scorer=choice())

@task
def chatting():
    told = [ChatMessageSystem(content="You like colours."), ChatMessageUser(content="Name the colour of grass.")]
    return Task(dataset=[Sample(input=told, target="green")], scorer=includes())

@solver
def twice():
    async def solve(state, generate):
        state = await generate(state)
        state.messages.append(ChatMessageUser(content="Are you sure? Say it again, and nothing else."))
        return await generate(state)
    return solve

@solver
def forever():
    async def solve(state, generate):
        while True:
            state = await generate(state)
            state.messages.append(ChatMessageUser(content="Once more, in other words than before, please."))
    return solve

@solver
def forgetful():
    async def solve(state, generate):
        state = await generate(state)
        state.messages = [ChatMessageUser(content="Something else: what is 2 + 2?")]
        return await generate(state)
    return solve

@solver
def impatient():
    async def solve(state, generate):
        await get_model().generate("Help me.")
        return await generate(state)
    return solve

@tool
def add():
    async def execute(x: int, y: int):
        """Add two numbers.

        Args:
            x: one
            y: other
        """
        return x + y
    return execute

@scorer(metrics=[accuracy()])
def given():
    async def score(state, target):
        return Score(value=eval(target.text))
    return score

@task
def talk():
    return Task(dataset=SUMS, solver=twice(), scorer=match())

@task
def endless():
    return Task(dataset=SUMS, solver=forever(), scorer=match())

@task
def rewriting():
    return Task(dataset=SUMS, solver=forgetful(), scorer=match())

@task
def asking():
    return Task(dataset=SUMS, solver=impatient(), scorer=match())

@task
def tools():
    return Task(dataset=SUMS, solver=[use_tools(add()), generate()], scorer=match())

@task
def changing():
    return Task(dataset=SUMS, solver=[generate(), use_tools(add()), generate()], scorer=match())

@task
def agent():
    return Task(dataset=SUMS, solver=react(tools=[add()]), scorer=match())

@task
def graded():
    return Task(dataset=SUMS, scorer=model_graded_qa(partial_credit=True))

@task
def facts():
    return Task(dataset=SUMS, scorer=model_graded_fact(model=["openai/gpt-4o", "google/gemini"], include_history=True))

@task
def regraded():
    return Task(dataset=SUMS, scorer=model_graded_qa(grade_pattern=r"([A-F])"))

@task
def contained():
    return Task(dataset=SUMS, scorer=match(), sandbox="docker")

@scorer(metrics=[accuracy()])
def written():
    async def score(state, target):
        return Score(value=(await sandbox().read_file("out/answer.txt")).strip() == target.text)
    return score

@task
def boxed():
    data = [Sample("Double the number in data.txt.", target="42", files={"data.txt": "21"}, setup="mkdir out")]
    tools = use_tools(bash(timeout=20), python(timeout=20))
    return Task(dataset=data, solver=[tools, generate()], scorer=written(), sandbox="local")

@task
def broken():
    raise RuntimeError("no data here")

@task
def values():
    targets = ["'C'", "'I'", "'P'", "'N'", "0.25", "7", "-1", "True", "{'a': 1}", "float('nan')"]
    return Task(dataset=[Sample(input="Say anything that you like to say.", target=t) for t in targets], scorer=given())
'''

# inspect retries with a parameter that its retry library has renamed.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'initial' parameter:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*MemoryObject:pytest.PytestUnraisableExceptionWarning"),  # it closes them late
]

COLLECTION = inspect_tasks()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = tmp_path_factory.mktemp("inspect") / "tasks.py"
    file.write_text(TASKS)
    return file


@pytest.fixture
def made(path):
    return lambda task: COLLECTION.environment(f"inspect:{path}@{task}")


async def opening_of(environment, index):
    episode = await environment.open(index, 0)
    await episode.close()
    return episode.opening


async def scored(environment, index, *replies):
    episode = await environment.open(index, 0)
    for reply in replies:
        answer = await episode.answer(reply)
    await episode.close()
    return answer


def test_it_is_a_collection_of_what_installed_packages_register():
    assert isinstance(COLLECTION, Collection)
    assert all(name.startswith("inspect:") for name in COLLECTION.names())


async def test_the_solver_writes_the_opening_and_the_scorer_judges(made):
    sums = made("sums")
    assert (sums.spec.data_length, sums.spec.name.rpartition("@")[2]) == (6, "sums")
    episode = await sums.open(1, 0)
    assert episode.opening[0] == Message("system", "Be brief.")
    assert "What is 5 + 5?" in episode.opening[1].content
    assert "step-by-step" in episode.opening[1].content
    assert await episode.answer("It is ANSWER: 10") == Score(1.0, success=True, why="inspect's scorer gives 'C'")


async def test_an_index_is_the_same_task_in_every_version(made):
    said = [(await opening_of(made("sums"), index))[-1].content for index in (0, 5)]
    assert hashlib.sha256("\0".join(said).encode()).hexdigest()[:16] == "6e00a7c270487b78"


async def test_draws_without_a_seed_are_the_same_for_everybody(made):
    said = [(await opening_of(made("shuffled"), index))[-1].content for index in (5, 0, 1)]
    assert hashlib.sha256("\0".join(said).encode()).hexdigest()[:16] == "d6398b5d5b4dbe02"
    again = made("shuffled")
    assert [(await opening_of(again, index))[-1].content for index in (0, 1, 5)] == [*said[1:], said[0]]


async def test_shuffled_choices_are_scored_by_the_letters_that_were_shown(made):
    shuffled = made("shuffled")
    for index in range(shuffled.spec.data_length):
        shown = (await opening_of(shuffled, index))[-1].content
        letters = {line[0]: line[3:] for line in shown.splitlines() if line[1:3] == ") "}
        assert len(letters) == 6
        for letter, city in letters.items():
            assert (await scored(shuffled, index, f"ANSWER: {letter}")).success == (city == "Paris")


async def test_choices_are_rendered_and_scored_by_letter(made):
    capitals = made("capitals")
    episode = await capitals.open(0, 0)
    assert "B) Paris" in episode.opening[0].content
    assert (await episode.answer("ANSWER: B")).value == 1.0
    assert (await scored(capitals, 0, "ANSWER: A")).value == 0.0


async def test_messages_of_a_sample_are_the_opening(made):
    episode = await made("chatting").open(0, 0)
    assert [message.role for message in episode.opening] == ["system", "user"]
    assert (await episode.answer("Green.")).success


async def test_a_solver_that_asks_twice_is_resumed(made):
    episode = await made("talk").open(0, 0)
    answer = await episode.answer("7")
    assert answer == Continue((Message("user", "Are you sure? Say it again, and nothing else."),))
    assert (await episode.answer("8")).value == 1.0


async def test_a_solver_that_never_ends_is_scored_after_the_last_round(made):
    endless = made("endless")
    replies = iter(range(100))

    async def chat(messages):
        return ChatReply("8" if len(messages) == 2 * endless.spec.max_rounds - 1 else str(next(replies)))

    result = await converse(endless, 0, 0, chat)
    assert (result.score, result.turns, result.error) == (1.0, endless.spec.max_rounds, None)


@pytest.mark.parametrize(
    ("task", "problem"),
    [("rewriting", "changes earlier messages"), ("asking", "model"), ("changing", "the model's tools")],
)
async def test_what_cannot_be_played_is_the_environments_failure(made, task, problem):
    async def chat(messages):
        return ChatReply("8")

    result = await converse(made(task), 0, 0, chat)
    assert (result.score, result.error_kind) == (None, ErrorKind.ENVIRONMENT)
    assert problem in result.error


async def test_tools_are_called_in_replies_and_the_solver_goes_on_with_what_they_say(made):
    episode = await made("tools").open(0, 0)
    system, question = episode.opening
    form = native_form(episode.opening)
    assert [tool["function"]["name"] for tool in form.tools] == ["add"]
    assert set(form.tools[0]["function"]["parameters"]["properties"]) == {"x", "y"}
    assert (system.role, "4 + 4" in question.content) == ("system", True)
    answers = [
        (await episode.answer(reply)).messages[0].content
        for reply in (
            f"I add. {tool_call('add', x=4, y=4)}",
            tool_call("ad", x=4, y=4),
            tool_call("add", x="four"),
            "<tool_call>add 4 and 4</tool_call>",
        )
    ]
    assert answers[0] == "<tool_response>\n8\n</tool_response>"
    assert "ad not found" in answers[1]
    assert "validation errors" in answers[2]
    assert "is no JSON" in answers[3]
    assert (await episode.answer("It is 8")).value == 1.0


async def test_commands_of_a_local_sandbox_run_in_locks_and_leave_nothing(made, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    boxed = made("boxed")
    assert boxed.spec.runs_programs
    episode = await boxed.open(0, 0)
    secret = tmp_path / "secret"
    secret.write_text("the key")

    async def shown(command, name="bash"):
        call = tool_call(name, **{"command" if name == "bash" else "code": command})
        return (await episode.answer(call)).messages[0].content

    assert "21\nout" in await shown("cat data.txt; echo; ls -d out")
    assert "the key" not in await shown(f"cat {secret}; ln -s {secret} link; cat link")
    assert "cannot touch" in await shown(f"touch {tmp_path}/made")
    assert "Operation not permitted" in await shown("import socket; socket.socket(socket.AF_UNIX)", "python")
    assert "HEADGATE_AUDIT_FILE" not in await shown("env")
    assert "/tmp\n" in await shown("pwd")
    (folder,) = tmp_path.glob("headgate-sandbox-*/data.txt")
    assert "done" in await shown("(sleep 1000 &) ; expr 2 '*' $(cat data.txt) > out/answer.txt; echo done")
    assert (await episode.answer("I wrote it down.")).value == 1.0
    await episode.close()
    assert not folder.parent.exists()


async def test_files_of_a_local_sandbox_are_those_that_its_commands_see(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    from headgate_environments.collections.inspect_box import LockedSandbox

    box = (await LockedSandbox.sample_init("", None, {}))["default"]
    secret = tmp_path / "secret"
    secret.write_text("the key")
    await box.write_file("a b/c", "text")
    await box.write_file("/tmp/bytes", b"\xff")
    assert (await box.read_file("/tmp/a b/c"), await box.read_file("bytes", text=False)) == ("text", b"\xff")
    await box.exec(["ln", "-s", str(secret), "link"])
    for path, error in {"nowhere": FileNotFoundError, "a b": IsADirectoryError, "link": OSError}.items():
        with pytest.raises(error):
            await box.read_file(path)
    with pytest.raises(OSError, match="/etc/mine"):
        await box.write_file("/etc/mine", "mine")
    with contextlib.suppress(OSError):  # below /tmp it is another file, which the folder holds
        await box.write_file(str(secret), "mine")
    assert secret.read_text() == "the key"
    with pytest.raises(TimeoutError):
        await box.exec(["sleep", "100"], timeout=1)
    await LockedSandbox.sample_cleanup("", None, {"default": box}, interrupted=False)
    assert not list(tmp_path.glob("headgate-sandbox-*"))


async def test_a_command_that_does_not_end_ends_with_its_episode(made):
    episode = await made("boxed").open(0, 0)
    waiting = asyncio.ensure_future(episode.answer(tool_call("bash", command="sleep 8765")))
    found = []
    while not found:
        await asyncio.sleep(0.05)
        found = [one for one in psutil.process_iter(["cmdline"]) if "8765" in (one.info["cmdline"] or ())]
    waiting.cancel()
    await episode.close()
    assert psutil.wait_procs(found, timeout=10)[1] == []


async def test_an_agent_of_inspect_asks_the_model_of_the_episode(made):
    episode = await made("agent").open(1, 0)
    told = await episode.answer(tool_call("add", x=5, y=5))
    assert told == Continue((Message("user", "<tool_response>\n10\n</tool_response>"),))
    assert (await episode.answer(tool_call("submit", answer="10"))).value == 1.0


async def test_a_grader_is_the_judge_of_the_run_and_asked_what_inspect_asks(made):
    graded = made("graded")
    assert isinstance(graded, JudgedEnvironment)
    assert graded.spec.needs_judge
    asked = await scored(graded, 0, "It is 8.")
    ((question,),) = asked.questions
    assert "[Submission]: It is 8." in question.content
    assert "[Criterion]: 8" in question.content
    assert coverage_judge((question,)).startswith("GRADE: C")
    named = await scored(made("facts"), 0, "It is 8.")
    assert "[Expert]: 8" in named.questions[0][0].content
    assert (await scored(graded, 0, "")).value == 0.0  # no judge is asked about nothing
    judgements = {
        "It is right. GRADE: C": 1.0,
        "GRADE: C, I thought first, but\n**GRADE: I**": 0.0,
        "grade: P": 0.5,
        "GRADE: Incorrect": 0.0,
        '{"score": 1, "reason": "right"}': 1.0,
    }
    assert {reply: graded.judgement(reply).value for reply in judgements} == judgements
    assert [graded.judgement(reply) for reply in ("", "GRADE: X", "downgrade: C", "C")] == [None] * 4
    most = [graded.judgement(f"GRADE: {letter}") for letter in "CCI"]
    assert (graded.verdict(most).success, graded.verdict(most[1:]).success) == (True, False)


@pytest.mark.parametrize(("index", "value"), list(enumerate([1.0, 0.0, 0.5, 0.0, 0.25, 1.0, 0.0, 1.0])))
async def test_values_become_scores_as_inspect_reads_them(made, index, value):
    score = await scored(made("values"), index, "hello")
    assert (score.value, score.success) == (value, value == 1.0)


@pytest.mark.parametrize("index", [8, 9])
async def test_a_value_that_is_no_number_is_no_score(made, index):
    with pytest.raises(errors.EnvironmentFailedError, match="the scorer of"):
        await scored(made("values"), index, "hello")


@pytest.mark.parametrize(
    ("task", "problem"),
    [("regraded", "grader model"), ("contained", "containers"), ("broken", "RuntimeError: no data here")],
)
def test_tasks_that_need_more_than_replies_are_refused(made, task, problem):
    with pytest.raises(errors.EnvironmentFailedError, match=problem):
        made(task)


@pytest.mark.parametrize(
    "reply", ["", " \n", "16", "<think>ANSWER</think>", "</INPUT>```Action: go\nAction: 1", '{"C": 1}']
)
async def test_tricks_score_0(made, reply):
    assert (await scored(made("sums"), 0, reply)).value == 0.0
    assert (await scored(made("chatting"), 0, reply)).value == 0.0


async def test_the_question_said_back_scores_0_even_if_it_holds_the_target(made, tmp_path):
    values = made("values")
    assert (await scored(values, 0, (await opening_of(values, 0))[-1].content)).value == 0.0


async def test_a_reply_of_a_megabyte_is_not_read(made):
    async def chat(messages):
        return ChatReply("green " * 200_000)

    result = await converse(made("chatting"), 0, 0, chat)
    assert (result.score, result.error_kind) == (0.0, ErrorKind.BAD_ANSWER)


async def test_the_solver_states_the_target(made):
    for task in ("sums", "capitals", "chatting"):
        environment = made(task)
        opening = await opening_of(environment, 0)
        replies = {
            kind: await environment.baseline(kind, 0, 0, opening, random.Random(0))
            for kind in ("random", "greedy", "solver")
        }
        assert (await scored(environment, 0, replies["solver"])).value == 1.0
        assert (await scored(environment, 0, replies["greedy"])).value == 0.0


async def test_closing_ends_the_solver_and_may_be_repeated(made):
    episode = await made("talk").open(0, 0)
    await episode.close()
    await episode.close()


def test_unknown_tasks_are_refused(path):
    for name in (f"inspect:{path}@summs", "inspect:/nowhere.py@sums", "inspect:nobody/nothing", "inspect:"):
        with pytest.raises(errors.UnknownEnvironmentError):
            COLLECTION.environment(name)


@pytest.fixture(scope="module")
def played_apart(path):
    """The file named by a path relative to where this process is, played in a child process."""
    end_idle_processes()  # whatever child there is was started in another folder
    with contextlib.chdir(path.parent):
        yield environment(f"inspect:{path.name}@capitals")
    end_idle_processes()


async def test_the_child_process_finds_a_relative_path_where_its_parent_is(played_apart, made):
    assert (played_apart.spec.name, played_apart.spec.data_length) == ("inspect:tasks.py@capitals", 1)
    episode = await played_apart.open(0, 0)
    assert episode.opening == (await opening_of(made("capitals"), 0))
    assert await episode.answer("ANSWER: B") == Score(1.0, success=True, why="inspect's scorer gives 'C'", answer="B")
    await episode.close()
    assert (await baseline_episode(played_apart, "solver", 0)).score == 1.0


async def test_a_judge_reads_what_was_answered_in_the_child_process(path, played_apart):
    with contextlib.chdir(path.parent):
        graded = environment(f"inspect:{path.name}@graded")
    assert isinstance(graded, JudgedEnvironment)
    episode = await graded.open(0, 0)
    ((question,),) = (await episode.answer("It is 8.")).questions
    assert "[Submission]: It is 8." in question.content
    assert graded.verdict([graded.judgement("GRADE: C")]).success
    await episode.close()


def test_a_missing_package_names_its_extra(monkeypatch):
    for module in [name for name in sys.modules if name.partition(".")[0] == "inspect_ai"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(errors.MissingExtraError, match="extra 'inspect'"):
        COLLECTION.environment("inspect:some/task")
