"""The functions that checks use besides torch. A report has a script for each failed check, and the script imports
these functions. So all of them are public.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from .abilities import _missing, device_count, device_module
from .interfaces import interfaces
from .registry import NotOffered, missing_operator, note

__all__ = [
    "NotOffered",
    "accepted",
    "busy",
    "device_count",
    "device_module",
    "ends_silently",
    "equal",
    "in_threads",
    "interfaces",
    "note",
    "out_is_resized",
    "pending",
    "python",
    "raises",
    "read_if_lazy",
    "refused",
    "same",
    "start_python",
    "taken_or_refused",
    "usable",
    "wording",
]

# By default, CUDA's convolutions and recurrent layers compute float32 in TF32, which has three decimal digits. The kit
# compares float32 with float32. Most other devices ignore this setting. The public torch.backends.cudnn.allow_tf32
# refuses a new value after an import of PyTorch's test modules.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyTorch 2.9 warns of this setting
    torch._C._set_cudnn_allow_tf32(False)


# With True, the message of an error must have PyTorch's words, and the error PyTorch's type: --strict-messages.
strict_messages = False
# Errors of these types say that a call is wrong. CUDA raises RuntimeError in most cases. Backends in Python use assert.
_REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, AssertionError)


def _on_the_cpu(tensor: torch.Tensor) -> torch.Tensor:
    found = tensor.detach().cpu()
    said, is_so = (tuple(tensor.shape), tensor.dtype), (tuple(found.shape), found.dtype)
    assert said == is_so, f"the tensor has the shape and dtype {said}, and its copy on the CPU has {is_so}"
    return found


def same(actual: Any, expected: Any, **tolerance: float) -> None:
    """Raises AssertionError unless ``actual`` has the shape, dtype and values of ``expected``.

    ``actual`` and ``expected`` are tensors or structures of tensors, on any device. ``tolerance`` holds ``rtol`` and
    ``atol`` of `torch.testing.assert_close`. The tensors are compared on the CPU, so the device needs no operator for
    this. Synchronises.
    """
    actual, expected = tree_map_only(torch.Tensor, _on_the_cpu, (actual, expected))
    try:
        torch.testing.assert_close(actual, expected, check_device=False, equal_nan=True, **tolerance)
    except RuntimeError as error:
        # assert_close wraps the error of the comparison, and its own message does not repeat it.
        raise error.__cause__ or error from None


def equal(actual: Any, expected: Any) -> None:
    """Raises AssertionError, with both values, unless ``actual == expected``."""
    assert actual == expected, f"{actual!r} is not {expected!r}"


def wording(problem: str) -> None:
    """Notes that something has other words than PyTorch's. With `strict_messages`, raises AssertionError."""
    if strict_messages:
        raise AssertionError(problem)
    note(f"wording: {problem}".splitlines()[0])


@contextlib.contextmanager
def raises(kind: type[BaseException] | tuple[type[BaseException], ...], pattern: str = "") -> Iterator[None]:
    """Raises AssertionError unless the block raises ``kind`` with a message in which ``pattern`` is found.

    If ``kind`` is or has RuntimeError, another error that says that a call is wrong, or a message without ``pattern``,
    is noted and accepted, unless `strict_messages` is set. The error of a missing operator refuses nothing, so it is
    raised again, and so is NotOffered.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    wanted = " or ".join(each.__name__ for each in kinds)
    try:
        yield
    except NotOffered:
        raise
    except Exception as error:
        if missing_operator(error):
            raise
        problem = ""
        if not isinstance(error, kinds):
            problem = f"raises {type(error).__name__}, not {wanted}: {error}"
        elif not re.search(pattern, str(error)):
            problem = f"the message does not say {pattern!r}: {error}"
        if not problem:
            return
        if RuntimeError not in kinds or not isinstance(error, _REFUSALS):
            raise AssertionError(problem) from error
        wording(problem)
    else:
        raise AssertionError(f"does not raise {wanted}")


def accepted(call: Callable[[], Any], expected: Any) -> None:
    """Raises AssertionError unless ``call()`` gives ``expected``, as `same` compares.

    CUDA accepts the call, though its operands are on two devices. If the device refuses it, this is noted.
    """
    try:
        found = call()
        read_if_lazy(found)
    except _REFUSALS as error:
        if missing_operator(error):
            raise
        line = linecache.getline(call.__code__.co_filename, call.__code__.co_firstlineno).strip()
        note(f"stricter than CUDA: {line} raises {type(error).__name__}: {error}".splitlines()[0])
    else:
        same(found, expected)


def taken_or_refused(call: Callable[[], Any], expected: Any) -> None:
    """Raises AssertionError if ``call()`` gives something else than ``expected``, as `same` compares.

    CUDA's kernel refuses the call, but PyTorch's own checks allow it. If the device computes it, this is noted.
    """
    try:
        found = call()
        read_if_lazy(found)
    except _REFUSALS as error:
        if missing_operator(error):
            raise
    else:
        same(found, expected)
        line = linecache.getline(call.__code__.co_filename, call.__code__.co_firstlineno).strip()
        note(f"laxer than CUDA: {line} computes")


def read_if_lazy(results: Any) -> None:
    """Reads the results of a device that has no streams. Such a device may compute lazily, and refuse a call late.

    The results of a device with streams are not read. Such a device raises when it is called: the error of a kernel
    that was queued may end the use of the device.
    """

    def read(tensor: torch.Tensor) -> None:
        type = tensor.device.type
        if type != "cpu" and _missing("streams", type):
            tensor.detach().cpu()

    tree_map_only(torch.Tensor, read, results)


def refused(call: Callable[..., Any]) -> None:
    """Raises AssertionError unless the call raises an error about the devices of its operands.

    The result is read if the device may be lazy: see `read_if_lazy`.
    The error names the functions among the default values of a ``lambda``, which a loop over operators sets.
    """
    operators = [getattr(value, "__name__", value) for value in call.__defaults__ or ()]
    named = [operator for operator in operators if isinstance(operator, str)]
    try:
        with raises(RuntimeError, "(?i)device"):
            read_if_lazy(call())
    except AssertionError as error:
        raise AssertionError(": ".join([*named, str(error)])) from error


def out_is_resized(device: str, compute: Callable[..., torch.Tensor], *operands: torch.Tensor) -> None:
    """Raises AssertionError unless ``compute(*operands, out=...)`` does to ``out`` what it does on the CPU.

    ``operands`` are on the CPU, and are copied to the device. ``out`` is a part of a tensor of 32 elements. It has 0, 1
    or 30 elements, so ``compute`` must give it another size. The rest of the tensor is compared, too. Synchronises.
    """
    dims = compute(*operands, out=torch.empty(0)).dim()
    for size in (0, 1, 30):
        memory, wanted = torch.full((32,), -1.0).to(device), torch.full((32,), -1.0)
        shape = (size, *[1] * (dims - 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # PyTorch warns that it resizes a tensor that has elements
            out = compute(*[operand.to(device) for operand in operands], out=memory[:size].view(shape))
            expected = compute(*operands, out=wanted[:size].view(shape))
        assert out.shape == expected.shape, (
            f"out= of the shape {shape} has the shape {tuple(out.shape)} now, and not {tuple(expected.shape)}"
        )
        same(out.cpu(), expected)
        same(memory.cpu(), wanted)


def usable(device: str) -> None:
    """Raises unless the device can still copy and add. Synchronises."""
    same(torch.arange(5.0).to(device) + 1, torch.arange(5.0) + 1)


@functools.cache
def _adds(device: str) -> bool:
    """Whether the device adds two numbers. Must first be called before the first check, which may leave an error."""
    try:
        (torch.ones(1).to(device) + 1).cpu()
    except Exception:
        return False
    return True


def there_and_back(device: str) -> None:
    """Copies one number to the device and back. Raises the error of queued work, if there is one. Synchronises.

    Also adds, if the device could: a device that computes lazily may copy a new tensor without the work that waits.
    """
    adds = _adds(device)
    x = torch.ones(1).to(device)
    (x + 1 if adds else x).cpu()


def lost(device: str) -> str:
    """The first line of the error if the device no longer copies, or the empty string. Synchronises.

    On CUDA, some errors of a kernel, such as an index beyond the end, make the device unusable for the process. The
    error of a kernel that leaves the device usable is raised by the first copy only, so a second copy is tried.
    """
    return error_of_a_copy(device) and error_of_a_copy(device)


def error_of_a_copy(device: str) -> str:
    """The first line of what there_and_back() raises, or the empty string."""
    try:
        there_and_back(device)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def busy(device: str, seconds: float = 0.05) -> torch.Tensor:
    """Queues work of at most about ``seconds`` seconds on the current stream. Returns the result, which is all ones.

    First measures how long one matrix product takes, with the wait for its sum: the second product, because the first
    may load libraries. Then queues as many products as fit into ``seconds`` by this measure, at least one and at most
    2000. A product without the wait takes less time than measured, so the work may be much shorter. Does not wait for
    the queued work. But if the device computes each product before the call of the product returns, busy() returns when
    all the work is done. The result has the size 256 x 256. A GPU multiplies larger matrices, because its small
    products would be done as fast as they are launched.
    """
    for size in (256, 1024):
        x = torch.full((size, size), 1 / size, device=device)
        y = torch.ones(size, size, device=device)
        for _ in range(2):
            started = time.perf_counter()
            (x @ y).sum().item()
            once = max(time.perf_counter() - started, 1e-5)
        if once > 2e-4:
            break
    for _ in range(max(1, min(2000, int(seconds / once)))):
        y = x @ y
    return y if size == 256 else y[:256, :256].contiguous()


def pending(device: str) -> torch.Event:
    """Launches work on the current stream until some of it is pending. Returns an event behind this work.

    Each attempt launches twice the work of the one before. So a thread that the operating system stops between the
    launch and the question only costs an attempt. Raises NotOffered if no attempt leaves work behind: the device
    computes before a call returns.
    """
    stream = torch.accelerator.current_stream(device)
    x = torch.full((256, 256), 1 / 256).to(device)
    for attempt in range(10):
        y = x
        for _ in range(1 << attempt):
            y = y @ x
        event = stream.record_event()
        idle = stream.query()
        if not event.query():
            assert not idle, "Stream.query() says that the stream is done, and an event on it is not"
            return event
    raise NotOffered("the device computes before a call returns")


def capture(
    device: str, compute: Callable[[], Any], pool: tuple[int, int] | None = None
) -> tuple[torch.accelerator.Graph, Any]:
    """A graph of what ``compute`` launches on a stream of its own, and its result. Waits for the device before."""
    torch.accelerator.synchronize(device)
    graph = torch.accelerator.Graph(pool=pool)
    with torch.Stream(device=device), graph:
        result = compute()
    return graph, result


def start_python(code: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` in a new Python process, with these environment variables (None removes a variable).

    Returns its exit status and output. Raises NotImplementedError if the process prints that the device has no kernel
    for an operator. Has no time limit: a check that waits for a process that hangs is hung.
    """
    env = {**os.environ, **{name: value for name, value in environment.items() if value is not None}}
    for name, value in environment.items():
        if value is None:
            env.pop(name, None)
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    says_so = re.search("^NotImplementedError", result.stderr, re.MULTILINE)
    if operator := missing_operator((NotImplementedError if says_so else RuntimeError)(result.stderr)):
        raise NotImplementedError(f"Could not run '{operator}' in a process that the check has started")
    return result


def ends_silently(code: str) -> None:
    """Raises AssertionError unless a new process that runs ``code`` has the exit status 0, and its end is silent.

    Its end is silent if it writes nothing to stderr after ``code``. While ``code`` runs, the device may write, for
    example that it compiles a kernel.
    """
    mark = "the end of the code\n"
    result = start_python(f"{textwrap.dedent(code)}\nimport sys; sys.stderr.write({mark!r})")
    equal((result.returncode, result.stderr.rpartition(mark)[2]), (0, ""))


def in_threads(*calls: Callable[[], Any]) -> list[Any]:
    """What the calls return. Each has a thread of its own, and all run at once.

    If calls raise, raises the error of the first of them, when all have ended.
    """
    futures: list[Future[Any]] = [Future() for _ in calls]

    def work(future: Future[Any], call: Callable[[], Any]) -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(futures, calls, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [future.result() for future in futures]


def python(code: str, **environment: str | None) -> str:
    """The standard output of ``code`` in a new Python process.

    Raises AssertionError if the process fails, with the end of its error output, or of its output if there is none.
    """
    result = start_python(code, **environment)
    assert result.returncode == 0, (
        f"exit status {result.returncode}: {(result.stderr or result.stdout).strip()[-1500:]}"
    )
    return result.stdout
