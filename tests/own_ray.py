"""A Ray of a test module's own, in this process."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def own_ray(cpus: int, **more: Any) -> Iterator[None]:
    """A Ray with so many CPUs in a folder of its own; `more` goes to `ray.init`."""
    import ray

    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")  # sockets lie there, whose paths are short
    own = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    kept = {name: os.environ.get(name) for name in own}
    os.environ |= own
    ray.shutdown()  # from the cluster that tests share, which by `tests/spreading.py` are over where others have begun
    try:
        ray.init(
            address="local",
            num_cpus=cpus,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=80_000_000,
            _temp_dir=folder,
            **more,
        )
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        for name, value in kept.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
