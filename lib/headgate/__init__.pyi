from .config import Settings as Settings, load_settings as load_settings
from .core import (
    Message as Message,
    Model as Model,
    ModelBudget as ModelBudget,
    Sample as Sample,
    Secret as Secret,
)
from .core.errors import HeadgateError as HeadgateError
from .environments import (
    Continue as Continue,
    Environment as Environment,
    EnvironmentSpec as EnvironmentSpec,
    Episode as Episode,
    Score as Score,
    environment as environment,
)
from .evaluation import (
    Evaluation as Evaluation,
    Scores as Scores,
    evaluate as evaluate,
    keep_sampling as keep_sampling,
    leaderboard as leaderboard,
)
from .reports import Leaderboard as Leaderboard
from .storage import SampleStore as SampleStore, open_store as open_store

__version__: str
