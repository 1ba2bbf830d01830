"""The integration with Prefect: flow runs that drain, artifacts, deployments, a private server, and the demo.

Importing this package imports nothing of Prefect; each name is loaded on first use.
"""

from headgate.core import names_by_stub

__getattr__, __dir__, __all__ = names_by_stub(__name__, __file__)
