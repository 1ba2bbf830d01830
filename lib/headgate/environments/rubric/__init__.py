"""Rubrics that a user writes, and environments whose episodes are judged by one."""

from headgate.environments.rubric.rubric import Criterion, Rubric, RubricEnvironment, load_rubric, rubric_of, transcript

__all__ = ["Criterion", "Rubric", "RubricEnvironment", "load_rubric", "rubric_of", "transcript"]
