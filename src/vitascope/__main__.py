"""``python -m vitascope`` is ``vitascope``."""

import sys

from vitascope.commands import main

sys.exit(main())
