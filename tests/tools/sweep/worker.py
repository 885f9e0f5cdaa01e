"""A worker process: takes cases from standard input, one JSON object a line, and answers each with a line.

The answers go to the original standard output; what operators print goes to standard error, where the runner finds the
last words of a process that died. Run by `torch_conformance.runner`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[1]


def start(device: str) -> None:
    """Starts the device, and prepares the process to run beside other workers."""
    os.environ["OPENREG_RNG"] = "cpu"  # the results are compared with the CPU's

    import torch

    # The runner has a worker for every core; samples are small.
    torch.set_num_threads(1)
    # torch.manual_seed() queues and keeps a call, with its traceback, for every accelerator that is absent. That would
    # take two thirds of the time of a sweep.
    for absent in (torch.cuda, torch.xpu, torch.mtia):
        if absent.__name__ != f"torch.{torch.device(device).type}":
            absent.manual_seed_all = lambda seed: None
    torch.empty(0, device=device)


def main() -> None:
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)
        settings = json.loads(sys.stdin.readline())

        start(settings["device"])

        from sweep import checks

        print(json.dumps({}), file=answers)
        for line in sys.stdin:
            request = json.loads(line)
            if "list" in request:
                answer: object = checks.list_cases(**request["list"])
            else:
                answer = checks.run_case(request, settings["device"], settings["verbose"])
            print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    sys.path[:1] = [str(TOOLS), str(TOOLS.parent / "support")]
    main()
