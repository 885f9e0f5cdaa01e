"""The environment variables that only a simulated device has: rows for torch_openreg._environment."""

from __future__ import annotations

from collections.abc import Mapping

# Internal: the file descriptors through which a fork server of the pytest plugin talks to its parent process.
FORK_SERVER = "_TORCH_OPENREG_FORK_SERVER"

_DEVICE = "third_party/openreg/csrc/environment.cpp"
_SWITCH = ("0", "1")

# Name, kind, default, meaning, reader and choices.
VARIABLES = (
    ("OPENREG_DEVICE_COUNT", "number", "2, or the model's", "the number of devices", _DEVICE),
    ("OPENREG_DEVICE_MEMORY", "size", "16G, or the model's", "the bytes of each device", _DEVICE),
    (
        "OPENREG_EXECUTION",
        "choice",
        "inline",
        "when queued work runs",
        _DEVICE,
        ("inline", "async", "chaos", "early", "late", "random:SEED"),
    ),
    ("OPENREG_CHAOS_SEED", "number", "0", "the seed of the order of work in the mode chaos", _DEVICE),
    (
        "OPENREG_ORDER",
        "order",
        "",
        "where the order of work is written, or the file that it follows",
        "third_party/openreg/csrc/simulator/order.cpp",
    ),
    ("OPENREG_POISON", "choice", "0", "whether free memory holds NaN", "csrc/simulator/Poison.cpp", _SWITCH),
    (
        "OPENREG_FAULTS",
        "program",
        "",
        "what goes wrong on purpose",
        "torch_openreg/simulator/openreg/faults.py",
    ),
    (
        "OPENREG_SANITIZER",
        "choices",
        "",
        "what the sanitizer looks for",
        "torch_openreg/simulator/openreg/sanitizer.py",
        ("race", "init", "memory", "leak", "graph"),
    ),
    (
        "OPENREG_CHECK",
        "folder",
        "",
        "where the command check lets each process write what it did",
        "torch_openreg/simulator/openreg/_recorder.py",
    ),
    # Before the model, whose restrictions must be in front of the kernels that dry execution skips.
    (
        "OPENREG_DRY",
        "size",
        "",
        "the size up to which tensors are computed in dry execution",
        "torch_openreg/simulator/openreg/dry.py",
    ),
    (
        "OPENREG_DRY_ASSUME",
        "file",
        "",
        "the values that dry execution gives in place of those that nobody computed",
        "torch_openreg/simulator/openreg/dry.py",
    ),
    (
        "OPENREG_DRY_REPORT",
        "folder",
        "",
        "where the command dry lets the process write what memory it used",
        "torch_openreg/simulator/openreg/_dry_report.py",
    ),
    (
        "OPENREG_DRY_CHANGE",
        "word",
        "",
        "the change that the command dry tries with the process",
        "torch_openreg/simulator/openreg/_dry_changes.py",
    ),
    (
        "OPENREG_DRY_WORLD",
        "number",
        "",
        "how many ranks the simulated world of dry execution has",
        "torch_openreg/simulator/openreg/_dry_world.py",
    ),
    (
        "OPENREG_MODEL",
        "name",
        "",
        "the accelerator that the devices stand for",
        "torch_openreg/simulator/openreg/models.py",
    ),
    (
        "OPENREG_TRITON",
        "choice",
        "refuse",
        "what becomes of kernels of Triton",
        "torch_openreg/simulator/triton/__init__.py",
        ("refuse", "interpret"),
    ),
    (
        "OPENREG_RNG",
        "word",
        "cpu, or philox for the type cuda",
        "whether random numbers are the CPU's, or a GPU's",
        "csrc/simulator/borrowed/random/PhiloxGenerator.cpp",
    ),
    (
        "OCCL_TRANSPORT",
        "choice",
        "auto",
        "what collectives use",
        "csrc/distributed/EngineChoice.cpp",
        ("auto", "gloo", "shm"),
    ),
    (
        "TORCH_OPENREG_AUTOGRAD_THREADS",
        "choice",
        "0",
        "whether backward runs on autograd's threads",
        "csrc/simulator/borrowed/OpenMPTeam.cpp",
        _SWITCH,
    ),
)


def check(environment: Mapping[str, str]) -> None:
    """Raises ValueError for faults that cannot be read, for random numbers and for a model that do not exist."""
    if (numbers := environment.get("OPENREG_RNG", "")) not in ("", "cpu", "philox"):
        raise ValueError(f"OPENREG_RNG is {numbers!r}. Set it to cpu or philox, or unset it.")
    if program := environment.get("OPENREG_FAULTS", "").strip():
        from torch_openreg.simulator._faults import parse

        try:
            parse(program)
        except ValueError as error:
            raise ValueError(f"OPENREG_FAULTS cannot be obeyed. {error}") from None
    if limit := environment.get("OPENREG_DRY", "").strip():
        from torch_openreg.simulator._sizes import byte_count

        if not byte_count(limit):
            raise ValueError(f"OPENREG_DRY is {limit!r}. Set it to a number of bytes, such as 1M, or unset it.")
    if file := environment.get("OPENREG_DRY_ASSUME", "").strip():
        from torch_openreg.simulator import _assumed_values

        try:
            _assumed_values.read(file)
        except ValueError as error:
            raise ValueError(f"OPENREG_DRY_ASSUME cannot be obeyed. {error}") from None
    if world := environment.get("OPENREG_DRY_WORLD", "").strip():
        if not (world.isascii() and world.isdigit() and int(world)):
            raise ValueError(f"OPENREG_DRY_WORLD is {world!r}. Set it to a number of ranks, such as 8, or unset it.")
        if not limit:
            raise ValueError("OPENREG_DRY_WORLD is for dry execution. Set OPENREG_DRY too, or unset OPENREG_DRY_WORLD.")
    if model := environment.get("OPENREG_MODEL", "").strip():
        from torch_openreg.simulator._models import find_for_this_torch

        try:
            find_for_this_torch(model)
        except ValueError as error:
            raise ValueError(f"OPENREG_MODEL cannot be obeyed. {error}") from None
