"""A worker process. It runs the checks that standard input names, one JSON object on each line, and answers each.

The answers go to the original standard output. The output of checks goes to standard error. If the process dies, the
runner reads the reason from standard error.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
import warnings
from typing import Any

from .registry import NotOffered


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip()[:2000]


def _first_lines(error: BaseException | None) -> str:
    """The first line of an error and of each cause, because PyTorch's error does not repeat the backend's error."""
    found = []
    while error is not None:
        found.append(_message(error).splitlines()[0])
        error = error.__cause__
    return " Caused by ".join(found)


def run_check(name: str, device: str) -> dict[str, Any]:
    """The result of one check: ``result``, ``detail`` (a text) and, after a failure, ``traceback``."""
    from . import sweep
    from .abilities import require
    from .registry import all_checks

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if name.startswith(sweep.PREFIXES):
                detail = sweep.run(name, device)
            else:
                check = all_checks()[name]
                require(check.needs, device)
                check.body(device)
                detail = ""
        return {"result": "passed", "detail": detail or ""}
    except NotOffered as reason:
        return {"result": "not offered", "detail": (str(reason) or repr(reason.__cause__)).splitlines()[0]}
    except Exception as error:
        return {"result": "failed", "detail": _message(error), "traceback": traceback.format_exc()[-4000:]}


def _may_lose_the_device(name: str) -> bool:
    """Whether the device may be unusable after a check: the samples of errors have indices beyond the end."""
    from .registry import all_checks

    check = all_checks().get(name)
    return check.may_lose_the_device if check else name.endswith("/error")


def run_and_look(name: str, device: str) -> dict[str, Any]:
    """The result of one check, with the entry ``lost`` if the device is unusable afterwards.

    A check fails if it should leave the device usable, and does not, or if work that it has queued fails afterwards.
    """
    from .kit import error_of_a_copy, lost

    worked, process = not lost(device), os.getpid()
    answer = run_check(name, device)
    if os.getpid() != process:  # a child that the check forked has returned from the check
        os._exit(1)
    if worked and (error := error_of_a_copy(device)):
        problem = "Work that the check queued has failed"
        if is_lost := lost(device):
            answer["lost"] = is_lost
            problem = "The device is unusable after the check"
        if answer["result"] in ("passed", "not offered") and not _may_lose_the_device(name):
            answer |= {"result": "failed", "detail": f"{problem}: {error}"}
    return answer


def why_missing(device: str) -> str:
    """Why PyTorch has no device of this type, or the empty string."""
    import torch

    try:
        if torch.device(device).type != device:
            return f"PyTorch reads {device!r} as the type {torch.device(device).type!r}."
        torch.empty(0, device=device)
    except Exception as error:
        return _message(error).splitlines()[0]
    return ""


def main() -> None:
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)
        settings = json.loads(sys.stdin.readline())
        try:
            import torch

            # Checks are small, and several workers run at the same time.
            torch.set_num_threads(settings.get("threads", 1))
            greeting = {"torch": torch.__version__}
        except BaseException as error:
            print(json.dumps({"error": _first_lines(error)}), file=answers)
            return
        print(json.dumps(greeting), file=answers)
        for line in sys.stdin:
            request = json.loads(line)
            if "list" in request:
                from . import sweep

                try:
                    print(json.dumps(sweep.names(request["list"])), file=answers)
                except ImportError as error:
                    print(json.dumps({"error": _first_lines(error)}), file=answers)
                continue
            if "find" in request:
                print(json.dumps(why_missing(request["find"])), file=answers)
                continue
            started = time.monotonic()
            answer = run_and_look(request["name"], settings["device"])
            answer["seconds"] = round(time.monotonic() - started, 3)
            gc.collect(0)
            print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
