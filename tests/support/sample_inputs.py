"""The samples of PyTorch's databases of operators, as the conformance kit makes them, also for programs that do not have
the kit on their path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "conformance"))

from torch_conformance.databases import sample_inputs as sample_inputs
