"""`python -m benchmarks`: measures the device beside the CPU device and prints tables of ratios."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from benchmarks import targets
from benchmarks.report import Row, print_table, ratio, summary


class Benchmark:
    """The options of a run, and the methods that measure the sections with a given number of threads."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.device: str = args.device
        self.quick: bool = args.quick

    def worker(
        self,
        job: str,
        threads: int,
        *,
        device: str | None = None,
        autoload: bool = True,
        execution: str = "inline",
        path: str = "",
        identity: str | None = None,
    ) -> Any:
        """The result of a job that a new process runs. ``path``: a folder with more distributions for that process."""
        command = [sys.executable, "-m", "benchmarks.worker", job, "--device", device or self.device]
        command += ["--threads", str(threads)] + ["--quick"] * self.quick
        environment = {
            **os.environ,
            "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(autoload)),
            "OPENREG_EXECUTION": execution,
            **({} if identity is None else {"TORCH_OPENREG_AS": identity}),
            "KINETO_LOG_LEVEL": "10",  # otherwise each profile writes two lines to stderr
            "PYTHONPATH": os.pathsep.join(filter(None, [path, os.environ.get("PYTHONPATH", "")])),
        }
        # The folder in which `-m benchmarks.worker` finds this package.
        folder = Path(__file__).parents[1]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder, check=True)
        return json.loads(done.stdout)

    def interleaved(self, job: str, threads: int) -> list[Row]:
        """The rows of a job that measures both devices in one process, by turns."""
        return [Row(**row) for row in self.worker(job, threads)]

    def training(self, threads: int, execution: str = "inline") -> list[Row]:
        times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in targets.TRAINING}
        for _ in range(1 if self.quick else 5):
            for side, device in enumerate((self.device, "cpu")):
                for name, seconds in self.worker("training", threads, device=device, execution=execution).items():
                    times[name][side].append(seconds)
        return [
            ratio(
                name,
                (statistics.median(here), statistics.median(cpu)),
                targets.TRAINING[name] if execution == "inline" else None,
            )
            for name, (here, cpu) in times.items()
        ]

    def compiled(self, threads: int) -> list[Row]:
        runs: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
        for _ in range(1 if self.quick else 5):
            for side, device in enumerate((self.device, "cpu")):
                runs[side].append(self.worker("compiled", threads, device=device))
        rows = []
        for name in runs[0][0]:
            here, cpu = (statistics.median(run[name] for run in side) for side in runs)
            if name == targets.COMPILED_CALL:
                more = (here - cpu) * 1e9
                rows.append(Row(f"{name}: more by", more, "", targets.COMPILED_CALL_NS, "ns", here, cpu))
            else:
                rows.append(ratio(name, (here, cpu), targets.COMPILED[name]))
        return rows

    def interference(self, threads: int) -> list[Row]:
        rows = []
        for name, execution in (("", "inline"), (", queued", "async")):
            turns = range(1 if self.quick else 5)
            runs = [self.worker("interference", threads, execution=execution) for _ in turns]
            runs.sort(key=lambda run: run[0] / run[1])
            name = f"CPU forward after training on the device{name}"
            rows.append(ratio(name, runs[len(runs) // 2], targets.CPU_AFTER_TRAINING))
        return rows

    def imports(self, threads: int) -> list[Row]:
        """How much longer `import torch` takes with the package: as installed, and with 100 more distributions.

        The number of distributions matters, because `import torch` looks for backends in each of them.
        """
        more = 100
        with tempfile.TemporaryDirectory() as folder:
            for number in range(more):
                info = Path(folder) / f"distribution{number}-1.0.dist-info"
                info.mkdir()
                (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: distribution{number}\nVersion: 1.0\n")
                (info / "entry_points.txt").write_text(f"[console_scripts]\nprogram{number} = module:main\n")
            return [
                self.imports_row("import torch takes longer by", threads, ""),
                self.imports_row(f"the same, {more} distributions more", threads, folder),
            ]

    def imports_row(self, name: str, threads: int, path: str) -> Row:
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(1 if self.quick else 15):
            for side, autoload in enumerate((True, False)):
                times[side].append(self.worker("import", threads, autoload=autoload, path=path))
        return longer(name, times, targets.IMPORT_MS)

    def identities(self, threads: int) -> list[Row]:
        """The device with the type cuda (TORCH_OPENREG_AS=cuda) beside the device by its own name."""
        if not importlib.util.find_spec("torch_openreg._C_cuda"):
            return []  # this build has no identity cuda
        imports: tuple[list[float], list[float]] = ([], [])
        for _ in range(1 if self.quick else 15):
            for side, identity in enumerate(IDENTITIES):
                imports[side].append(self.worker("import", threads, identity=identity))
        runs: tuple[list[dict[str, float]], list[dict[str, float]]] = ([], [])
        for _ in range(1 if self.quick else 5):
            for side, identity in enumerate(IDENTITIES):
                device = identity if self.device in IDENTITIES else self.device
                runs[side].append(self.worker("small operators", threads, device=device, identity=identity))
        rows = []
        for name in runs[0][0]:
            cuda, own = (statistics.median(run[name] for run in side) for side in runs)
            rows.append(ratio(name, (cuda, own)))
        return [
            longer("import torch takes longer by", imports, targets.CUDA_IMPORT_MS),
            *rows,
            *summary(rows, "median, all", targets.CUDA_OPERATORS, ""),
        ]

    def idle(self, threads: int) -> list[Row]:
        here, cpu = (self.worker("idle", threads, device=device) for device in (self.device, "cpu"))
        return [
            Row("threads more than the CPU, used", here["used"] - cpu["used"], limit=targets.IDLE_THREADS),
            # Autograd starts a thread for each device at the first backward, as for CUDA, so there is no target.
            Row("threads more than the CPU, trained", here["trained"] - cpu["trained"]),
            Row("CPU ms more in an idle second", here["cpu_ms"] - cpu["cpu_ms"], limit=targets.IDLE_CPU_MS, unit="ms"),
        ]


IDENTITIES = ("cuda", "openreg")


def longer(name: str, times: tuple[list[float], list[float]], limit: float) -> Row:
    """A row with the median of how many milliseconds longer the first process of each pair took."""
    difference = statistics.median(a - b for a, b in zip(*times, strict=True)) * 1000
    return Row(name, difference, "", limit, "ms", *(statistics.median(side) for side in times))


class Section(NamedTuple):
    """`reference`: the name of the ratios' divisor. `each`: False if only the largest number of threads is measured."""

    title: str
    reference: str
    each: bool
    measure: Callable[[Benchmark, int], list[Row]]


def _interleaved(job: str) -> Callable[[Benchmark, int], list[Row]]:
    return lambda benchmark, threads: benchmark.interleaved(job, threads)


SECTIONS = {
    "operators": Section("Operators on float32", "CPU", True, _interleaved("operators")),
    "optimizers": Section("Optimizer steps, 20 parameters", "CPU", True, _interleaved("optimizers")),
    "training": Section("Training steps, the devices' processes in turns", "CPU", True, Benchmark.training),
    "queued": Section(
        "The same, queued (OPENREG_EXECUTION=async)", "CPU", True, lambda b, threads: b.training(threads, "async")
    ),
    "compiled": Section("Compiled (torch.compile), the devices' processes in turns", "CPU", True, Benchmark.compiled),
    "interference": Section("The CPU beside the device", "before", True, Benchmark.interference),
    "copies": Section("Copies (at 4 KB the reference is the CPU's copy_)", "memcpy", True, _interleaved("copies")),
    "allocation": Section("Allocation", "CPU", False, _interleaved("allocation")),
    "latency": Section("Calls that should cost next to nothing", "CPU", False, _interleaved("latency")),
    "profiling": Section("What a profiler adds to x + x, 16 elements", "host only", False, _interleaved("profiling")),
    "import": Section("Import with the package and without it", "without", False, Benchmark.imports),
    "identities": Section("The device as cuda; operators with 16 elements", "own name", False, Benchmark.identities),
    "idle": Section("A process that does nothing", "CPU", False, Benchmark.idle),
}


def machine() -> dict[str, str]:
    """The facts on which the figures depend, for the heading."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {
        "processor": f"{model}, {len(os.sched_getaffinity(0))} usable",
        "torch": metadata.version("torch"),
        "torch_openreg": metadata.version("torch_openreg"),
        "python": platform.python_version(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compare the device with the CPU device. Ratios are device time divided by reference time; a mark "
        "shows a missed target. The exit status says only whether everything could be measured.",
    )

    def thread_list(text: str) -> list[int]:
        if not all(part.isdecimal() and int(part) for part in text.split(",")):
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of whole numbers of at least 1, such as 1,2")
        return [int(part) for part in text.split(",")]

    parser.add_argument("--only", action="append", choices=SECTIONS, metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="fewer and shorter loops: a look, not a result")
    parser.add_argument("--threads", type=thread_list, default=[1, 2], metavar="N,N", help="default: 1,2")
    parser.add_argument("--device", default="openreg", help="default: openreg; cpu shows the noise of the machine")
    parser.add_argument("--json", metavar="FILE", help="also write every row here")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    # If the output is no terminal (a log, a file), rich assumes 80 columns and would break the lines of the tables.
    console = Console() if sys.stdout.isatty() else Console(width=120)
    facts = machine()
    console.rule(f"{args.device} against the CPU device")
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    if os.getloadavg()[0] > 0.5:
        console.print(
            "[yellow]Other programs are running. Wait for them: with as many threads as processors, a kernel waits for "
            "its slower thread."
        )
    benchmark = Benchmark(args)
    measured: list[dict[str, object]] = []
    failed = False
    for name in args.only or SECTIONS:
        section = SECTIONS[name]
        for threads in args.threads if section.each else [max(args.threads)]:
            heading = f"{section.title}, threads: {threads}"
            try:
                with console.status(heading):
                    rows = section.measure(benchmark, threads)
            except subprocess.CalledProcessError as error:
                failed = True
                console.print(f"[red]{heading}: not measured, a process ended with status {error.returncode}")
                continue
            print_table(console, heading, section.reference, rows)
            measured += [
                {"section": name, "threads": threads, **dataclasses.asdict(row), "missed": row.missed} for row in rows
            ]
    missed = sum(bool(row["missed"]) for row in measured)
    aimed = sum(row["limit"] is not None for row in measured)
    console.print(f"{aimed - missed} of {aimed} targets met")
    if args.json:
        Path(args.json).write_text(json.dumps({"machine": facts, "quick": args.quick, "rows": measured}, indent=1))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
