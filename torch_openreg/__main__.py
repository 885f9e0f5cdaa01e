"""``python -m torch_openreg``: the same program as the console script ``torch-openreg``."""

import sys

from torch_openreg._cli import main

sys.exit(main())
