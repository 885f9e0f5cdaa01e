"""A worker process of the fuzzer: reads requests and writes answers, one JSON object a line, like `sweep.worker`.

A request gives the number of a program to write and run, or the lines of a program to run. The answer says whether the
results differ. A crash ends the process.
"""

from __future__ import annotations

import json
import os
import random
import sys
import warnings
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parents[1]


def _values_at_end(settings: dict[str, Any]) -> bool:
    return bool(settings["execution"] != "inline")


def write_and_run(case: dict[str, Any], settings: dict[str, Any], device: str) -> dict[str, Any]:
    """Writes and runs program number `case["number"]`. Returns its lines, and the difference if there is one.

    The lines depend on the CPU's results only. If a program crashes the device, the worker's lines are lost; another
    worker then writes the same lines with `device` "cpu"."""
    from fuzz import grammar, programs

    seed = case["seed"] * 1_000_003 + case["number"]
    draw = random.Random(seed)
    program = programs.Run(device, seed, _values_at_end(settings))
    writer = grammar.Writer(draw, program.cpu.names, device)
    raised = 0
    try:
        for _ in range(draw.randrange(4, settings["steps"] + 1)):
            raised += program.step(writer.line()) is not None
        program.finish()
    except programs.Difference as difference:
        program.other.wait()  # an error of this program must not reach the next one
        return {"result": "different", "detail": str(difference), "lines": program.lines}
    return {"result": "same", "detail": "", "lines": program.lines, "raised": raised}


def run_lines(lines: list[str], seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    from fuzz import programs

    try:
        programs.run(lines, settings["device"], seed, _values_at_end(settings))
    except programs.Difference as difference:
        return {"result": "different", "detail": str(difference)}
    return {"result": "same", "detail": ""}


def main() -> None:
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)
        settings = json.loads(sys.stdin.readline())
        os.environ["OPENREG_EXECUTION"] = settings["execution"]

        from sweep import worker

        if settings["setup"]:
            exec(settings["setup"], {})
        print(json.dumps({"torch": worker.start(settings["device"])}), file=answers)
        warnings.simplefilter("ignore")
        for line in sys.stdin:
            request = json.loads(line)
            if "lines" in request:
                answer = run_lines(request["lines"], request["seed"], settings)
            else:
                answer = write_and_run(request, settings, request.get("device", settings["device"]))
            print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    sys.path[:1] = [str(TOOLS), str(TOOLS.parent / "support")]
    main()
