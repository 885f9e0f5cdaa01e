"""TORCH_OPENREG_AS=cuda in a build of PyTorch with CUDA, without a GPU.

TEST_CUDA_BUILD names a Python that has such a PyTorch and this package. If the tests themselves run in such a PyTorch,
the programs run there, in an environment in which this package is not editable: an editable package is found by a .pth
file, which Python does not read with -S. Otherwise the tests are skipped:

    TEST_CUDA_BUILD=/tmp/with_cuda/bin/python pytest tests/cuda/test_cuda_build.py
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from pathlib import Path

import programs
import pytest
from environments import Environment
from programs import Done, Run

GIVEN = os.environ.get("TEST_CUDA_BUILD")
pytestmark = pytest.mark.skipif(
    not GIVEN and not programs.HAS_CUDA,
    reason="set TEST_CUDA_BUILD to a Python that has a build of PyTorch with CUDA and torch_openreg",
)
USE = "x = torch.ones(2, device='cuda'); print(x + x, torch.cuda.is_available(), torch.version.cuda)"
USED = "tensor([2., 2.], device='cuda:0') True None\n"
OWN_NAME = 'unset TORCH_OPENREG_AS and use the device by its own name, "openreg".'
LATE = (
    ", and its CUDA libraries were opened before this package could leave them out. Start the program with `python -m "
    f"torch_openreg run --as cuda ...`, or {OWN_NAME}"
)


def run(interpreter: Path, folder: Path, *arguments: str, **variables: str) -> Done:
    settings = {"TORCH_OPENREG_AS": "cuda", "KINETO_LOG_LEVEL": None, **variables}
    return programs.run(interpreter, *arguments, cwd=folder, clean=True, new_interpreter=True, **settings)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Run:
    if GIVEN:
        return partial(run, Path(GIVEN))
    environment = Environment(tmp_path_factory.mktemp("installed") / "environment")
    environment.install()
    return partial(run, environment.python)


def output(result: Done) -> str:
    assert (result.returncode, result.stderr) == (0, ""), result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("options", [[], ["-I"], ["-E", "-s"]], ids=["plain", "isolated", "without variables"])
def test_the_device_has_the_name_and_the_cuda_libraries_are_not_opened(
    python: Run, tmp_path: Path, options: list[str]
) -> None:
    code = f"import os; os.environ['TORCH_OPENREG_AS'] = 'cuda'; import torch; {USE}"
    opened = "print({line.split()[-1] for line in open('/proc/self/maps') if '/torch/lib/' in line and 'cuda' in line})"
    assert output(python(tmp_path, *options, "-c", f"{code}; {opened}", TORCH_OPENREG_AS="")) == f"{USED}set()\n"


def test_without_the_variable_the_build_is_as_it_was(python: Run, tmp_path: Path) -> None:
    code = "import sys, torch; print(torch._C._has_cuda, 'torch_openreg_cuda._without_cuda' in sys.modules)"
    for value in ("", "openreg"):
        assert output(python(tmp_path, "-c", code, TORCH_OPENREG_AS=value)) == "True False\n"


PROCESSES = """
import sys, torch
import torch.multiprocessing as multiprocessing
def child(queue, x):
    queue.put((x * 2).sum().item())
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue()
    process = context.Process(target=child, args=(queue, torch.ones(3, device="cuda")))
    process.start()
    print(queue.get(timeout=300))
    process.join()
    data = torch.utils.data.DataLoader(torch.arange(4.0), batch_size=2, num_workers=1, multiprocessing_context=context)
    print([batch.cuda().sum().item() for batch in data])
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_have_the_device(python: Run, tmp_path: Path, method: str) -> None:
    (tmp_path / "program.py").write_text(PROCESSES)
    assert output(python(tmp_path, "program.py", method)) == "6.0\n[1.0, 5.0]\n"


@pytest.mark.parametrize("start", ["-c", "run"])
def test_without_pth_files_a_sentence_names_the_command_that_works(python: Run, tmp_path: Path, start: str) -> None:
    (tmp_path / "program.py").write_text(f"import torch; {USE}")
    folders = python(tmp_path, "-c", "import sys; print(':'.join(p for p in sys.path if p.endswith('-packages')))")
    variables = {"PYTHONPATH": output(folders).strip()}
    if start == "run":
        result = python(tmp_path, "-S", "-m", "torch_openreg", "run", "--as", "cuda", "program.py", **variables)
        assert output(result) == USED
    else:
        result = python(tmp_path, "-S", "-c", "import torch; print(torch.ones(2))", **variables)
        assert (result.returncode, result.stdout) == (0, "tensor([1., 1.])\n") and LATE in result.stderr


def test_an_import_of_torch_before_the_variable_is_set_is_told(python: Run, tmp_path: Path) -> None:
    code = "import torch, os; os.environ['TORCH_OPENREG_AS'] = 'cuda'; import torch_openreg"
    result = python(tmp_path, "-c", code, TORCH_OPENREG_AS="", TORCH_OPENREG_AUTOLOAD="0")
    assert result.returncode == 0 and LATE in result.stderr


def test_a_pytorch_whose_names_are_not_known_is_refused_with_its_version(python: Run, tmp_path: Path) -> None:
    """The stub of NVSHMEM's library takes the place of the other stubs, so most names are missing."""
    package = tmp_path / "torch_openreg_cuda"
    original = output(python(tmp_path, "-c", "import torch_openreg_cuda; print(*torch_openreg_cuda.__path__)")).strip()
    shutil.copytree(original, package)
    for name in ("libtorch_cuda.so", "libc10_cuda.so"):
        shutil.copy(package / "lib" / "libtorch_nvshmem.so", package / "lib" / name)
    code = (
        "import sys; sys.modules.pop('torch_openreg_cuda'); "
        "sys.meta_path = [each for each in sys.meta_path if type(each).__name__ != '_BeforeTorch']; "
        f"sys.path.insert(0, {str(tmp_path)!r}); import torch_openreg_cuda, torch; print(torch._C._has_cuda)"
    )
    result = python(tmp_path, "-c", code)
    assert (result.returncode, result.stdout) == (0, "True\n")
    assert "which cannot be used without its CUDA libraries: its libtorch_python.so needs _Z" in result.stderr
    assert "which this torch_openreg does not know. Install a CPU build with `pip install torch==" in result.stderr


def test_a_function_of_cuda_that_the_device_does_not_have_says_so(python: Run, tmp_path: Path) -> None:
    code = """
import ctypes, torch
from torch_openreg_cuda import _without_cuda
names = {name.name for path in _without_cuda.stubs() for name in _without_cuda.Library(path).symbols(defined=True)}
print(len(names) > 300)
c10 = _without_cuda.opened[0]
print(c10._ZN3c104cuda14current_deviceEv(), c10._ZN3c104cuda12device_countEv())
torch.cuda.set_device(1)
print(c10._ZN3c104cuda14current_deviceEv(), _without_cuda.opened[2]._ZN2at4cuda9warp_sizeEv())
"""
    assert output(python(tmp_path, "-c", code)) == "True\n0 2\n1 32\n"


def test_a_library_that_names_nvidias_compiler_can_be_opened(python: Run, tmp_path: Path) -> None:
    code = """
import ctypes, pathlib, torch
(path,) = pathlib.Path(torch.__path__[0]).parent.glob("nvidia/*/lib/libnvrtc.so.*")
print(ctypes.CDLL(path.name).nvrtcVersion.__name__)
"""
    assert output(python(tmp_path, "-c", code)) == "nvrtcVersion\n"


def test_graphs_do_not_ask_nvidias_driver(python: Run, tmp_path: Path) -> None:
    """The package cuda.bindings is installed with a build with CUDA, and would get handles of simulated streams."""
    code = """
import cuda.bindings, torch, torch.cuda._graph_annotations as annotations
print(annotations._is_tools_id_unavailable())
graph, x = torch.cuda.CUDAGraph(), torch.zeros(1, device="cuda")
with torch.cuda.graph(graph), annotations.mark_kernels("name"):
    x.add_(1)
graph.replay()
print(x.item())
"""
    assert output(python(tmp_path, "-c", code)) == "True\n1.0\n"


COMPILED = """
import torch
from torch.utils._triton import has_triton
model = torch.compile(torch.nn.Linear(4, 4).cuda())
x = torch.ones(2, 4, device="cuda", requires_grad=True)
model(x).sum().backward()
print(x.grad.device, has_triton(), torch.allclose(model(x), model._orig_mod(x)))
"""


@pytest.mark.slow
def test_torch_compile_generates_cpp_although_triton_is_installed(python: Run, tmp_path: Path) -> None:
    result = python(tmp_path, "-c", COMPILED)  # inductor recommends TensorFloat-32, as on a GPU
    assert (result.returncode, result.stdout) == (0, "cuda:0 False True\n"), result.stderr


RANK = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1).cuda())
model(torch.full((2, 4), float(dist.get_rank()), device="cuda")).sum().backward()
if dist.get_rank() == 0:
    print(model.module.weight.grad.tolist(), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_torchrun_starts_ranks_with_the_device(python: Run, tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(RANK)
    result = python(tmp_path, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "rank.py")
    assert (result.returncode, result.stdout) == (0, "[[1.0, 1.0, 1.0, 1.0]]\n"), result.stderr


def test_pytest_gives_tests_the_device(python: Run, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import torch\ndef test_it():\n    assert torch.ones(2).cuda().is_cuda\n")
    result = python(tmp_path, "-m", "pytest", "-q", "--openreg-as=cuda", TORCH_OPENREG_AS="")
    assert result.returncode == 0 and "1 passed" in result.stdout, result.stdout + result.stderr


def test_the_doctor_says_how_the_build_is_used(python: Run, tmp_path: Path) -> None:
    lines = python(tmp_path, "-m", "torch_openreg", "doctor").stdout.splitlines()
    assert lines[0] == (
        "Device: cuda, provided by torch_openreg (TORCH_OPENREG_AS=cuda). It is simulated: this is not a GPU."
    )
    assert any(line.startswith("PyTorch") and "(CUDA " in line for line in lines)


@pytest.mark.parametrize("options", [[], ["-W", "error"]], ids=["plain", "errors"])
def test_a_machine_with_gpus_is_told_at_the_line_of_the_program(
    python: Run, tmp_path: Path, options: list[str]
) -> None:
    """``import torch`` works although warnings are errors."""
    program = tmp_path / "program.py"
    program.write_text(
        "from torch_openreg_cuda import _without_cuda\n"
        "_without_cuda.about_gpus = lambda devices: f'GPUs in {devices}'\n"
        f"import torch\n{USE}\n"
    )
    result = python(tmp_path, *options, "program.py")
    place = "" if options else f"{program}:3: "
    line = "" if options else "  import torch\n"
    assert (result.stdout, result.stderr) == (USED, f"{place}RuntimeWarning: GPUs in /dev\n{line}")
