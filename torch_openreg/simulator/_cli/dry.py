"""``torch-openreg dry``: runs a program without computing, and says whether it fits and what holds the memory."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_openreg._cli import memory
from torch_openreg._words import size
from torch_openreg.simulator import _assumed_values, _dry_changes
from torch_openreg.simulator._cli import _dry_time, _dry_tries
from torch_openreg.simulator._cli._dry_table import LINES, NO_DEVICE, compared, table
from torch_openreg.simulator._models import find as find_model
from torch_openreg.simulator._options import add_options, command_of, program_parser
from torch_openreg.simulator._sizes import byte_count

LIMIT = "1M"
LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")
DEVICES_OF_HOST = 8  # of a world, if --device-count does not say otherwise


def _answer(report: dict[str, Any], devices: Sequence[memory.Device], status: int) -> dict[str, Any]:
    """What --json writes. The numbers are those of the device that used most of its memory."""
    used = max(report["devices"], key=lambda each: each["peak_reserved"], default=None)
    failed = report["out_of_memory"]
    of_history = {each.index: each for each in devices if each.history}
    answer: dict[str, Any] = {
        "fits": failed is None and status == 0 and used is not None,
        "exit_status": status,
        "device": used["index"] if used else None,
        "total_memory": used["total"] if used else None,
        "context_bytes": used["context"] if used else None,
        "communicator_bytes": used["communicators"] if used else None,
        "communicators": used["groups"] if used else None,
        "peak_allocated": used["peak_allocated"] if used else 0,
        "peak_reserved": used["peak_reserved"] if used else 0,
        "alloc_retries": sum(each["alloc_retries"] for each in report["devices"]),
        "out_of_memory_at": failed["line"] if failed else None,
        "out_of_memory_text": None,
        "error": None,
        **_dry_time.estimate(report["time"]),
        "assumed": report["assumed"],
        "changed": report["changed"],
        "compiled": report["compiled"],
        "categories": {},
        "lines": [],
    }
    if used and (history := of_history.get(used["index"])):
        # A program may reset the peaks of the statistics. The history keeps all, but has the sizes without rounding.
        answer["peak_allocated"] = max(used["peak_allocated"], max(history.allocated, default=0))
        answer["peak_reserved"] = max(used["peak_reserved"], max(history.reserved, default=0))
        answer["categories"] = memory.group(history.alive(history.peak), lambda block: block.category)
        answer["lines"] = memory.by_line(history)[:LINES]
    if failed:
        answer["spare_bytes"] = failed["free"] - failed["size"]
        answer["out_of_memory_text"] = f"Tried to allocate {failed['size']} bytes; {failed['free']} bytes were free."
    else:
        elsewhere = used["context"] + used["communicators"] if used else 0
        answer["spare_bytes"] = used["total"] - elsewhere - answer["peak_reserved"] if used else None
    if report["error"]:
        if report["error"]["type"] == "OutOfMemoryError":
            answer["out_of_memory_text"] = report["error"]["text"]
        else:
            answer["error"] = f"{report['error']['type']}: {report['error']['text']}"
    elif used is None and status == 0:
        answer["error"] = NO_DEVICE
    return answer


def _run(options: argparse.Namespace, output: int | None) -> tuple[dict[str, Any], list[memory.Device]]:
    """Runs the program once. Returns the answer, and the memory of the devices over time. Ends the command if the
    program wrote no report."""
    with tempfile.TemporaryDirectory(prefix="openreg-dry-") as folder:
        os.environ |= {"OPENREG_DRY": options.limit, "OPENREG_DRY_REPORT": folder}
        sys.stdout.flush()
        status = subprocess.run(command_of(options), stdout=output, stderr=output).returncode
        if not (file := Path(folder, "report.json")).exists():
            raise SystemExit(f"torch-openreg dry: the program ended with status {status} and wrote no report")
        snapshot = Path(folder, "snapshot.pickle")
        devices = memory.load(snapshot) if snapshot.exists() else []
        return _answer(json.loads(file.read_text()), devices, status), devices


def _run_ranks(options: argparse.Namespace, output: int | None) -> tuple[dict[str, Any], list[memory.Device]]:
    """Runs the program as each rank of --rank, or once without --world. Returns what _run() returns for the rank that
    needs most; the member ``ranks`` has the sizes of all."""
    if not options.world:
        return _run(options, output)
    several = options.rank in ("all", "worst")
    ranks = range(options.world) if several else [int(options.rank)]
    rows, worst, of_worst = [], None, []
    for rank in ranks:
        os.environ |= {"OPENREG_DRY_WORLD": str(options.world), "RANK": str(rank)}
        answer, devices = _run(options, subprocess.DEVNULL if options.rank == "worst" else output)
        rows.append({"rank": rank} | {each: answer[each] for each in ("fits", "peak_allocated", "peak_reserved")})
        if several:
            fits = "fits" if answer["fits"] else answer["out_of_memory_at"] or answer["error"] or "does not fit"
            print(f"rank {rank} of {options.world}: {size(answer['peak_reserved'])} reserved, {fits}", flush=True)
        if worst is None or (not answer["fits"], answer["peak_reserved"]) > (not worst["fits"], worst["peak_reserved"]):
            worst, of_worst = answer | {"world": options.world, "rank": rank}, devices
    assert worst is not None
    return worst | {"ranks": rows}, of_worst


def _find(options: argparse.Namespace) -> int | None:
    """The largest number from LOW to HIGH with which the program fits; None if it does not fit with LOW. Puts the number
    into the program's arguments. Ends the command if the program fails in another way."""
    name, low, high = options.find
    arguments = options.arguments

    def use(value: int) -> None:
        options.arguments = [text.replace("{" + name + "}", str(value)) for text in arguments]

    def fits(value: int) -> bool:
        use(value)
        answer, _ = _run_ranks(options, subprocess.DEVNULL)
        if answer["exit_status"] and not answer["out_of_memory_at"]:
            raise SystemExit(f"torch-openreg dry: with {name}={value} the program failed: {answer['error']}")
        print(f"{name}={value}: {'fits' if answer['fits'] else 'does not fit'}", flush=True)
        return bool(answer["fits"])

    if not fits(low):
        return None
    best, step = low, max(low, 1)
    while best < high and fits(tried := min(best + step, high)):
        best, step = tried, step * 2
    end = high + 1 if best == high else min(best + step, high)  # does not fit, or is not asked for
    while end - best > 1:
        middle = (best + end) // 2
        best, end = (middle, end) if fits(middle) else (best, middle)
    use(best)
    return best


def _limit(text: str) -> str:
    if not byte_count(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not valid: expected a number of bytes, such as 1M")
    return text


def _world(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not valid: expected a number of ranks, such as 8")
    return int(text)


def _assumed(path: str) -> str:
    try:
        _assumed_values.read(path)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path


def _models(text: str) -> str:
    for name in text.split(","):
        try:
            find_model(name)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _changes(text: str) -> list[str]:
    try:
        return list(_dry_changes.CHANGES) if text == "all" else [_dry_changes.checked(name) for name in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _range(text: str) -> tuple[str, int, int]:
    found = re.fullmatch(r"(\w+)=(\d+):(\d+)", text)
    if not found or int(found[2]) > int(found[3]):
        raise argparse.ArgumentTypeError(f"{text!r} is not valid: expected NAME=LOW:HIGH, such as batch=1:256")
    return found[1], int(found[2]), int(found[3])


def _parser() -> argparse.ArgumentParser:
    parser = program_parser(
        "dry",
        "Runs a program without computing on large tensors, and says whether it fits on the device.",
        script="what `python` takes: a file, a folder or an archive",
        epilog="example: torch-openreg dry --as cuda --model cuda-h100 train.py. "
        "Exit status: 0 it fits, 1 it does not, or it failed, 2 wrong usage.",
    )
    parser.add_argument("--json", metavar="FILE", help="write the answer to this file too")
    parser.add_argument("--html", metavar="FILE", help="write a page of the memory over time")
    parser.add_argument(
        "--limit",
        default=LIMIT,
        metavar="SIZE",
        type=_limit,
        help=f"compute tensors of at most this size (default: {LIMIT})",
    )
    parser.add_argument(
        "--assume",
        metavar="FILE",
        type=_assumed,
        help='values in place of those that nobody computed: JSON such as {"train.py:12": 2.5}',
    )
    parser.add_argument(
        "--find",
        metavar="NAME=LOW:HIGH",
        type=_range,
        help="find the largest number that fits: it replaces {NAME} in ARGUMENTS",
    )
    parser.add_argument(
        "--try",
        dest="changes",
        metavar="CHANGE[,...]|all",
        type=_changes,
        default=[],
        help=f"run the program again with each change, and say what it saves: {', '.join(_dry_changes.CHANGES)}",
    )
    parser.add_argument(
        "--model",
        metavar="NAME|FILE[,...]",
        type=_models,
        help="the accelerator that the devices stand for, such as cuda-t4, or several to compare",
    )
    parser.add_argument(
        "--world", metavar="N", type=_world, help="run the program as a rank of N; no other rank exists (default: none)"
    )
    parser.add_argument(
        "--rank",
        default="0",
        metavar="R|all|worst",
        help="with --world: the rank (default: 0); all: each rank in turn; worst: the same, without the program's output",
    )
    counts = f"the number of simulated devices (default: 1; with --world, on each host: {DEVICES_OF_HOST})"
    add_options(parser, ("as", "device-count", "memory"), {"device-count": counts})
    return parser


def main(argv: Sequence[str]) -> int:
    """Returns 0 if the program fits, 1 if it does not or fails, 2 for wrong usage."""
    parser = _parser()
    options = parser.parse_args(argv)
    is_rank = options.rank.isascii() and options.rank.isdigit() and int(options.rank) < (options.world or 1)
    if not is_rank and options.rank not in ("all", "worst"):
        parser.error(
            f"--rank {options.rank!r} is not valid: expected all, worst, or a number that is less than --world"
        )
    if os.path.basename(options.program) in LAUNCHERS:
        parser.error(f"{options.program} would start processes. Give the script itself, with --world N in its place")
    if options.assume:
        os.environ["OPENREG_DRY_ASSUME"] = os.path.abspath(options.assume)
    if options.world:
        os.environ.setdefault("OPENREG_DEVICE_COUNT", str(min(options.world, DEVICES_OF_HOST)))
    models = options.model.split(",") if options.model else [os.environ.get("OPENREG_MODEL", "")]
    counts_devices = "OPENREG_DEVICE_COUNT" not in os.environ
    if len(models) > 1 and (options.find or options.html or options.changes):
        parser.error("--find, --html and --try are for one model")
    if options.find and not any(f"{{{options.find[0]}}}" in text for text in options.arguments):
        parser.error(f"no argument of the program contains {{{options.find[0]}}}, which --find replaces")
    os.environ.setdefault("OPENREG_TRITON", "interpret")  # a kernel that would read absent bytes is not interpreted
    answers = {}
    found = None
    for model in models:
        os.environ["OPENREG_MODEL"] = model
        if (
            counts_devices
        ):  # one GPU is asked about: a program that sees two may use both, as Trainer of transformers does
            count = find_model(model).numbers.get("device_count", 1) if model else 1
            os.environ["OPENREG_DEVICE_COUNT"] = str(count)
        if options.find and (found := _find(options)) is None:
            print("It does not fit with the lowest number.")
        answers[model], devices = _run_ranks(options, subprocess.DEVNULL if options.find else None)
    fits = all(answer["fits"] for answer in answers.values())
    (answer,) = answers.values() if len(answers) == 1 else [{"fits": fits, "models": answers}]
    if options.find:
        answer["found"] = {options.find[0]: found}
    if options.changes:
        answer["tried"] = _dry_tries.run(
            options.changes, lambda: _run_ranks(options, subprocess.DEVNULL)[0], answer, devices
        )
    if options.json:
        Path(options.json).write_text(json.dumps(answer, indent=1) + "\n")
    if options.html:
        Path(options.html).write_text(memory.page(devices, _dry_time.section(answer) + _dry_tries.section(answer)))
    print("\n".join(table(answer) if len(answers) == 1 else compared(answers)))
    return 0 if fits else 1
