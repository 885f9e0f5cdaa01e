"""A program that forks: fork() returns what the child and its parent print."""

from __future__ import annotations

from comparison import PRELUDE
from programs import Run

# The child prints to the same stdout as its parent, which then prints the child's exit status.
FORK = """
import os, sys
{parent}
pid = os.fork()
if pid == 0:
    try:
        {child}
    except RuntimeError as error:
        print(error, flush=True)
    sys.exit(0)
_, status = os.waitpid(pid, 0)
print("child exited with", status)
assert {parent_still_works}
"""


def fork(run_python: Run, child: str, parent: str = "x = torch.ones(4, device=DEVICE)") -> str:
    still = "(torch.ones(4, device=DEVICE) * 2).cpu().tolist() == [2.0] * 4"
    result = run_python(
        PRELUDE + FORK.format(parent=parent, child=child, parent_still_works=still), status=0, errors=""
    )
    return result.stdout
