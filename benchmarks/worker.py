"""One measurement in a process of its own: `python -m benchmarks.worker JOB` prints the result as JSON.

Training on another device in the same process would change the result (see `benchmarks.training`), so every part of the
benchmark runs in a fresh process. The jobs in `interleaved` measure two devices by turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()

    start = time.perf_counter()
    import torch

    imported = time.perf_counter() - start
    if args.job == "import":
        print(json.dumps(imported))
        return

    from benchmarks import compiled, memory, operators, process, profiling, training
    from benchmarks.timing import QUICK, THOROUGH

    torch.set_num_threads(args.threads)
    effort = QUICK if args.quick else THOROUGH
    interleaved = {
        "operators": operators.measure_operators,
        "optimizers": operators.measure_optimizers,
        "copies": memory.measure_copies,
        "allocation": memory.measure_allocation,
        "latency": memory.measure_latency,
        "profiling": profiling.measure_profiling,
    }
    result: object
    if args.job in interleaved:
        result = [dataclasses.asdict(row) for row in interleaved[args.job](args.device, effort)]
    elif args.job == "training":
        result = {name: training.seconds_a_step(name, args.device, args.quick) for name in training.RECIPES}
    elif args.job == "small operators":
        result = operators.seconds_of_small_operators(args.device, effort)
    elif args.job == "compiled":
        result = compiled.measure(args.device, args.quick)
    elif args.job == "interference":
        result = process.cpu_forward_around_training(args.device, effort)
    elif args.job == "idle":
        result = process.idle(args.device, 0.5 if args.quick else 2.0)
    else:
        parser.error(f"no job is named {args.job!r}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
