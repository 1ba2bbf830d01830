"""What can be said against a pool before any of its engines is asked, claimed or woken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from headgate.elastic.engines import same_for_all
from headgate.elastic.errors import InvalidElasticError
from headgate.elastic.gateway.callers import Callers
from headgate.elastic.gateway.pool_file import PoolFile
from headgate.elastic.gateway.settings import GatewaySettings
from headgate.net.listener import bound


def check_before(pool_file: PoolFile, environ: Mapping[str, str], *, further_engines: int = 0) -> None:
    """Refuse a pool that could not be served whatever its engines say.

    Args:
        pool_file: of the pool.
        environ: where keys and tokens come from.
        further_engines: workers that it has beside those of the file that have an address.

    Raises:
        InvalidElasticError: an engine is named twice, there are fewer workers than are to be awake, or a variable
            is not set.
        InvalidSettingError: other machines could reach the gateway, and it asks nobody for a token.
    """
    spellings: dict[str, list[str]] = defaultdict(list)
    for spec in pool_file.specs(environ):
        spellings[same_for_all(spec.url)].append(spec.url)
    twice = [" and ".join(urls) for urls in spellings.values() if len(urls) > 1]
    if twice:
        raise InvalidElasticError(f"an engine is in a pool once (got {'; '.join(twice)})")
    workers, lowest = sum(map(len, spellings.values())) + further_engines, pool_file.elastic_config.min_workers
    if lowest > workers:
        raise InvalidElasticError(f"min_workers must be <= the workers of the pool (got {lowest} > {workers})")
    Callers.of(pool_file.gateway, environ).close()


def check_port(settings: GatewaySettings) -> None:
    """Refuse an address that something else listens on; it may still be taken in between.

    Raises:
        InvalidSettingError: it cannot be listened on.
    """
    bound(settings.host, settings.port).close()
