"""Records what a GPU answers: `PYTHONPATH=tests/cuda python -m cuda_answers`, with PyTorch for CUDA."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

from . import ANSWERS, AREAS, SEPARATE, ask


def environment() -> dict[str, str]:
    """The environment of a process that answers: one GPU, and none of the settings that change answers."""
    settings = ("CUBLAS_WORKSPACE_CONFIG", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_LAUNCH_BLOCKING")
    kept = {name: value for name, value in os.environ.items() if name not in settings}
    return {"CUDA_VISIBLE_DEVICES": "0"} | kept


def refuse_a_simulation(path: Path) -> None:
    """Ends the program if it would replace a GPU's answers by those of a device that is none."""
    import torch

    if torch.version.cuda is None and path.is_relative_to(ANSWERS):
        sys.exit(f"{path} has the answers of a GPU, and this PyTorch has no CUDA: name another place with --output.")


def answers_of(device: str, area: str, first: int, last: int) -> dict[str, object]:
    """The answers to some programs. If a program ends the process, a new process goes on with the next program."""
    answers: dict[str, object] = {}
    while first < last:
        command = [sys.executable, "-m", "cuda_answers", "--device", device, "--ask", area, str(first), str(last)]
        result = subprocess.run(command, capture_output=True, text=True, env=environment())
        lines = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("[")]
        answers.update(lines)
        if result.returncode == 0:
            break
        print(f"{area}: after {lines[-1:]} the process ended:\n{result.stderr}", file=sys.stderr, flush=True)
        first += max(1, len(lines))
    return answers


def write(path: Path, device: str, answers: Mapping[str, object]) -> None:
    """Writes a file with a line for each answer."""
    import torch

    rows = ",\n".join(f"{json.dumps(program)}: {json.dumps(answer)}" for program, answer in answers.items())
    path.write_text(f'{{"device": "{device}", "torch": "{torch.__version__}", "answers": {{\n{rows}\n}}}}\n')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--output", type=Path, default=ANSWERS, help="a folder (default: gpu, beside this file)")
    parser.add_argument("--areas", nargs="+", default=AREAS, choices=AREAS)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: 2)")
    parser.add_argument("--ask", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        area, first, last = options.ask
        for line in ask(area, options.device, int(first), int(last)):
            print(json.dumps(line), flush=True)
        return
    import torch

    refuse_a_simulation(options.output)
    options.output.mkdir(exist_ok=True)
    device = torch.get_device_module(options.device).get_device_name()
    with ThreadPoolExecutor(options.jobs) as pool:
        parts = {}
        for area in options.areas:
            count = len(import_module(f"cuda_answers.{area}").PROGRAMS)
            step = 8 if area in SEPARATE else count
            parts[area] = [
                pool.submit(answers_of, options.device, area, i, min(i + step, count)) for i in range(0, count, step)
            ]
        for area, of_area in parts.items():
            answers = {program: answer for part in of_area for program, answer in part.result().items()}
            write(options.output / f"{area}.json", device, answers)


if __name__ == "__main__":
    main()
