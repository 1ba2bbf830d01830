"""What Prefect needs: flow runs that drain, artifacts, deployments, a private server, and the demo.

Importing this package loads nothing of Prefect; each name is loaded when it is first asked for.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
