"""A worker process of the fuzzer: takes requests and answers them, JSON objects on a line, as `sweep.worker`.

Writes and runs the program of a number, or runs the lines of one. A difference is answered, a crash ends the process.
"""

from __future__ import annotations

import json
import os
import random
import sys
import warnings
from typing import Any


def _values_at_end(settings: dict[str, Any]) -> bool:
    return bool(settings["execution"] != "inline")


def write_and_run(case: dict[str, Any], settings: dict[str, Any], device: str) -> dict[str, Any]:
    """The lines of program number `case["number"]`, and in what the device differed, if it did.

    Depends on the CPU's results only, so that a program that crashes the device can be written with `device` "cpu"."""
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
        program.other.wait()  # what it raises is not the next program's
        return {"status": "different", "detail": str(difference), "lines": program.lines}
    return {"status": "same", "detail": "", "lines": program.lines, "raised": raised}


def run_lines(lines: list[str], seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    from fuzz import programs

    try:
        programs.run(lines, settings["device"], seed, _values_at_end(settings))
    except programs.Difference as difference:
        return {"status": "different", "detail": str(difference)}
    return {"status": "same", "detail": ""}


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
                answer = write_and_run(request["case"], settings, request.get("device", settings["device"]))
            print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
