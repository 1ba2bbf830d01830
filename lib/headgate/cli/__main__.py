"""`python -m headgate.cli` is the command `headgate`."""

import sys

from headgate.cli import main

sys.exit(main())
