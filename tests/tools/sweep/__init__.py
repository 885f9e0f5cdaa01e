"""The sweep runs PyTorch's test databases, and entries of its own, on the device and on the CPU, and compares both.

``python -m tests.tools.sweep --help`` says what can be selected. The runner of the conformance kit drives the workers and
finds out which case crashed. ``worker`` runs cases one at a time, ``checks`` says what a case computes, ``report``
counts and prints.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "conformance"))
