"""Equal indices give equal tasks on every machine and Python version: these digests never change."""

from __future__ import annotations

import hashlib

import pytest

from headgate.core import seed_of
from headgate.environments import environment

GOLDEN = [
    ("affine:abd", 0, "426003a9d4326d2f"),
    ("affine:abd", 999, "3950aad564354c47"),
    ("affine:abd", 12069, "1115be65f1ca33a8"),
    ("affine:ded", 0, "ab0b2e3d3b5468ed"),
    ("affine:ded", 999, "cea069207c2e3433"),
    ("affine:ded", 12069, "9d70a1abf640efe5"),
    ("affine:sat", 0, "4de3517cd5a28f30"),
    ("affine:sat", 999, "609d850813bd40b4"),
    ("affine:sat", 999999, "216401a9374c2461"),
    ("affine:sat-hard", 0, "fd175d63f8cfe999"),
    ("affine:sat-hard", 999, "08e6b2fb442e6050"),
    ("affine:sat-hard", 999999, "1ea2e6c991ef73cc"),
    ("agentgym:babyai", 0, "6c052b3880658095"),
    ("agentgym:babyai", 999, "a33037cb3e0c8d7a"),
    ("agentgym:babyai", 3999, "a1a4feab1120be9a"),
    ("agentgym:textcraft", 0, "73ccf37b2fb92abe"),
    ("agentgym:textcraft", 999, "e732e74a91ec38c6"),
    ("agentgym:textcraft", 3719, "079b8a094331bcd1"),
    ("headgate:explain", 0, "8679bc3a77b4905e"),
    ("headgate:explain", 999, "3bb0bfff1d98c654"),
    ("headgate:explain", 999999, "e636d9697c2a7a06"),
]


@pytest.mark.parametrize(("name", "index", "digest"), GOLDEN)
async def test_the_question_of_a_task_is_what_it_was(name, index, digest):
    episode = await environment(name).open(index, seed_of(name, index))
    text = "".join(message.content for message in episode.opening)
    await episode.close()
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("name", sorted({name for name, _, _ in GOLDEN}))
async def test_the_last_index_is_the_last_task(name):
    spec = environment(name).spec
    assert max(index for golden, index, _ in GOLDEN if golden == name) == spec.data_length - 1


@pytest.mark.parametrize("name", ["affine:abd", "affine:ded"])
async def test_another_seed_gives_another_task_of_the_same_program(name):
    one, other = [(await environment(name).open(5, seed)).opening[0].content for seed in (1, 2)]
    assert one != other
    assert one[:200] == other[:200]
