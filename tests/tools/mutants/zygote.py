"""A process that has imported torch, but no backend, and tries each mutant in a forked child.

`import torch` takes most of the time of a check. A child loads the backend with its mutant on, and runs checks until
one does not pass. Standard input has a request a line, {"mutant", "mode", "environment", "names", "insist"};
standard output has an answer a line. The mutant's name is in the environment, so processes that a check starts have
the mutant too.

A check that is not offered any more catches the mutant too, because the baseline says that it passed. If the request
sets "insist", the child goes on to look for a check that fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import Any

from . import table

SECONDS = 120  # for one check, on a machine that does other things too


def child(request: dict[str, Any], answers: int) -> None:
    os.setsid()
    os.environ.pop("TORCH_DEVICE_BACKEND_AUTOLOAD")
    os.environ.update(request["environment"], BACKEND_MUTANT=request["mutant"])
    exec(table.ignore_variable())
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    import torch
    from torch_conformance import kit
    from torch_conformance.worker import run_check

    kit.strict_messages = True

    def answer(found: dict[str, Any]) -> None:
        os.write(answers, json.dumps(found).encode() + b"\n")

    answer({"caught": "import torch", "result": "crashed"})
    torch._import_device_backends()
    lost: dict[str, Any] = {"caught": None}
    for name in request["names"]:
        answer({"caught": name, "result": "crashed"})  # the answer if the child dies in this check
        signal.alarm(SECONDS)
        result = run_check(name, "openreg")
        if result["result"] == "not offered":  # some checks decline because the machine was busy
            result = run_check(name, "openreg")
        signal.alarm(0)
        if result["result"] == "passed" or (result["result"] == "not offered" and lost["caught"]):
            continue
        found = {"caught": name, "result": result["result"], "detail": result["detail"][:200]}
        if result["result"] == "failed" or not request["insist"]:
            answer(found)
            return
        lost = found
    answer(lost)


def attempt(request: dict[str, Any]) -> dict[str, Any]:
    """The last answer of the child. If the alarm ended the child, the result is "hung"."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            child(request, write)
        except BaseException as error:
            os.write(
                write, json.dumps({"caught": "import torch", "result": "failed", "detail": str(error)[:200]}).encode()
            )
        finally:
            os._exit(0)
    os.close(write)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])  # all answers together are less than a pipe holds
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # workers that a check has left behind
    text = os.read(read, 1 << 20).decode()
    os.close(read)
    last: dict[str, Any] = json.loads(text.splitlines()[-1])
    if last.get("caught") and status == -signal.SIGALRM:
        last["result"] = "hung"
    return {**last, "mutant": request["mutant"], "mode": request["mode"]}


def main() -> None:
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch
    from torch_conformance import mixes, sweep
    from torch_conformance.registry import all_checks

    torch.set_num_threads(1)
    all_checks()
    # The data of the sweeps is read once, here, and every child inherits it.
    sweep.names("quick")
    mixes.oracle()
    for line in sys.stdin:
        print(json.dumps(attempt(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
