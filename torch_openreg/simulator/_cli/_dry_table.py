"""The answer of ``torch-openreg dry`` in the terminal."""

from __future__ import annotations

from typing import Any

from torch_openreg._words import columns, size
from torch_openreg.simulator._cli import _dry_time, _dry_tries

LINES = 10  # how many lines of Python, and how many assumed reads, are printed
NO_DEVICE = "The program made no tensor on a device. Does it choose the device itself? A program that says `cuda` needs --as cuda."
COMPILED = (
    "Compiled code is Inductor's for the CPU: on CUDA, it fuses otherwise, and other tensors may be saved for backward."
)
HINTS = {  # what holds the memory -> what makes that smaller
    "activations": "activations: checkpoint them (--try checkpoint), a smaller batch with more accumulated steps, bfloat16",
    "optimizer": "optimizer state: shard it (FSDP, --world), or take an optimizer with less state",
    "gradients": "gradients: shard them (FSDP, --world), or free them before the next forward (set_to_none)",
    "parameters": "parameters: shard them (FSDP, --world), or keep them in bfloat16",
}


def _row(name: str, text: str) -> str:
    return f"  {name:<18}{text}"


def _device(answer: dict[str, Any]) -> str:
    """What the answer is about, in words."""
    if answer["total_memory"] is None:
        device = "no tensor was made on a device"
    else:
        device = f"device {answer['device']}, which has {size(answer['total_memory'])}"
    return f"rank {answer['rank']} of {answer['world']}, {device}" if "rank" in answer else device


def hints(answer: dict[str, Any]) -> list[str]:
    """What could make a program fit that does not, from what holds the memory at the peak."""
    held = sum(answer["categories"].values())
    large = {name for name, total in answer["categories"].items() if total >= 0.2 * held}
    found = [text for name, text in HINTS.items() if any(name in each for each in large)]
    idle = answer["peak_reserved"] - answer["peak_allocated"]
    if idle >= 0.1 * answer["peak_reserved"]:
        found.append(
            f"{size(idle)} were reserved and not allocated at the peaks: blocks of other sizes (fragmentation)"
        )
    if "tried" not in answer:
        found.append("--try all runs the program with changes that save memory, and --find finds the largest batch")
    return ["To make it fit:", *(f"  {each}" for each in found)]


def assumed_lines(assumed: list[dict[str, Any]]) -> list[str]:
    """The reads of values that nobody computed. Random numbers, which mostly are initial weights, are counted together."""
    drawn = [each for each in assumed if each["how"].startswith("random numbers")]
    reads = [each for each in assumed if each not in drawn]
    count = sum(each["count"] for each in assumed)
    lines = [f"Values that were not computed: zeros, or what was assumed in their place ({count}):"] if assumed else []
    lines += [f"  {each['count']:>6} x {each['how']}  {each['line']}" for each in reads[:LINES]]
    if len(reads) > LINES:
        lines.append(f"  and at {len(reads) - LINES} more lines")
    if drawn:
        count = sum(each["count"] for each in drawn)
        others = f"  and at {len(drawn) - 1} more lines" if len(drawn) > 1 else ""
        lines.append(f"  {count:>6} x {drawn[0]['how']}  {drawn[0]['line']}{others}")
    return lines


def table(answer: dict[str, Any]) -> list[str]:
    """The answer for readers."""
    device = _device(answer)
    if answer["total_memory"] is None and not answer["exit_status"]:
        return [NO_DEVICE]
    if answer["out_of_memory_at"]:
        lines = [f"Does not fit on {device}.", _row("ends at", answer["out_of_memory_at"])]
        lines.append(_row("", answer["out_of_memory_text"]))
        if answer["exit_status"] == 0:
            lines.append(_row("", "The program caught the error and went on."))
    elif answer["exit_status"]:
        lines = [f"Not known: the program failed with exit status {answer['exit_status']} before its end ({device})."]
        lines += [_row("error", answer["error"])] if answer["error"] else []
    else:
        lines = [f"Fits on {device}.", _row("spare", size(answer["spare_bytes"]))]
    if answer["total_memory"] is None:
        return lines
    lines.append(_row("peak allocated", f"{size(answer['peak_allocated'])} ({answer['peak_allocated']} bytes)"))
    lines.append(_row("peak reserved", f"{size(answer['peak_reserved'])} ({answer['peak_reserved']} bytes)"))
    if answer["context_bytes"]:
        lines.append(_row("context", f"{size(answer['context_bytes'])}, which the sizes above do not contain"))
    if count := answer["communicators"]:
        groups = f"{count} group{'s' if count > 1 else ''} of ranks (NCCL)"
        lines.append(_row("communicators", f"{size(answer['communicator_bytes'])} of {groups}, also not contained"))
    if answer["alloc_retries"]:
        lines.append(_row("retries", f"{answer['alloc_retries']}: the allocator gave back its cache and tried again"))
    if answer["categories"]:
        lines.append("At the peak:")
        lines += [f"  {size(total):>10}  {name}" for name, total in answer["categories"].items()]
        lines.append("By line of Python:")
        lines += [f"  {size(total):>10}  {line}" for line, total in answer["lines"]]
    if answer["compiled"]:
        lines.append(COMPILED)
    if answer["out_of_memory_at"]:
        lines += hints(answer)
    lines += _dry_time.lines(answer)
    lines += assumed_lines(answer["assumed"])
    if "tried" in answer:
        lines.append("With one change each:")
        lines += [f"  {line}" for line in columns(_dry_tries.rows(answer))]
    return lines


def compared(answers: dict[str, dict[str, Any]]) -> list[str]:
    """The answers for several models, side by side."""
    rows = [["model", "fits", "allocated", "reserved", "memory", "ends at"]]
    for model, answer in answers.items():
        fits = "yes" if answer["fits"] else "no" if answer["out_of_memory_at"] else "not known"
        sizes = [size(answer[each] or 0) for each in ("peak_allocated", "peak_reserved", "total_memory")]
        rows.append([model, fits, *sizes, answer["out_of_memory_at"] or answer["error"] or ""])
    return columns(rows)
