"""The memory of a policy: growing totals, and the maximum of recent values."""

from __future__ import annotations

import bisect
from collections import deque
from itertools import pairwise


class Total:
    """A growing total, interpolated linearly between its readings. Owned by one policy.

    Invariants: times and values never fall; at most one reading is older than `keeps_s` before the last.
    """

    def __init__(self, keeps_s: float) -> None:
        self._keeps_s = keeps_s
        self._times: list[float] = []
        self._values: list[float] = []

    @property
    def age_s(self) -> float:
        """Seconds between the first reading kept and the last."""
        return self._times[-1] - self._times[0] if self._times else 0.0

    def note(self, value: float, now: float) -> None:
        """Add a reading; of several at the same time the last counts."""
        if self._times and self._times[-1] == now:
            self._values[-1] = value
            return
        self._times.append(now)
        self._values.append(value)
        if (old := bisect.bisect_right(self._times, now - self._keeps_s) - 1) > 0:
            del self._times[:old]
            del self._values[:old]

    def back(self, ago_s: float) -> float:
        """Return its value `ago_s` seconds before the last reading; the first value for anything before that."""
        at = self._times[-1] - ago_s
        after = bisect.bisect_right(self._times, at)
        if after == 0:
            return self._values[0]
        if after == len(self._times):
            return self._values[-1]
        begin, end = self._times[after - 1], self._times[after]
        low, high = self._values[after - 1], self._values[after]
        return low + (high - low) * (at - begin) / (end - begin)

    def grown(self, over_s: float) -> float:
        """Return its growth in the last `over_s` seconds."""
        return self._values[-1] - self.back(over_s)

    def rate(self, over_s: float) -> float:
        """Return its growth per second over `over_s` seconds, or since the first reading; 0 before the second."""
        over_s = min(over_s, self.age_s)
        return self.grown(over_s) / over_s if over_s > 0 else 0.0

    def validate(self) -> None:
        """Assert that times and values grow, and that no unneeded readings are kept."""
        assert len(self._times) == len(self._values)
        assert all(a < b for a, b in pairwise(self._times)), self._times
        assert all(a <= b for a, b in pairwise(self._values)), self._values
        assert len(self._times) < 3 or self._times[1] > self._times[-1] - self._keeps_s, self._times


class Highest:
    """The maximum of the last `window_s` seconds. Owned by one policy.

    Invariant: the values kept decrease from the oldest to the newest, so the first is the maximum.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._kept: deque[tuple[float, float]] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether no value was taken yet."""
        return not self._kept

    def note(self, value: float, now: float) -> float:
        """Add a value and return the maximum of the window that ends now."""
        while self._kept and self._kept[-1][1] <= value:
            self._kept.pop()
        self._kept.append((now, value))
        while self._kept[0][0] < now - self.window_s:
            self._kept.popleft()
        return self._kept[0][1]

    @property
    def value(self) -> float:
        """The maximum of the window that ends at the last value added."""
        return self._kept[0][1]

    def validate(self) -> None:
        """Assert the order of the values kept."""
        assert all(a[0] <= b[0] and a[1] > b[1] for a, b in pairwise(self._kept)), self._kept
