"""``python -m vitascope`` is ``vitascope``."""

import sys

from vitascope.cli import main

sys.exit(main())
