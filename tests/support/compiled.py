"""What the tests of torch.compile share. They run on the device under its own name and under the name cuda."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import programs
import pytest
from programs import COMPILER, Done, Run

ROOT = Path(__file__).parents[2]
# chaos queues all kernels, as async does, and runs them late.
MODES = pytest.mark.parametrize("mode", ["inline", "chaos"])


def runner(program: Path, head: str, **environment: str) -> Run:
    """A function that writes ``head`` and its argument to the file ``program`` and runs the file in a new process.

    As programs.run(), with the status 0 unless the test gives another one.
    """

    def run(code: str, **variables: Any) -> Done:
        program.write_text(head + textwrap.dedent(code))
        settings: dict[str, Any] = {"imports": COMPILER, "status": 0} | environment | variables
        return programs.run(sys.executable, program, cwd=ROOT, **settings)

    return run


def output_of(result: Done) -> str:
    return result.stdout.strip()


def reports(inductor_cache: Path, *options: str, **variables: str) -> list[dict[str, Any]]:
    command = (sys.executable, "-m", "tests.compile.compile_programs", "--json", *options)
    result = programs.run(
        *command, cwd=ROOT, imports=COMPILER, TORCHINDUCTOR_CACHE_DIR=str(inductor_cache), **variables
    )
    return [json.loads(line) for line in result.stdout.splitlines()]


def assert_all_agree(found: list[dict[str, Any]], names: list[str]) -> None:
    assert [report["name"] for report in found] == names
    assert {report["name"]: report["error"] for report in found if report["error"]} == {}


# ---- Programs


RECORDS_EVENTS = """
    def compute(x, begin, made):
        begin.record()
        y = x.sin().tan().sin().tan()
        end = torch.Event(DEVICE, enable_timing=True)
        end.record()
        made.record()
        return y, end

    compiled, side = torch.compile(compute, fullgraph=True), torch.Stream(DEVICE)
    x = torch.full((1 << 19,), 0.5, dtype=torch.float64).to(DEVICE)
    expected = compute(x, torch.Event(DEVICE), torch.Event(DEVICE))[0].cpu() * 2
    for _ in range(3):
        begin, made = torch.Event(DEVICE, enable_timing=True), torch.Event(DEVICE)
        y, end = compiled(x, begin, made)
        with side:
            made.wait()
            z = y * 2
        side.synchronize()
        torch.testing.assert_close(z.cpu(), expected)
        # Since 2.14, PyTorch may record an event before the first kernel of a graph after that kernel.
        print(begin.elapsed_time(end) > 1 or torch.__version__ >= "2.14")
"""

COMPILES_STANDALONE = """
    import os
    from torch._inductor import CompiledArtifact, standalone_compile
    from torch.fx.experimental.proxy_tensor import make_fx

    path = os.environ["ARTIFACT"]
    x = torch.randn(8, 4, device=DEVICE)
    compute = lambda x: (x.softmax(-1) * 2,)
    artifact = standalone_compile(make_fx(compute)(x), [x], dynamic_shapes="from_example_inputs")
    artifact.save(path=path, format="unpacked")
    loaded = CompiledArtifact.load(path=path, format="unpacked")
    for callable in (artifact, loaded):
        torch.testing.assert_close(callable(x)[0].cpu(), x.cpu().softmax(-1) * 2)
    print(loaded(x)[0].device)
"""

PACKAGES = """
    import json, os, zipfile

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 4)
            self.register_buffer("buffer", torch.randn(4))
            self.constant = torch.randn(4, device=DEVICE)

        def forward(self, x):
            y = self.linear(x).relu() + self.buffer * self.constant
            return y, y.sum(-1) + torch.arange(x.shape[0], device=x.device), x.view(-1)

    model, path = Model().to(DEVICE), os.environ["PACKAGE"]
    size = torch.export.Dim("size", min=1, max=64)
    exported = torch.export.export(model, (torch.randn(2, 8, device=DEVICE),), dynamic_shapes=[{0: size}])
    torch._inductor.aoti_compile_and_package(exported, package_path=path)
    print({tensor.device.type for tensor in exported.state_dict.values()} == {DEVICE})
    with zipfile.ZipFile(path) as package:
        (facts,) = (package.read(name) for name in package.namelist() if name.endswith("wrapper_metadata.json"))
    print(json.loads(facts)["AOTI_DEVICE_KEY"])
    packaged = torch._inductor.aoti_load_package(path)
    for size in (2, 5):
        x = torch.randn(size, 8, device=DEVICE)
        for result, expected in zip(packaged(x), model(x)):
            assert result.device == expected.device
            torch.testing.assert_close(result.cpu(), expected.cpu())
    try:
        packaged(torch.ones(2, 7, device=DEVICE))
    except RuntimeError as error:
        print(str(error).splitlines()[0].removeprefix("addmm: "))  # the prefix is new in PyTorch 2.15
    print(packaged(x)[2].data_ptr() == x.data_ptr())
"""
PRINTED_BY_PACKAGES = "True\n{device}\nmat1 and mat2 shapes cannot be multiplied (2x7 and 8x4)\nTrue"
