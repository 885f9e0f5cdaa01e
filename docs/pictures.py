"""The book's pictures as SVG: ``python docs/pictures.py FOLDER``. Colours and fonts come from _static/book.css."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import generated

if TYPE_CHECKING:
    from torch_openreg._cli.trace import Event


class Picture:
    """Boxes, lines and words on a canvas, with coordinates in pixels from the top left."""

    def __init__(self, width: int, height: int, caption: str) -> None:
        self.width, self.height, self.caption = width, height, caption
        self.parts: list[str] = []

    def text(self, x: float, y: float, words: str, *, kind: str = "", size: int = 14, anchor: str = "middle") -> None:
        self.parts.append(
            f'<text x="{x}" y="{y}" class="{kind}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "box") -> None:
        """Draws a box with text. The first line is a name in code; the other lines say what the name stands for."""
        for layer in ("under", kind):  # the colours of some kinds are transparent
            self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="{layer}"/>')
        top = y + height / 2 - 9 * (len(lines) - 1) + 5
        for i, line in enumerate(lines):
            self.text(x + width / 2, top + 18 * i, line, kind="dim" if i else "code", size=12 if i else 14)

    def arrow(self, x1: float, y1: float, x2: float, y2: float, words: str = "") -> None:
        self.parts.append(f'<path d="M{x1} {y1} L{x2} {y2}" class="line" marker-end="url(#head)"/>')
        if words:
            vertical = x1 == x2
            self.text((x1 + x2) / 2 + (8 if vertical else 0), (y1 + y2) / 2 + (4 if vertical else -6), words,
                      kind="dim", size=12, anchor="start" if vertical else "middle")  # fmt: skip

    def svg(self) -> str:
        marker = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path d="M0 0 L8 4 L0 8 z" class="head"/></marker></defs>'
        )
        # On a narrow screen the picture scrolls, so that its smallest letters can be read. On a wide screen it does not
        # grow further, because its letters would be larger than those of headlines.
        widths = f"min-width: {self.width * 3 // 4}px; max-width: {self.width * 8 // 7}px"
        return (
            f'<figure class="picture"><div><svg viewBox="0 0 {self.width} {self.height}" role="img" '
            f'style="{widths}" aria-label="{escape(self.caption)}" '
            f'xmlns="http://www.w3.org/2000/svg">{marker}{"".join(self.parts)}</svg></div>'
            f"<figcaption>{escape(self.caption)}</figcaption></figure>\n"
        )


def layers() -> Picture:
    picture = Picture(470, 520, "Four libraries below a Python package. Each knows only those below it.")
    rows = [
        ("torch_openreg/", "Python: autoload, torch.openreg, commands"),
        ("_C.so", "what Python imports: its entry point only", "torch_openreg/csrc"),
        ("libtorch_openreg_bindings.so", "between Python and C++, no logic", "torch_openreg/csrc"),
        ("libtorch_openreg.so", "the integration: runtime, aten, amp", "csrc"),
        ("libopenreg.so", "the simulated device, knows no PyTorch", "third_party/openreg"),
    ]
    for i, lines in enumerate(rows):
        y = 10 + 102 * i
        picture.box(8, y, 290, 76, *lines, kind="accent" if lines[0] == "libtorch_openreg.so" else "box")
        if i:
            picture.arrow(153, y - 26, 153, y - 2)
    for i, library in ((2, "libtorch_python.so"), (3, "libtorch_cpu.so")):
        y = 10 + 102 * i
        picture.box(324, y, 140, 76, "PyTorch", library)
        picture.arrow(298, y + 38, 322, y + 38)
    return picture


def from_import_to_tensor() -> Picture:
    picture = Picture(880, 330, "From import torch to the first tensor: nothing starts before it is used.")
    steps = [
        ("import torch", "calls the entry points", "of torch.backends"),
        ("_autoload()", "a module of its own,", "imports the package"),
        ("check_...()", "platform, environment,", "build, owner"),
        ("open_libraries()", "static initialisers", "register everything"),
        ("claim_name()", "PrivateUse1 becomes", "openreg; methods added"),
    ]
    for i, lines in enumerate(steps):
        picture.box(8 + 176 * i, 30, 160, 78, *lines, kind="accent" if i == 3 else "box")
        if i:
            picture.arrow(176 * i - 8, 69, 176 * i + 6, 69)
    picture.text(440, 18, "import torch, about 9 ms of it here", kind="dim", size=12)
    first = [
        ("torch.empty(...)", "device=openreg", "in the program"),
        ("_lazy_init()", "of torch.openreg,", "called by PyTorch"),
        ("OpenRegHooks", "init(): the windows", "of each device"),
        ("empty_memory_format", "the kernel of the", "key PrivateUse1"),
        ("orMalloc()", "a segment, cut by the", "caching allocator"),
    ]
    for i, lines in enumerate(first):
        picture.box(8 + 176 * i, 220, 160, 78, *lines, kind="accent" if i == 4 else "box")
        if i:
            picture.arrow(176 * i - 8, 259, 176 * i + 6, 259)
    picture.arrow(440, 112, 440, 206, "later, at the first use of the device")
    return picture


def operator() -> Picture:
    picture = Picture(760, 420, "The way of one call, a + b, to the loop that computes it.")
    picture.box(270, 8, 220, 44, "torch.add(a, b)")
    picture.arrow(380, 52, 380, 82)
    picture.box(180, 84, 400, 60, "dispatcher", "key set of a and b: PrivateUse1, AutogradPrivateUse1, ...")
    picture.arrow(380, 144, 380, 172)
    picture.box(180, 174, 400, 60, "AutogradPrivateUse1", "records the backward, calls the next key")
    routes = [
        ("structured + stub", "checks and iteration are", "PyTorch's, the loop a stub"),
        ("CpuKernel", "unboxed, on aliases:", "the operators of one list"),
        ("fallback", "boxed, on aliases:", "every other operator"),
    ]
    for i, lines in enumerate(routes):
        x = 10 + 252 * i
        picture.arrow(380, 234, x + 118, 268)
        picture.box(x, 270, 236, 74, *lines, kind="accent" if i == 0 else "box")
        picture.arrow(x + 118, 344, 380 + 60 * (i - 1), 374)
    picture.box(180, 376, 400, 40, "the CPU's kernel, in the kernel window")
    return picture


def windows() -> Picture:
    picture = Picture(760, 270, "One memory, two windows at a constant distance.")
    picture.text(10, 30, "device window", size=14, anchor="start")
    picture.text(10, 48, "PROT_NONE: what tensors carry", kind="dim", size=12, anchor="start")
    picture.box(230, 14, 520, 48, kind="warn")
    picture.box(330, 20, 150, 36, "a", kind="accent")
    picture.box(490, 20, 100, 36, "b", kind="accent")
    picture.text(10, 152, "kernel window", size=14, anchor="start")
    picture.text(10, 170, "read and write: what kernels use", kind="dim", size=12, anchor="start")
    picture.box(230, 134, 520, 48)
    picture.box(330, 140, 150, 36, "same bytes", kind="accent")
    picture.box(490, 140, 100, 36, "same", kind="accent")
    picture.arrow(400, 62, 400, 132, "orGetKernelPointer()")
    picture.box(330, 218, 260, 40, "pages of one memory object")
    picture.arrow(540, 182, 540, 216)
    picture.parts.append('<path d="M700 62 L700 238 L592 238" class="line" marker-end="url(#head)"/>')
    return picture


def timeline() -> Picture:
    picture = Picture(
        760, 300, "Two streams and an event, in the mode async. The host returns from every launch at once."
    )
    for y, name in ((40, "host"), (130, "stream 1"), (220, "stream 2")):
        picture.text(10, y + 5, name, anchor="start")
        picture.parts.append(f'<path d="M90 {y} L750 {y}" class="line" stroke-dasharray="3 4"/>')
    for i, name in enumerate(("launch A", "record", "wait", "launch B")):
        picture.box(100 + 92 * i, 22, 84, 36, name)
    picture.box(580, 22, 150, 36, "synchronize()", kind="warn")
    picture.box(160, 112, 200, 36, "A runs", kind="accent")
    picture.box(366, 112, 58, 36, "event")
    picture.box(270, 202, 150, 36, "waits", kind="warn")
    picture.box(430, 202, 180, 36, "B runs", kind="accent")
    picture.arrow(395, 148, 428, 200)
    picture.arrow(142, 58, 168, 110)
    picture.arrow(610, 220, 650, 60)
    picture.text(
        420,
        280,
        "time, to the right; B reads what A wrote, because of the event and of nothing else",
        kind="dim",
        size=12,
    )
    return picture


def generator() -> Picture:
    picture = Picture(760, 330, "Where a random number comes from: queued kernels draw in the order of their launches.")
    picture.box(10, 20, 220, 60, "torch.rand(3)", "device=openreg")
    picture.arrow(230, 50, 268, 50)
    picture.box(270, 20, 220, 60, "generator argument?", "none: the device's default")
    picture.arrow(490, 50, 528, 50)
    picture.box(530, 20, 220, 60, "getDefaultGenerator()", "of the hooks")
    picture.arrow(640, 80, 640, 118)
    picture.box(530, 120, 220, 78, "OpenRegGeneratorImpl", "one for each device;", "its label is the device's")
    picture.arrow(530, 159, 492, 159)
    picture.box(270, 120, 220, 78, "CPUGeneratorImpl", "a Mersenne twister:", "seed and state", kind="accent")
    picture.arrow(270, 159, 232, 159)
    picture.box(10, 120, 220, 78, "the CPU's kernel", "draws in the order", "of the launches")
    picture.arrow(380, 238, 380, 200)
    picture.box(160, 240, 440, 60, "torch.manual_seed(7)", "calls manual_seed_all(): the same numbers as on the CPU")
    return picture


def autocast() -> Picture:
    picture = Picture(760, 440, "A call under autocast: the list of its operator decides about the dtype.")
    picture.box(250, 8, 260, 60, "a @ b", 'in torch.autocast("openreg")')
    picture.arrow(380, 68, 380, 98)
    picture.box(180, 100, 400, 60, "AutocastPrivateUse1", "the first dispatch key, while autocast is on")
    lists = [
        ("lower precision", "matmul, conv2d, ...:", "cast to bfloat16 or float16"),
        ("float32", "softmax, sums, losses:", "cast to float32"),
        ("widest type", "dot, addcmul, ...: cast", "to the widest operand's"),
        ("no list", "fallthrough: the types", "stay as they are"),
    ]
    for i, lines in enumerate(lists):
        x = 8 + 190 * i
        picture.arrow(380, 160, x + 87, 208)
        picture.box(x, 210, 174, 78, *lines, kind="accent" if i == 0 else "box")
        picture.arrow(x + 87, 288, 380 + 40 * (i - 1.5), 338)
    picture.box(
        180,
        340,
        400,
        60,
        "AutogradPrivateUse1, then PrivateUse1",
        "the operator, without autocast, on the cast operands",
    )
    picture.text(380, 428, "the lists are PyTorch's; the backend registers them for its own key", kind="dim", size=12)
    return picture


def storage() -> Picture:
    picture = Picture(760, 360, "What lies below two tensors: views share a storage, and the storage owns one block.")
    for x, name, what in ((10, "x", "sizes, strides, offset 0"), (280, "x[1:]", "sizes, strides, offset 1")):
        picture.box(x, 10, 210, 60, name, what)
        picture.arrow(x + 105, 70, 250 if x < 100 else 310, 118)
    picture.box(550, 10, 200, 60, "BackendMeta", "optional: a description")
    picture.arrow(490, 40, 548, 40)
    picture.box(150, 120, 260, 78, "OpenRegStorageImpl", "device address, size,", "and the deleter", kind="accent")
    picture.arrow(410, 159, 468, 159, "keeps")
    picture.box(470, 120, 280, 78, "CPU view", "a CPU storage over the same bytes;", "owns nothing")
    picture.arrow(280, 198, 280, 238)
    picture.box(150, 240, 260, 60, "block", "of the caching allocator")
    picture.arrow(610, 198, 412, 262)
    picture.text(540, 262, "kernel window", kind="dim", size=12, anchor="start")
    picture.text(280, 335, "the last tensor is destroyed: the block returns to the allocator", kind="dim", size=12)
    return picture


def sharing() -> Picture:
    picture = Picture(760, 350, "A tensor that goes to another process: a handle is sent, and the bytes stay.")
    picture.text(10, 24, "sender", anchor="start")
    picture.text(520, 24, "receiver", anchor="start")
    picture.box(10, 40, 230, 60, "queue.put(x)", "waits for the current stream")
    picture.arrow(240, 70, 518, 70, "handle, offset, size, slot, number")
    picture.box(520, 40, 230, 60, "queue.get()", "opens the handle")
    picture.box(10, 140, 230, 60, "storage", "owns the block")
    picture.box(520, 140, 230, 60, "storage", "an address of its own")
    picture.arrow(125, 100, 125, 138)
    picture.arrow(635, 100, 635, 138)
    picture.box(270, 140, 220, 60, "the same pages", "of device memory", kind="accent")
    picture.arrow(240, 170, 268, 170)
    picture.arrow(520, 170, 492, 170)
    states = ("in flight", "opened", "released")
    picture.text(10, 254, "slot, in shared memory", anchor="start", size=13)
    for i, state in enumerate(states):
        picture.box(200 + 190 * i, 236, 160, 40, state, kind="accent" if i == 1 else "box")
        if i:
            picture.arrow(170 + 190 * i, 256, 198 + 190 * i, 256)
    picture.text(380, 310, "in flight or opened: what the sender frees waits in limbo", kind="dim", size=12)
    picture.text(380, 332, "released: the block returns to the sender's allocator", kind="dim", size=12)
    return picture


def profiled() -> Picture:
    """Runs a program, and draws its trace as trace viewers do: the length of a bar is the time that was recorded."""
    # On a system with USDT probes, Kineto would write lines that begin with "USDT:" to stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "10")
    import torch

    from torch_openreg import openreg
    from torch_openreg._cli.trace import Trace

    def program() -> None:
        with side:
            result.copy_(y, non_blocking=True)
        for _ in range(3):
            torch.tan(x)
        torch.accelerator.synchronize()

    x = torch.ones(30_000, device="openreg")  # so few elements that one thread computes them
    y = torch.ones(200, 500, device="openreg")
    result = torch.empty(200, 500, pin_memory=True)
    with openreg.execution_mode("async"), tempfile.TemporaryDirectory() as folder:
        side = torch.Stream("openreg")
        traces = []
        for run in range(10):
            with torch.profiler.profile() as recorded:
                program()
            file = Path(folder) / f"{run}.json"
            recorded.export_chrome_trace(str(file))
            traces.append(Trace(file))

    def length(trace: Trace) -> float:
        return max(event.end for event in trace.host) - min(event.begin for event in trace.host)

    trace = min(traces, key=length)  # the run that other programs of the machine disturbed least
    begin = min(event.begin for event in trace.host)
    end = max(event.end for event in trace.host)
    rows = {"operators": 30, "calls": 86}
    for device, stream in sorted(trace.lanes):
        rows[f"device {device}, stream {stream}"] = 30 + 56 * len(rows)
    bottom = 56 * len(rows) + 40
    picture = Picture(
        760,
        bottom,
        "Two streams in the mode async, as the profiler recorded them: a copy and three kernels.",
    )

    def x_of(time: float) -> float:
        return 150 + 600 * (time - begin) / (end - begin)

    def bar(row: str, event: Event, kind: str) -> None:
        width = max(x_of(event.end) - x_of(event.begin), 1.5)
        picture.box(round(x_of(event.begin), 1), rows[row], round(width, 1), 30, kind=kind)
        if width > 7 * len(event.name):
            picture.text(x_of(event.begin) + width / 2, rows[row] + 19, event.name, kind="code", size=11)

    for name, y_of in rows.items():
        picture.text(10, y_of + 19, name, anchor="start", size=13)
    for event in trace.host:
        if event.category == "cpu_op":
            bar("operators", event, "box")
    for event in trace.runtime:
        bar("calls", event, "warn" if event.name.endswith("Synchronize") else "box")
    for (device, stream), events in trace.lanes.items():
        for event in events:
            row = f"device {device}, stream {stream}"
            bar(row, event, "accent")
            call = trace.calls.get(event.arguments["correlation"])
            if call:
                picture.arrow(round(x_of(call.begin), 1), 116, round(x_of(event.begin), 1), rows[row])
    picture.text(450, bottom - 10, f"{end - begin:.0f} microseconds, from left to right", kind="dim", size=12)
    return picture


TRAINING = """
import sys
import torch
from torch_openreg.openreg import memory

memory._record_memory_history(stacks="python")
model = torch.nn.Sequential(*[torch.nn.Linear(500, 500) for _ in range(4)]).to("openreg")
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    loss = model(torch.ones(700, 500, device="openreg")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
memory._dump_snapshot(sys.argv[1])
"""


def snapshot_of_a_training(file: Path) -> None:
    """Runs TRAINING in a separate process, because a process has one memory history, and writes its snapshot."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "train.py"
        program.write_text(TRAINING.lstrip())
        subprocess.check_call([sys.executable, program, file])


class Course:
    """The first picture of the page that ``python -m torch_openreg memory --html`` writes, drawn from a real run."""

    def svg(self) -> str:
        """Returns the picture as an HTML figure, as Picture.svg() does."""
        from torch_openreg._cli import memory

        with tempfile.TemporaryDirectory() as folder:
            snapshot = Path(folder) / "memory.pickle"
            snapshot_of_a_training(snapshot)
            (device,) = memory.load(snapshot)
        caption = (
            "Three steps of a training with Adam, as the page shows them: the memory in use by what it is for, "
            "and the peak."
        )
        return (
            f'<figure class="picture">{memory.course(device, "category")}<figcaption>{caption}</figcaption></figure>\n'
        )


def memory_in_use() -> Course:
    return Course()


PICTURES = (
    layers,
    from_import_to_tensor,
    operator,
    windows,
    timeline,
    generator,
    autocast,
    storage,
    sharing,
    profiled,
    memory_in_use,
)


def draw_all(folder: Path) -> None:
    """Writes each picture as an HTML figure, which a page includes with a `raw` directive."""
    for draw in PICTURES:
        generated.write(folder / f"{draw.__name__}.html", draw().svg())


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]))
