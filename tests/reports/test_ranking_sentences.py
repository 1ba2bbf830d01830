"""What a ranking says of its pairs, and of those that are open."""

from __future__ import annotations

from headgate.core.events import ModelsRanked
from headgate.reports import neighbour_rows, ranking_lines
from headgate.reports.ranking import neighbours_said
from headgate.sampling import RankingReport


def test_the_model_that_comes_first_is_named_first_and_open_pairs_say_what_more_samples_would_decide() -> None:
    pairs = (
        ModelsRanked("a", "b", "not better", 0.97, 40, -0.2, -0.3, -0.1),
        ModelsRanked("a", "c", "better", 1.0, 90, 0.25, 0.1, 0.4),
        ModelsRanked("b", "c", "alike", 0.96, 80, 0.01, -0.02, 0.03),
        ModelsRanked("c", "d", "open", 0.0, 90, -0.01, -0.1, 0.05),
    )
    assert ranking_lines(RankingReport(pairs, 0.6, 0.03)) == [
        "3 of 4 pairs of models are ranked to within 0.03, with 95 % confidence in all of them together",
        "b comes before a: +0.200 [+0.100, +0.300] on 40 tasks, 97.0% sure",
        "a is better than c: +0.250 [+0.100, +0.400] on 90 tasks, 100.0% sure",
        "b is as good as c: +0.010 [-0.020, +0.030] on 80 tasks, 96.0% sure",
        "1 not ranked yet; the next 1000 samples would rank about 1",
        "d and c: +0.010 [-0.050, +0.100] on 90 tasks",
    ]


def test_where_no_open_pair_has_a_task_nothing_is_foreseen() -> None:
    report = RankingReport((ModelsRanked("a", "b", "open", 0.0, 0, 0.0, -1.0, 1.0),), None, 0.03)
    unknown = "what more samples would rank cannot be foreseen"
    assert ranking_lines(report)[1] == f"1 not ranked yet; {unknown}; run the same command again to go on"
    assert neighbours_said(report).endswith(f"whenever you look; {unknown}.")


def test_many_pairs_are_not_all_printed() -> None:
    pairs = tuple(ModelsRanked("a", f"m{n}", "better", 1.0, 9, 0.5, 0.4, 0.6) for n in range(50))
    lines = ranking_lines(RankingReport(pairs))
    assert len(lines) == 1 + 45 + 1
    assert lines[-1] == "and 5 more: --json has them all"


def test_neighbours_without_a_common_task_have_no_difference() -> None:
    pairs = (
        ModelsRanked("a", "b", "open", 0.0, 0, 0.0, -1.0, 1.0),
        ModelsRanked("b", "c", "open", 0.0, 9, 0.25, -1.0, 1.0),
    )
    shown = [row["difference (95 %)"] for row in neighbour_rows(RankingReport(pairs, 1.0))]
    assert shown == ["–", "+0.250 (-1.000 to +1.000)"]
