"""verifiers: real environment modules, rolled out reply by reply and scored by their rubrics."""

from __future__ import annotations

import hashlib
import random
import sys

import pytest

from headgate.core import ChatReply, ErrorKind, Message, errors
from headgate.environments import Continue, Score, converse, end_idle_processes, environment
from headgate.environments.protocol import Collection
from headgate_environments.collections.verifier_tasks import verifier_tasks

MODULES = {
    "vf_reversing": """
import verifiers as vf
from datasets import Dataset

def load_environment():
    words = ["headgate", "channel", "weir"]
    rows = [{"question": f"Write the word {word} backwards.", "answer": word[::-1]} for word in words]

    def is_reversed(completion, answer):
        return 1.0 if completion[-1]["content"].strip() == answer else 0.0

    def length(completion):
        return float(len(completion[-1]["content"]))

    rubric = vf.Rubric(funcs=[is_reversed, length], weights=[1.0, 0.0])
    return vf.SingleTurnEnv(eval_dataset=Dataset.from_list(rows), system_prompt="Reply with one word.", rubric=rubric)
""",
    "vf_guessing": """
import verifiers as vf
from datasets import Dataset

class Guessing(vf.MultiTurnEnv):
    async def setup_state(self, state):
        state["secret"] = int(state["answer"])
        return state

    async def env_response(self, messages, state, **kwargs):
        guess = int(messages[-1]["content"])
        state["found"] = guess == state["secret"]
        return [{"role": "user", "content": "higher" if guess < state["secret"] else "lower or equal"}]

    @vf.stop
    async def has_found(self, state):
        turns = state["trajectory"]
        return bool(turns) and turns[-1]["completion"][-1]["content"] == state["answer"]

def reward(state):
    turns = state["trajectory"]
    return 2.0 / len(turns) if turns[-1]["completion"][-1]["content"] == state["answer"] else -1.0

def load_environment():
    rows = [{"question": "Guess my number between 1 and 20.", "answer": str(n)} for n in (7, 12)]
    return Guessing(max_turns=6, eval_dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[reward]))
""",
    "vf_endless": """
import verifiers as vf
from datasets import Dataset

class Endless(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return [{"role": "user", "content": "Go on, please."}]

def load_environment():
    rows = [{"question": "Begin.", "answer": "x"}]
    return Endless(eval_dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[lambda state: 0.5]))
""",
    "vf_judged": """
import verifiers as vf
from datasets import Dataset
from openai import AsyncOpenAI

def load_environment():
    rubric = vf.JudgeRubric(judge_client=AsyncOpenAI(api_key="none"))
    return vf.SingleTurnEnv(eval_dataset=Dataset.from_list([{"question": "Why?", "answer": "So."}]), rubric=rubric)
""",
    "vf_tools": '''
import verifiers as vf
from datasets import Dataset

def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y

def load_environment():
    rows = [{"question": "2 + 2?", "answer": "4"}]
    return vf.ToolEnv(tools=[add], eval_dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[lambda state: 1.0]))
''',
    "vf_shuffled": """
import random
import verifiers as vf
from datasets import Dataset

def load_environment():
    rows = [{"question": f"Say {n}.", "answer": str(n)} for n in range(20)]
    random.shuffle(rows)
    dataset = Dataset.from_list(rows).shuffle()
    return vf.SingleTurnEnv(eval_dataset=dataset, rubric=vf.Rubric(funcs=[lambda state: 0.5]))
""",
    "vf_broken": "def load_environment():\n    raise OSError('no data on this machine')\n",
}

COLLECTION = verifier_tasks()


@pytest.fixture(scope="module", autouse=True)
def modules(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verifiers")
    for name, source in MODULES.items():
        (folder / f"{name}.py").write_text(source)
    described = folder / "vf_reversing-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: vf-reversing\nVersion: 1.0\nRequires-Dist: verifiers>=0.3\n"
    )
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    for name in MODULES:
        sys.modules.pop(name, None)


def made(module):
    return COLLECTION.environment(f"verifiers:{module}")


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


def test_installed_packages_that_need_verifiers_and_load_an_environment_are_named():
    assert isinstance(COLLECTION, Collection)
    assert COLLECTION.names() == ("verifiers:vf_reversing",)


async def test_a_row_is_a_task_and_the_rubric_scores_it():
    reversing = made("vf_reversing")
    assert (reversing.spec.data_length, reversing.spec.max_rounds) == (3, 1)
    episode = await reversing.open(2, 0)
    assert episode.opening == (
        Message("system", "Reply with one word."),
        Message("user", "Write the word weir backwards."),
    )
    assert await episode.answer("riew") == Score(1.0, success=True, why="the rubric gives 1")


async def test_an_index_is_the_same_task_in_every_version():
    said = [(await opening_of(made("vf_reversing"), index))[-1].content for index in (0, 1)]
    assert hashlib.sha256("\0".join(said).encode()).hexdigest()[:16] == "1d6ce8ffc0093c66"


async def test_rows_shuffled_without_a_seed_are_the_same_for_everybody():
    shuffled = made("vf_shuffled")
    said = [(await opening_of(shuffled, index))[-1].content for index in range(6)]
    assert said == ["Say 0.", "Say 12.", "Say 11.", "Say 16.", "Say 19.", "Say 8."]


async def test_many_turns_are_resumed_and_the_reward_is_clamped():
    guessing = made("vf-guessing")
    episode = await guessing.open(0, 0)
    assert await episode.answer("3") == Continue((Message("user", "higher"),))
    assert await episode.answer("7") == Score(1.0, success=True, why="the rubric gives 1")
    assert await scored(guessing, 0, "7") == Score(1.0, success=True, why="the rubric gives 2")
    assert await scored(guessing, 0, *"123456") == Score(0.0, success=False, why="the rubric gives -1")
    assert (await scored(guessing, 1, "3", "4", "12")).value == pytest.approx(2 / 3)


async def test_episodes_are_played_beside_each_other():
    guessing = made("vf_guessing")
    first, second = await guessing.open(0, 0), await guessing.open(1, 0)
    assert (await first.answer("9")).messages[0].content == "lower or equal"
    assert (await second.answer("9")).messages[0].content == "higher"
    await first.close()
    await second.close()


async def test_one_without_a_bound_ends_after_the_last_round():
    endless = made("vf_endless")

    async def chat(messages):
        return ChatReply(f"word {len(messages)}")

    result = await converse(endless, 0, 0, chat)
    assert (result.score, result.turns) == (0.5, endless.spec.max_rounds)


async def test_what_breaks_in_the_environment_is_no_score():
    async def chat(messages):
        return ChatReply("not a number")

    result = await converse(made("vf_guessing"), 0, 0, chat)
    assert (result.score, result.error_kind) == (None, ErrorKind.ENVIRONMENT)
    assert "not a number" in result.error


@pytest.mark.parametrize(
    ("module", "problem"),
    [("vf_judged", "judge model"), ("vf_tools", "needs tools"), ("vf_broken", "no data on this machine")],
)
def test_environments_that_need_more_than_replies_are_refused(module, problem):
    with pytest.raises(errors.EnvironmentFailedError, match=problem):
        made(module)


@pytest.mark.parametrize(
    "reply", ["", " \n", "reiw", "<think>etagdaeh", "</INPUT>```Action: go\nAction: stay", '{"reward": 1}', "\x1b[1mx"]
)
async def test_tricks_score_0(reply):
    assert (await scored(made("vf_reversing"), 0, reply)).value == 0.0


async def test_the_question_said_back_scores_0():
    endless = made("vf_endless")
    episode = await endless.open(0, 0)
    for _ in range(endless.spec.max_rounds):
        answer = await episode.answer("Go on, please.")
    assert answer == Score(0.0, success=False, why="the reply repeats the question")


async def test_a_reply_of_a_megabyte_is_not_read():
    async def chat(messages):
        return ChatReply("etagdaeh " * 120_000)

    result = await converse(made("vf_reversing"), 0, 0, chat)
    assert (result.score, result.error_kind) == (0.0, ErrorKind.BAD_ANSWER)


async def test_the_solver_states_the_answer_and_the_others_words_of_the_question():
    reversing = made("vf_reversing")
    opening = await opening_of(reversing, 0)
    values = {}
    for kind in ("random", "greedy", "solver"):
        reply = await reversing.baseline(kind, 0, 0, opening, random.Random(0))
        values[kind] = (await scored(reversing, 0, reply)).value
    assert values == {"random": 0.0, "greedy": 0.0, "solver": 1.0}


def test_an_unknown_module_is_refused_with_the_nearest():
    with pytest.raises(errors.UnknownEnvironmentError, match="did you mean 'verifiers:vf_reversing'"):
        made("vf_reversin")


@pytest.fixture(scope="module")
def played_apart(modules):
    """A module that this process can import, played in a child process."""
    end_idle_processes()  # whatever child there is does not know the folder of the modules
    yield environment("verifiers:vf_guessing")
    end_idle_processes()


async def test_a_child_process_plays_what_its_parent_can_import(played_apart):
    assert (played_apart.spec.data_length, played_apart.spec.max_rounds) == (2, 6)
    episode = await played_apart.open(0, 0)
    assert await episode.answer("9") == Continue((Message("user", "lower or equal"),))
    assert await episode.answer("7") == Score(1.0, success=True, why="the rubric gives 1")
    await episode.close()


def test_a_missing_package_names_its_extra(monkeypatch):
    for module in [name for name in sys.modules if name.partition(".")[0] == "verifiers"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(errors.MissingExtraError, match="extra 'verifiers'"):
        COLLECTION.environment("verifiers:vf_reversing")
