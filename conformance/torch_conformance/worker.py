"""A worker process. It runs the checks that standard input names, one JSON object on each line, and answers each.

The answers go to the original standard output. The output of checks goes to standard error. If the process dies, the
runner reads the reason from standard error.
"""

from __future__ import annotations

import ast
import gc
import json
import linecache
import os
import re
import sys
import time
import traceback
import warnings
from typing import Any

from .registry import BAD, NotOffered


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip()[:2000]


def _first_lines(error: BaseException | None) -> str:
    """The first line of an error and of each cause, because PyTorch's error does not repeat the backend's error."""
    found = []
    while error is not None:
        found.append(_message(error).splitlines()[0])
        error = error.__cause__
    return " Caused by ".join(found)


def _statement(error: BaseException, file: str) -> str:
    """The statement of ``file`` that raised the error, on one line, or the empty string."""
    frames = [frame for frame in traceback.walk_tb(error.__traceback__) if frame[0].f_code.co_filename == file]
    if not frames:
        return ""
    number = frames[-1][1]
    source = "".join(linecache.getlines(file))
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt) and node.lineno <= number]
    # Of the statements around the line, the innermost one begins last.
    around = [node for node in found if number <= (node.end_lineno or node.lineno)]
    if not around:  # the file has changed since it was imported
        return ""
    text = ast.get_source_segment(source, max(around, key=lambda node: (node.lineno, node.col_offset))) or ""
    return " ".join(text.split())[:300]


# The words with which backends say that they have no tensors of a dtype, or no kernel for it.
_NO_DTYPE = re.compile(r"(?i)\bunsupported (?:\w+ ){0,3}dtype\b")

# PyTorch's error if an operator calls a table of kernels (a DispatchStub) that has no place for the device's type.
_NO_SLOT = "DispatchStub: unsupported device type"

# PyTorch's error for the fused attention that only a backend implements. A device may repeat it in an error of its own.
_FOR_BACKENDS = re.compile(r"not implemented[.:] This is an operator for privateuse1 backends")


def _lacks(error: BaseException, device: str, file: str) -> str:
    """Why an error means that the backend lacks something optional, or the empty string. ``file`` has the check.

    PyTorch raises NotImplementedError for a function of the hooks, of a generator or of an allocator that a backend
    does not override. A module that lacks a function which the check calls raises AttributeError. If PyTorch calls the
    function, as torch.load calls torch.TYPE.device, programs fail, and so does the check. A dtype is optional too. A
    device that is neither in PyTorch nor of the type PrivateUse1 cannot fill the stubs of PyTorch.
    """
    import torch

    module = getattr(torch, torch.device(device).type, None)
    *_, last = traceback.walk_tb(error.__traceback__)
    called_here = last[0].f_code.co_filename == file
    if isinstance(error, AttributeError) and called_here and module is not None and error.obj is module:
        return f"torch.{torch.device(device).type} has no {error.name}"
    if isinstance(error, NotImplementedError) and "Could not run" not in str(error):
        return _message(error).splitlines()[0]
    if _FOR_BACKENDS.search(str(error)):
        return _message(error).splitlines()[0]
    if _NO_SLOT in str(error):
        return f"PyTorch's stub has no place for a kernel of this device: {_message(error)}".splitlines()[0]
    if _NO_DTYPE.search(str(error)):
        return f"the device lacks a dtype: {_message(error)}".splitlines()[0]
    return ""


def run_check(name: str, device: str) -> dict[str, Any]:
    """The result of one check: ``result`` and ``detail`` (a text).

    After a failure also ``traceback``, and ``at``: the statement of the check that failed. If the device only lacks an
    operator, ``operator`` is its name.
    """
    from . import sweep
    from .abilities import require
    from .registry import NOTES, all_checks, missing_operator

    NOTES.clear()
    file = sweep.__file__
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if name.startswith(sweep.PREFIXES):
                detail = sweep.run(name, device)
            else:
                check = all_checks()[name]
                file = check.body.__code__.co_filename
                require(check.needs, device)
                check.body(device)
                detail = ""
    except NotOffered as reason:
        return {"result": "not offered", "detail": (str(reason) or repr(reason.__cause__)).splitlines()[0]}
    except Exception as error:
        if operator := missing_operator(error):
            return {"result": "needs operator", "detail": f"needs operator {operator}", "operator": operator}
        if reason := _lacks(error, device, file):
            return {"result": "not offered", "detail": reason}
        answer = {"result": "failed", "detail": _message(error), "traceback": traceback.format_exc()[-4000:]}
        return answer | ({"at": at} if (at := _statement(error, file)) and file != sweep.__file__ else {})
    if NOTES:
        return {"result": "noted", "detail": "\n".join(NOTES)}
    return {"result": "passed", "detail": detail or ""}


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
        if answer["result"] not in BAD and not _may_lose_the_device(name):
            answer |= {"result": "failed", "detail": f"{problem}: {error}"}
    return answer


def why_missing(device: str) -> str:
    """Why no check can pass on a device of this type, or the empty string."""
    import torch

    problem = f"There is no device of the type {device!r} in this environment"
    try:
        if torch.device(device).type != device:
            return f"{problem}: PyTorch reads {device!r} as the type {torch.device(device).type!r}."
        problem = f"A tensor without elements cannot be made on the device {device!r}"
        torch.empty(0, device=device)
    except Exception as error:
        return f"{problem}: {_message(error).splitlines()[0]}"
    return ""


def main() -> None:
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)
        settings = json.loads(sys.stdin.readline())
        try:
            import torch

            # Checks are small, and several workers run at the same time.
            torch.set_num_threads(settings.get("threads", 1))
            if settings.get("strict_messages"):
                from . import kit

                kit.strict_messages = True
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
            # After a torch.load that raised, the thread keeps its map_location, and pickle puts tensors there.
            torch.serialization._serialization_tls.map_location = None
            print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
