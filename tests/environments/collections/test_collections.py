"""What holds for every adapter of a collection."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from headgate_environments.collections import gymnasium_text, inspect_tasks, reasoning, text_arena, verifier_tasks
made = [
    gymnasium_text.gymnasium_text(), inspect_tasks.inspect_tasks(), reasoning.reasoning(), text_arena.text_arena(),
    verifier_tasks.verifier_tasks(),
]
heavy = {"gymnasium", "inspect_ai", "reasoning_gym", "textarena", "verifiers"}
print(len(made), sorted(heavy & set(sys.modules)))
"""


def test_making_a_collection_imports_nothing_of_its_package():
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "5 []"
