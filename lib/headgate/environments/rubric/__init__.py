"""Rubrics that a user writes, and environments whose episodes are judged by one."""

from headgate.environments.rubric.episodes import RubricEnvironment, transcript
from headgate.environments.rubric.rubric import Criterion, Rubric, load_rubric, rubric_of

__all__ = ["Criterion", "Rubric", "RubricEnvironment", "load_rubric", "rubric_of", "transcript"]
