from .comparison import (
    COLUMNS as COLUMNS,
    DEFINITIONS as DEFINITIONS,
    Comparison as Comparison,
    compared as compared,
    drained_with_a_backlog as drained_with_a_backlog,
    frontier as frontier,
    operations_when_steady as operations_when_steady,
    starts_until_served as starts_until_served,
)
from .contenders import (
    CONTENDERS as CONTENDERS,
    OURS as OURS,
    Terms as Terms,
    contender as contender,
    terms_of as terms_of,
)
from .drawn import SHAPES as SHAPES, drawn as drawn
from .driver import ReplayFailedError as ReplayFailedError, played as played
from .load import (
    SLOTS as SLOTS,
    Call as Call,
    InvalidLoadError as InvalidLoadError,
    Load as Load,
    Site as Site,
    backlog as backlog,
    load_of as load_of,
    ramp as ramp,
    steady as steady,
    step as step,
)
from .order import RAMP_NAME as RAMP_NAME, ReplayOrder as ReplayOrder, roomy_site as roomy_site
from .outcome import (
    PROMPT_S as PROMPT_S,
    Measures as Measures,
    asked_course as asked_course,
    awake_course as awake_course,
    measured as measured,
)
from .page import replay_figures as replay_figures, replay_page as replay_page
from .traces import Hardware as Hardware, traced_load as traced_load
