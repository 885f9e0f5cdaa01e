"""`torch-openreg demo`: train a convolutional network on the device and on the CPU, and compare the two runs.

The training is `train_digits.py`, a script that imports only torch. It runs once for each device, each time in a
separate process, because a process that computes on both devices gets a second OpenMP team, which slows every small
kernel. The two processes take turns after each epoch, so that neither is timed while the other computes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from torch_openreg._cli import train_digits
from torch_openreg._cli._curve import draw_log_curve
from torch_openreg._identity import device_type

TARGET_ACCURACY = 0.97
# The objects whose devices the training reports.
PLACED = ("parameters", "gradients", "optimizer", "images", "loss")


class TrainingFailed(Exception):
    """A training process ended before it printed its result. The message has its exit status and its error output."""


class Training:
    """One process with `train_digits.py`, which waits before each epoch until it is told to go on.

    `folder` receives its model and its error output. `autoload` says whether its `import torch` loads backends.
    """

    def __init__(self, device: str, folder: Path, data: Path, args: argparse.Namespace, *, autoload: bool) -> None:
        folder.mkdir()
        self.device = device
        self.checkpoint = folder / "model.pt"
        self.losses: list[float] = []
        self.accuracies: list[float] = []
        self.seconds: list[float] = []
        self.placement: dict[str, Any] = {}
        self.result: dict[str, Any] = {}
        command = [sys.executable, train_digits.__file__, "--device", device, "--epochs", str(args.epochs)]
        command += ["--seed", str(args.seed), "--threads", str(args.threads)]
        command += ["--data", str(data), "--save", str(self.checkpoint), "--lockstep"]
        self._errors = (folder / "stderr").open("w+")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if autoload else "0"},
        )

    def train_epoch(self) -> None:
        """Lets the process train one epoch, and waits for the end of the epoch."""
        assert self._process.stdin is not None
        try:
            print(file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._failure() from None
        event = self._read()
        if event["event"] == "placement":
            self.placement = event
            event = self._read()
        self.losses += event["losses"]
        self.accuracies.append(event["accuracy"])
        self.seconds.append(event["seconds"])

    def finish(self) -> None:
        """Waits for the model to be saved and reloaded, and for the process to end."""
        self.result = self._read()
        if self._process.wait() != 0:
            raise self._failure()

    def close(self) -> None:
        """Ends the process if it is still there."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._failure()
        event: dict[str, Any] = json.loads(line)
        return event

    def _failure(self) -> TrainingFailed:
        status = self._process.wait()
        self._errors.seek(0)
        words = self._errors.read().strip() or "It printed no error."
        return TrainingFailed(f"The training on {self.device} ended with status {status}.\n{words}")


class Claim(NamedTuple):
    """One statement of the demo, whether it is true, and the figures that show it."""

    holds: bool
    text: str
    figures: str


def main(argv: Sequence[str]) -> int:
    """Runs the demo. Returns 0 if every claim is true, 1 if one is false or a training fails, 2 for bad arguments."""
    args = parse_arguments(argv)
    console = Console(highlight=False)
    print_heading(console, args)
    with contextlib.ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="openreg-demo-")))
        data = folder / "digits.pt"
        torch.save(train_digits.load_digits(), data)
        # The reference is PyTorch alone: the process that trains on the CPU does not load this package.
        device = Training(args.device, folder / "device", data, args, autoload=True)
        cleanup.callback(device.close)
        cpu = Training("cpu", folder / "cpu", data, args, autoload=False)
        cleanup.callback(cpu.close)
        try:
            train(console, device, cpu, args.epochs)
        except TrainingFailed as failure:
            console.print(escape(str(failure)), style="red")
            return 1
        claims = check_claims(device, cpu, data)
        print_report(console, device, cpu, claims)
        if args.save:
            shutil.copy(device.checkpoint, args.save)
            console.print(f"The model is in {escape(args.save)}")
        if args.plot:
            plot(args.plot, device, cpu)
            console.print(f"The curves are in {escape(args.plot)}")
    return 0 if all(claim.holds for claim in claims) else 1


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="torch-openreg demo",
        description="Train a convolutional network on handwritten digits, on the device and on the CPU with the same "
        "seed. The exit status is 1 unless everything is where it should be, both runs agree bit for bit, "
        f"at least {TARGET_ACCURACY:.0%} of the test images are recognised and the saved model loads again.",
    )

    def positive(text: str) -> int:
        if not text.isdecimal() or int(text) < 1:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
        return int(text)

    def writable(text: str) -> str:
        path = Path(text).absolute()
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise argparse.ArgumentTypeError(
                f"cannot write {text!r}: it must be a file in a folder that can be written"
            )
        return text

    parser.add_argument("--epochs", type=positive, default=20, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--device", default=device_type, help="the device to compare with the CPU (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default: %(default)s")
    # On such a small network a second thread gains little. If another program needs the second thread's processor, the
    # training is eight times as slow, because the first thread waits for the second one at every parallel region.
    parser.add_argument(
        "--threads", type=positive, default=1, metavar="N", help="compute threads (default: %(default)s)"
    )
    parser.add_argument("--plot", type=writable, metavar="FILE", help="write the curves as an image (.png, .svg, .pdf)")
    parser.add_argument("--save", type=writable, metavar="FILE", help="keep the model that the device trained")
    args = parser.parse_args(argv)
    if args.plot:
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        suffix = Path(args.plot).suffix[1:]
        if suffix not in FigureCanvasAgg.get_supported_filetypes():
            parser.error(f"argument --plot: no image format is named {suffix!r}; use .png, .svg or .pdf")
    return args


def print_heading(console: Console, args: argparse.Namespace) -> None:
    console.rule(f"Handwritten digits on [bold]{escape(args.device)}[/] and on the CPU")
    console.print(f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} processors")


def print_placement(console: Console, device: Training, cpu: Training) -> None:
    table = Table(title=f"Where it is: {device.placement['parameter_count']:,} parameters", title_justify="left")
    table.add_column("")
    for run in (device, cpu):
        table.add_column(f"run on {escape(run.device)}")
    for part in PLACED:
        table.add_row(part, *(", ".join(run.placement[part]) for run in (device, cpu)))
    table.add_row("threads that compute", *(str(run.placement["threads"]) for run in (device, cpu)))
    console.print(table)


def train(console: Console, device: Training, cpu: Training, epochs: int) -> None:
    """Lets the two processes take turns, and shows their progress."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # Without a terminal, a few lines are printed instead of the bar.
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("epoch", total=epochs)
        for epoch in range(1, epochs + 1):
            # The order alternates, so that neither process always runs first.
            for run in (device, cpu) if epoch % 2 else (cpu, device):
                run.train_epoch()
            if epoch == 1:
                print_placement(console, device, cpu)
            same = "equal on both" if device.losses == cpu.losses else "[red]different on the CPU[/]"
            words = f"loss {device.losses[-1]:.6f}, {same}; test accuracy {device.accuracies[-1]:.1%}"
            progress.update(task, advance=1, description=words)
            if not console.is_terminal and (epoch % 5 == 0 or epoch in (1, epochs)):
                console.print(f"epoch {epoch:>3}/{epochs}: {words}")
    for run in (device, cpu):
        run.finish()


def check_claims(device: Training, cpu: Training, data: Path) -> list[Claim]:
    """The statements of the demo, each with the figures that prove or refute it."""
    expected = str(torch.empty(0, device=device.device).device)
    stray = {part: device.placement[part] for part in PLACED if device.placement[part] != [expected]}
    placement = f"parameters, gradients, optimizer, images and loss are on {expected}"

    different = [step for step, pair in enumerate(zip(device.losses, cpu.losses, strict=True)) if pair[0] != pair[1]]
    losses = f"{len(device.losses)} losses, one for each step"
    if different:
        step = different[0]
        losses = (
            f"{len(different)} of {len(device.losses)} differ, from step {step + 1}: "
            f"{device.losses[step]!r} and {cpu.losses[step]!r}"
        )

    # The models of both runs are loaded on the CPU, as on a machine that does not have the device.
    models = [torch.load(run.checkpoint, map_location="cpu", weights_only=True) for run in (device, cpu)]
    unequal = [name for name, value in models[0].items() if not torch.equal(value, models[1][name])]
    parameters = f"{sum(value.numel() for value in models[0].values()):,} values in {len(models[0])} tensors"
    if unequal:
        gap = max((models[0][name] - models[1][name]).abs().max().item() for name in unequal)
        parameters = f"{len(unequal)} of {len(models[0])} tensors differ, by at most {gap:.3g}: {', '.join(unequal)}"

    accuracy, images = device.result["accuracy"], device.result["test_images"]
    moved = train_digits.build()
    moved.load_state_dict(models[0])
    digits = torch.load(data, weights_only=True)
    moved_accuracy = train_digits.evaluate(moved, digits["test_x"], digits["test_y"])[1]
    reloaded = device.result["reloaded_equal"] and moved_accuracy == accuracy
    return [
        Claim(not stray, "Everything is on the device", f"not on {expected}: {stray}" if stray else placement),
        Claim(
            accuracy >= TARGET_ACCURACY,
            f"At least {TARGET_ACCURACY:.0%} of the test images are recognised",
            f"{accuracy:.2%} of {images} images",
        ),
        Claim(not different, "The losses equal the CPU's, bit for bit", losses),
        Claim(not unequal, "The trained model equals the CPU's, bit for bit", parameters),
        Claim(
            reloaded,
            "The saved model loads again",
            f"on {expected}: {'the same' if device.result['reloaded_equal'] else 'another'} output; "
            f"on the CPU: {moved_accuracy:.2%}",
        ),
    ]


def print_report(console: Console, device: Training, cpu: Training, claims: Sequence[Claim]) -> None:
    console.print(f"\nLoss over {len(device.losses)} steps, on a logarithmic scale")
    for line in draw_log_curve(device.losses, ascii_only=console.options.ascii_only):
        console.print(escape(line), style="cyan")

    yes, no = ("yes", "NO") if console.options.ascii_only else ("✓", "✗")
    table = Table(show_header=False)
    for claim in claims:
        table.add_row(f"[green]{yes}[/]" if claim.holds else f"[red]{no}[/]", claim.text, escape(claim.figures))
    console.print(table)
    ratio = statistics.median(a / b for a, b in zip(device.seconds, cpu.seconds, strict=True))
    times = [statistics.median(run.seconds) * 1000 for run in (device, cpu)]
    console.print(
        f"Wall time of an epoch: {times[0]:.0f} ms on {escape(device.device)}, {times[1]:.0f} ms on the CPU, "
        f"[bold]ratio {ratio:.2f}[/] (median of {len(device.seconds)}, the processes taking turns)"
    )


def plot(file: str, device: Training, cpu: Training) -> None:
    """Writes the losses and test accuracies of both runs as an image. The file's name gives the format."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    # The CPU's curve is thin and drawn last, so that both curves can be seen where they coincide.
    for run, style in ((device, {"linewidth": 4, "alpha": 0.4}), (cpu, {"linewidth": 1, "color": "black"})):
        left.plot(range(1, len(run.losses) + 1), run.losses, label=run.device, **style)
        right.plot(range(1, len(run.accuracies) + 1), run.accuracies, label=run.device, **style)
    left.set(yscale="log", xlabel="step", ylabel="loss", title="Training loss")
    right.set(xlabel="epoch", ylabel="share of test images", title="Test accuracy")
    right.axhline(TARGET_ACCURACY, linestyle=":", color="grey", label=f"target: {TARGET_ACCURACY:.0%}")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(file, dpi=150)
