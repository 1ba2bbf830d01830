"""The errors of Headgate: one small hierarchy; each has a code, a sentence, the next step and an HTTP status."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import ClassVar


class HeadgateError(Exception):
    """Any error that Headgate raises on purpose.

    Attributes:
        code: stable identifier, the heading of the error in the documentation.
        http_status: status that an HTTP API of Headgate answers with.
        exit_code: exit status that the command line ends with.
        next_step: what the reader can do now.
    """

    code: ClassVar[str] = "headgate_error"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    next_step: str = "Run the command again with --verbose and report the traceback."

    def __init__(self, message: str, *, next_step: str | None = None) -> None:
        super().__init__(message)
        if next_step is not None:
            self.next_step = next_step

    @property
    def message(self) -> str:
        """The sentence that says what is wrong, without the next step."""
        return str(self.args[0])

    def __str__(self) -> str:
        return f"{self.message}{'' if self.message.endswith(('.', '?')) else '.'} {self.next_step}"


class InvalidInputError(HeadgateError):
    """Something that a user wrote cannot be used: a setting, a roster, an option, a campaign."""

    code = "invalid_input"
    http_status = 422
    exit_code = 2
    next_step = "Correct the value and run the command again."


class InvalidNameError(InvalidInputError):
    """A name of a model, environment or campaign has a form that cannot be stored or shown safely."""

    code = "invalid_name"

    def __init__(self, message: str, *, rule: str) -> None:
        super().__init__(message, next_step=f"A name is {rule}.")


class InvalidSettingError(InvalidInputError):
    """A setting has an unknown name, an impossible value, or contradicts another one."""

    code = "invalid_setting"
    next_step = "`headgate config show` lists every setting with its value and where it came from."


class InvalidRosterError(InvalidInputError):
    """A roster of models cannot be read, or one of its entries breaks a rule."""

    code = "invalid_roster"
    next_step = "Fix the entry; `headgate models --roster FILE` checks a roster without running anything."


class UnknownEnvironmentError(InvalidInputError):
    """No installed package registers the named environment."""

    code = "unknown_environment"
    http_status = 404
    next_step = "`headgate environments` lists what is registered."


class JudgeNeededError(InvalidInputError):
    """A campaign without a judge would sample an environment whose answers need one."""

    code = "judge_needed"
    next_step = "Name a judge (judge_model, judge_url), run it with `headgate judge`, or leave the environment out."


class MissingExtraError(HeadgateError):
    """A feature needs a package that is not installed."""

    code = "missing_extra"
    exit_code = 3

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the optional extra {extra!r}", next_step=f"Install it: pip install 'headgate[{extra}]'."
        )


class EnvironmentFailedError(HeadgateError):
    """An environment raised, hung or gave a score outside [0, 1]: never the model's failure."""

    code = "environment_failed"
    next_step = "The sample is recorded as an environment error; its task can be run again by index."


class HostLostError(EnvironmentFailedError):
    """The machine or host of an episode is gone, through no fault of the environment: the episode is played again."""

    code = "host_lost"
    next_step = "You need not do anything: the task waits for another host."


class EnvironmentHostsError(HeadgateError):
    """The configured Ray cluster provides no hosts for environments."""

    code = "environment_hosts"
    http_status = 503
    exit_code = 3
    next_step = "Check ray_address and that `ray status` works there, or unset environment_hosts."


class SandboxUnavailableError(EnvironmentFailedError):
    """This machine lacks a protection of the sandbox for untrusted programs that an environment requires."""

    code = "sandbox_unavailable"
    exit_code = 3
    next_step = "Run on Linux with user namespaces or seccomp, or leave out environments that run programs."


class SamplesKeepFailingError(HeadgateError):
    """A campaign has stopped by itself because most of its samples failed for good."""

    code = "samples_keep_failing"
    exit_code = 4
    next_step = (
        "Read the last errors with `headgate query`, fix their cause, run again; `early_stop` turns this stop off."
    )


class StoreError(HeadgateError):
    """The sample store refused, failed or timed out; the samples stay in the spool."""

    code = "store_failed"
    http_status = 503
    exit_code = 3
    next_step = "Check the store's address, rights and free space; the upload is tried again by itself."


class StoreNotWritableError(StoreError):
    """The sample store cannot be written at all (path, rights, bucket)."""

    code = "store_not_writable"
    next_step = "Choose a folder that can be written, or check the bucket's name and credentials."


class CorruptDataError(StoreError):
    """A part or manifest cannot be read or does not match its checksum."""

    code = "corrupt_data"
    http_status = 500
    next_step = "It was left out and reported; restore the object from a backup or delete its manifest."


class NoSamplesError(HeadgateError):
    """A store has no samples, or none of the requested time, so there is nothing to show."""

    code = "no_samples"
    http_status = 404
    exit_code = 3
    next_step = "Sample first with `headgate run`, or name another store by --store."


class JournalError(HeadgateError):
    """The journal cannot be opened or reached, or belongs to another version of Headgate."""

    code = "journal_failed"
    exit_code = 3
    next_step = "Check the folder's rights and free space, or choose another one with --journal."


class CampaignInUseError(HeadgateError):
    """Another journal samples this campaign into this store: every task would be sampled twice."""

    code = "campaign_in_use"
    http_status = 409
    exit_code = 3
    next_step = "Use that journal (--journal), or another --campaign. A killed process counts as running for 180 s."


class ClockDisagreesError(HeadgateError):
    """This machine's clock disagrees with that of the store or of Prefect, or with a process of the same journal."""

    code = "clock_disagrees"
    http_status = 503
    exit_code = 3
    next_step = "Set the clock that is wrong, by NTP for instance, and start again; nothing was changed."


class OrchestratorUnreachableError(HeadgateError):
    """The Prefect API does not answer."""

    code = "orchestrator_unreachable"
    http_status = 503
    exit_code = 3
    next_step = "Start it with `prefect server start`, or set PREFECT_API_URL; `headgate doctor` checks it."


class UnauthorizedError(HeadgateError):
    """A request to an API of Headgate carries no token, or a wrong one."""

    code = "unauthorized"
    http_status = 401
    exit_code = 2
    next_step = "Send `Authorization: Bearer TOKEN` with the token that the server was started with."


class ForbiddenError(HeadgateError):
    """The token is valid but does not allow this."""

    code = "forbidden"
    http_status = 403
    exit_code = 2
    next_step = "Use a token with the scope that the message names."


class ControlChangedError(HeadgateError):
    """Somebody else has changed the same control since it was last read."""

    code = "control_changed"
    http_status = 409
    exit_code = 3
    next_step = "Look at the current value with `headgate controls`, and decide again."


class MisdirectedError(HeadgateError):
    """A server without tokens was called by a host name that is not one of its own."""

    code = "misdirected"
    http_status = 421
    exit_code = 3
    next_step = "Call it by its address or by localhost, or give it tokens."


class CrossSiteError(HeadgateError):
    """A web page made a browser send this, or the browser sent a remembered password."""

    code = "cross_site"
    http_status = 403
    exit_code = 3
    next_step = "Only programs may do this; they send `Authorization: Bearer TOKEN`."


class NotFoundError(HeadgateError):
    """An API of Headgate does not have what was requested."""

    code = "not_found"
    http_status = 404
    exit_code = 2
    next_step = "The listing endpoint shows what exists."


class AdmissionDeniedError(HeadgateError):
    """A request to a provider was not admitted: it waited too long, its model was withdrawn, or the run ends.

    Attributes:
        reason: stable identifier of the rule that refused it.
        retry_at: monotonic seconds at which asking again can help; None where it cannot.
    """

    code = "admission_denied"
    http_status = 503
    next_step = "`headgate why TASK` says what holds a model's requests; raise its cap or its longest wait."

    def __init__(self, message: str, *, reason: str, retry_at: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_at = retry_at


class BlocksEventLoopError(HeadgateError, RuntimeError):
    """A blocking call was made from inside a running event loop, which it would stall."""

    code = "blocks_event_loop"
    next_step = "Await the asynchronous form instead, or call it from a thread of its own."


def errors_by_code(*modules: ModuleType) -> dict[str, type[HeadgateError]]:
    """Return the errors in modules that are made from a message alone, by code; the last of several with one code."""
    kinds = (kind for module in modules for kind in vars(module).values() if isinstance(kind, type))
    errors = (kind for kind in kinds if issubclass(kind, HeadgateError))
    return {kind.code: kind for kind in errors if kind.__init__ is HeadgateError.__init__}


def nearest_name(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name most similar to `name`; None where none is similar enough (`cutoff` as in difflib)."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def some_of(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return a list of the first names for a sentence, and how many more there are."""
    more = len(names) - most
    return separator.join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "", cutoff: float = 0.6) -> str:
    """Return the end of a message on an unknown name: a suggestion of the nearest known one, or `otherwise`."""
    near = nearest_name(name, known, cutoff)
    return f"; did you mean {near!r}?" if near else otherwise
