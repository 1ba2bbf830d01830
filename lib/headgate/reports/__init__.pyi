from .ranking import INDIFFERENCE as INDIFFERENCE, neighbour_rows as neighbour_rows, ranking_lines as ranking_lines
from .arena import ArenaBoard as ArenaBoard, ArenaComparison as ArenaComparison, build_arena as build_arena
from .arena import (
    arena_document as arena_document,
    arena_view as arena_view,
    judge_rows as judge_rows,
    rating_rows as rating_rows,
    share_rows as share_rows,
)
from .costs import COST_COLUMNS as COST_COLUMNS, Cost as Cost, costs_by as costs_by, money as money
from .checkpoints import (
    CheckpointCurve as CheckpointCurve,
    CheckpointScore as CheckpointScore,
    build_curve as build_curve,
    curve_document as curve_document,
    curve_rows as curve_rows,
    curve_view as curve_view,
    point_document as point_document,
    step_of as step_of,
)
from .leaderboard_tables import covered_time as covered_time, leaderboard_notes as leaderboard_notes
from .leaderboard import (
    LEADERBOARD_COLUMNS as LEADERBOARD_COLUMNS,
    SERVED as SERVED,
    served_notes as served_notes,
    Leaderboard as Leaderboard,
    build_leaderboard as build_leaderboard,
)
from .leaderboard_tables import (
    cell_rows as cell_rows,
    leaderboard_document as leaderboard_document,
    standing_rows as standing_rows,
    versus_rows as versus_rows,
)
from .live import engines_said as engines_said, live_view as live_view, status_lines as status_lines
from .compared import Compared as Compared, template as template
from .statistics import estimates_by as estimates_by
from .report import FIGURES as FIGURES, Report as Report, build_report as build_report
from .leaderboard import MissingRule as MissingRule
from .missing import missing_lines as missing_lines
from .leaderboard_tables import ScoreTable as ScoreTable, leaderboard_view as leaderboard_view
from .svg import COLOURS as COLOURS, clipped as clipped, legend_above as legend_above, quiet_grid as quiet_grid
from .svg import INK as INK, blank_figure as blank_figure, drawing as drawing, inline_svg as inline_svg
from .compared import percent as percent
