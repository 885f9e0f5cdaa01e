"""TORCH_OPENREG_AS=cuda gives the simulated device the type "cuda" (the identity cuda, docs/glossary.md).

Tests when the variable takes effect, the errors that prevent it, CUDA_VISIBLE_DEVICES, and the end of such a process.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from functools import partial
from pathlib import Path

import programs
import pytest
import torch
from cuda_builds import AS_CUDA
from environments import Environment
from programs import Done, at_once

EXAMPLES = Path(__file__).parents[2] / "examples"
USE = "x = torch.ones(2, device='cuda'); print(x.is_cuda, (x + x).cpu().tolist())"
USED = "True [2.0, 2.0]\n"
# Computes on the CPU, and prints what torch.cuda says about GPUs.
ON_THE_CPU = "print(torch.ones(2).sum().item(), torch.cuda.is_available(), torch.cuda.device_count())"
DOCTOR = " `python -m torch_openreg doctor` says more."
OWN_NAME = ' unset TORCH_OPENREG_AS and use the device by its own name, "openreg".'


@pytest.fixture
def environment(shared_environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """The shared environment, whose server starts the programs, with a copy of the package that a test may break."""
    environment = Environment(tmp_path / "environment")
    environment.install()
    environment.python = shared_environment.python
    monkeypatch.setenv("PYTHONPATH", str(environment.site_packages))
    return environment


def warning_of(environment: Environment, code: str, *options: str, **variables: str) -> tuple[str, str]:
    """The output and the one warning of a program in which the start fails."""
    result = environment.start(code, *options, **{"TORCH_OPENREG_AS": "cuda", **variables}, status=0)
    (message,) = re.findall(r"RuntimeWarning: (.*)\n", result.stderr)
    return result.stdout, message


# ---- The variable ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@AS_CUDA
def test_the_variable_gives_a_device_of_type_cuda_and_leaves_privateuse1_alone(shared_environment: Environment) -> None:
    code = f"import torch; {USE}; print(torch._C._get_privateuse1_backend_name(), hasattr(torch, 'openreg'))"
    assert shared_environment.run(code, TORCH_OPENREG_AS="cuda") == f"{USED}privateuseone False\n"


def test_openreg_and_an_empty_value_are_the_devices_own_name(shared_environment: Environment) -> None:
    code = "import torch; print(torch.ones(2, device='openreg').device, torch.cuda.is_available())"
    runs = [partial(shared_environment.run, code, TORCH_OPENREG_AS=value) for value in ("", "openreg")]
    assert at_once(*runs) == ["openreg:0 False\n"] * 2


@AS_CUDA
def test_without_autoload_importing_torch_openreg_gives_the_type_cuda(shared_environment: Environment) -> None:
    code = (
        f"import torch; {ON_THE_CPU}; import os; os.environ['TORCH_OPENREG_AS'] = 'cuda'; import torch_openreg; {USE}"
    )
    # A build with CUDA has to know the type before it is imported.
    early = "cuda" if programs.HAS_CUDA else None
    assert shared_environment.run(code, TORCH_OPENREG_AUTOLOAD="0", TORCH_OPENREG_AS=early) == f"2.0 False 0\n{USED}"


def test_the_first_use_of_the_device_warns_if_the_variable_was_set_after_import_torch(
    shared_environment: Environment,
) -> None:
    code = f"""
import os, torch
os.environ["TORCH_OPENREG_AS"] = "cuda"
{ON_THE_CPU}
import torch_openreg_autoload
assert torch_openreg_autoload._autoload() is torch.openreg
torch.ones(1, device="openreg")
"""
    output, message = warning_of(shared_environment, code, TORCH_OPENREG_AS="")
    assert output == "2.0 False 0\n"
    assert message == (
        "TORCH_OPENREG_AS was changed from '' to 'cuda' after `import torch`, and this process keeps the device "
        '"openreg". Set it before Python starts, or use `python -m torch_openreg run --as ...`.'
    )


def test_the_first_use_warns_at_its_line_and_only_once(shared_environment: Environment, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import os, torch
os.environ["TORCH_OPENREG_AS"] = "openreg"  # the device's own name
import torch_openreg
os.environ["TORCH_OPENREG_AS"] = "cuda"
from torch_openreg import openreg
openreg.init()
torch.ones(1, device="openreg")
openreg.init()
""")
    result = shared_environment.start(f"import runpy; runpy.run_path({str(program)!r})", TORCH_OPENREG_AS="")
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == (
        f"{program}:7: RuntimeWarning: TORCH_OPENREG_AS was changed from '' to 'cuda' after `import torch`, and this "
        'process keeps the device "openreg". Set it before Python starts, or use `python -m torch_openreg run --as '
        "...`.\n  openreg.init()\n"
    )


@pytest.mark.slow
@AS_CUDA
@pytest.mark.parametrize("line", ["import torch_openreg.openreg", "from torch_openreg.openreg import memory"])
def test_after_a_later_import_the_first_use_warns_and_torch_works_as_without_cuda(
    shared_environment: Environment, tmp_path: Path, line: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"""
import os, torch
os.environ["TORCH_OPENREG_AS"] = "cuda"
{ON_THE_CPU}
try:
    torch.ones(2, device="cuda")
except (AssertionError, RuntimeError) as error:
    print(str(error).partition(".")[0])
{line}
print(torch.ones(2, device="openreg").sum().item())
""")
    result = shared_environment.start(f"import runpy; runpy.run_path({str(program)!r})", TORCH_OPENREG_AS="")
    said = "Found no NVIDIA driver on your system" if programs.HAS_CUDA else "Torch not compiled with CUDA enabled"
    assert (result.returncode, result.stdout) == (0, f"2.0 False 0\n{said}\n2.0\n")
    assert result.stderr == (
        f"{program}:10: RuntimeWarning: TORCH_OPENREG_AS was changed from '' to 'cuda' after `import torch`, and this "
        'process keeps the device "openreg". Set it before Python starts, or use `python -m torch_openreg run --as '
        '...`.\n  print(torch.ones(2, device="openreg").sum().item())\n'
    )


# ---- Errors that prevent the start: one warning ----------------------------------------------------------------------

UNKNOWN = (
    'The device "openreg" is not available: torch_openreg failed in check_environment: ValueError: TORCH_OPENREG_AS is '
    f"'gpu'. Set it to openreg (the default) or cuda, or unset it.{DOCTOR}"
)


def test_an_unknown_value_of_the_variable_is_reported(shared_environment: Environment) -> None:
    code = f"import torch; {ON_THE_CPU}"
    assert warning_of(shared_environment, code, TORCH_OPENREG_AS="gpu") == ("2.0 False 0\n", UNKNOWN)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["torch", "torch_openreg"])
def test_the_warning_is_at_the_programs_line(shared_environment: Environment, tmp_path: Path, first: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"import os\nimport {first}\n")
    result = shared_environment.start(
        f"import runpy; runpy.run_path({str(program)!r})", new_interpreter=True, TORCH_OPENREG_AS="gpu"
    )
    assert result.stderr == f"{program}:2: RuntimeWarning: {UNKNOWN}\n  import {first}\n"


@pytest.mark.slow
def test_with_warnings_as_errors_import_torch_works_and_prints_the_warning(shared_environment: Environment) -> None:
    result = shared_environment.start(f"import torch; {ON_THE_CPU}", "-W", "error", TORCH_OPENREG_AS="gpu")
    assert (result.returncode, result.stdout) == (0, "2.0 False 0\n")
    assert result.stderr == f"RuntimeWarning: {UNKNOWN}\n"


def test_strict_autoload_raises_for_an_unknown_identity(shared_environment: Environment) -> None:
    result = shared_environment.start("import torch", TORCH_OPENREG_AS="gpu", TORCH_OPENREG_AUTOLOAD="strict")
    assert result.returncode == 1 and UNKNOWN in result.stderr


def remove_the_type_cuda(environment: Environment) -> None:
    """Removes from the environment what a build without torch_openreg/_cuda/csrc does not install."""
    info = environment.package / "_build_info.py"
    libraries = (f"lib/libtorch_openreg_cuda{part}.so" for part in ("", "_bindings", "_registration"))
    for name in ("_C_cuda.so", *libraries):
        (environment.package / name).unlink()
        text, found = re.subn(rf'\s*"{name}": \d+,?|(?<=[{{ ])\'{name}\': \d+,? ?', "", info.read_text())
        assert found == 1
        info.write_text(text)


def test_no_phase_is_without_a_test_of_its_failure() -> None:
    from torch_openreg._cuda import _phases

    assert [phase.__name__ for phase in _phases.PHASES] == [
        *("check_platform", "check_environment", "check_build", "check_cuda", "check_libraries"),
        *("open_libraries", "check_hooks", "attach_cuda", "attach_compiler", "attach_dtensor"),
    ]


def test_without_the_folder_of_the_type_cuda_it_is_an_unknown_type(environment: Environment) -> None:
    shutil.rmtree(environment.package / "_cuda")
    assert warning_of(environment, f"import torch; {ON_THE_CPU}") == (
        "2.0 False 0\n",
        'The device "openreg" is not available: torch_openreg failed in check_environment: ValueError: '
        f"TORCH_OPENREG_AS is 'cuda'. Set it to openreg (the default), or unset it.{DOCTOR}",
    )
    assert environment.run("import torch; print(torch.ones(2, device='openreg').sum().item())") == "2.0\n"


def test_a_build_without_the_type_cuda_warns_and_the_device_openreg_works(environment: Environment) -> None:
    remove_the_type_cuda(environment)
    assert warning_of(environment, f"import torch; {ON_THE_CPU}") == (
        "2.0 False 0\n",
        'The simulated device "cuda" is not available: torch_openreg failed in check_cuda: ImportError: this '
        "torch_openreg was built without the device type cuda. Install a build that has it, or"
        f"{OWN_NAME}{DOCTOR}",
    )
    assert environment.run("import torch; print(torch.ones(2, device='openreg').sum().item())") == "2.0\n"


# A backend that makes this PyTorch look like a build with CUDA: it sets what check_cuda() reads. It is loaded first,
# because the entry point of torch_openreg comes last.
BUILD_WITH_CUDA = """
def _autoload():
    import torch
    torch._C._has_cuda = True
    torch.version.cuda = "13.0"
    torch.__version__ = torch.__version__.partition("+")[0] + "+cu130"
    {gpu}
"""
A_GPU = "torch.cuda.is_available = lambda: True; torch.cuda.device_count = lambda: 1"


@pytest.mark.slow
@pytest.mark.parametrize(("gpu", "output"), [("", "2.0 False 0\n"), (A_GPU, "2.0 True 1\n")], ids=["no GPU", "a GPU"])
def test_in_a_build_with_cuda_whose_libraries_are_open_the_name_cuda_is_taken(
    environment: Environment, gpu: str, output: str
) -> None:
    entry_point = "[torch.backends]\nwith_cuda = with_cuda:_autoload\n"
    environment.add_distribution("with_cuda", BUILD_WITH_CUDA.format(gpu=gpu), entry_point)
    # Of the paths, only the files' names are looked at: a folder may be called torch_openreg.
    no_library = (
        "names = {line.rpartition('/')[2] for line in open('/proc/self/maps')}; "
        "assert not any('openreg' in name or name.startswith('_C_cuda') for name in names)"
    )
    no_claim = "assert torch._C._get_privateuse1_backend_name() == 'privateuseone' and not hasattr(torch, 'openreg')"
    release = torch.__version__.partition("+")[0]
    assert warning_of(environment, f"import torch; {ON_THE_CPU}; {no_library}; {no_claim}") == (
        output,
        'The simulated device "cuda" is not available: torch_openreg failed in check_cuda: RuntimeError: PyTorch '
        f"{release}+cu130 is a build with CUDA 13.0, and its CUDA libraries were opened before this package could leave "
        f"them out. Start the program with `python -m torch_openreg run --as cuda ...`, or{OWN_NAME}{DOCTOR}",
    )
    # The second remedy in the message works: the device by its own name.
    assert environment.run("import torch; print(torch.ones(2, device='openreg').sum().item())") == "2.0\n"


# A library that gives PyTorch CUDA's hooks in PyTorch's own way, as a build with CUDA does.
OTHER_HOOKS = """
#include <ATen/detail/CUDAHooksInterface.h>
namespace {
struct OtherHooks : at::CUDAHooksInterface {
  explicit OtherHooks(at::CUDAHooksArgs) {}
};
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", OtherHooks)
} // namespace
"""


@pytest.mark.slow
@AS_CUDA
def test_hooks_that_are_not_pytorchs_stub_are_left_alone(shared_environment: Environment, tmp_path: Path) -> None:
    source, library = tmp_path / "hooks.cpp", tmp_path / "libhooks.so"
    source.write_text(OTHER_HOOKS)
    folder = Path(torch.__file__).parent
    compiler = ["g++", "-std=c++20", "-O0", "-fPIC", "-shared", f"-I{folder}/include", f"-L{folder}/lib"]
    programs.run(*compiler, f"-Wl,-rpath,{folder}/lib", source, "-o", library, "-lc10", "-ltorch_cpu", status=0)
    # `import torch` already asks for the hooks, so the library comes first.
    code = f"""
import ctypes; ctypes.CDLL({str(library)!r})
import torch; {ON_THE_CPU}
from torch_openreg import openreg
try: openreg.synchronize()
except RuntimeError as error: print(error)
"""
    result = shared_environment.start(code, clean=True, new_interpreter=True, TORCH_OPENREG_AS="cuda")
    message = (
        'The simulated device "cuda" is not available: torch_openreg failed in check_hooks: RuntimeError: PyTorch '
        "cannot be given the device's hooks: another library has given PyTorch CUDA's hooks. Do not load that library, "
        f"or{OWN_NAME}{DOCTOR}"
    )
    assert (result.returncode, result.stdout) == (0, f"2.0 False 0\n{message}\n")
    assert re.findall(r"RuntimeWarning: (.*)\n", result.stderr) == [message]


@AS_CUDA
def test_after_a_failure_the_module_explains_and_the_cpu_works(environment: Environment) -> None:
    (environment.package / "_C_cuda.so").unlink()
    code = """
import torch
from torch_openreg import openreg
print(openreg.is_available(), torch.accelerator.is_available(), torch.ones(2).sum().item())
try: openreg.synchronize()
except RuntimeError as error: print(error)
"""
    output, message = warning_of(environment, code)
    assert output == f"False False 2.0\n{message}\n"
    assert message.startswith(
        'The simulated device "cuda" is not available: torch_openreg failed in check_libraries: ImportError: '
        f"{environment.package}/_C_cuda.so is missing, and the build recorded "
    )


@AS_CUDA
def test_another_backend_may_have_privateuse1(shared_environment: Environment) -> None:
    code = f"import torch, torch_ledger; torch_ledger._autoload(); {USE}; print(torch.ones(2, device='ledger').device)"
    variables = {"TORCH_OPENREG_AS": "cuda", "PYTHONPATH": str(EXAMPLES / "python_backend")}
    assert shared_environment.run(code, **variables) == f"{USED}ledger:0\n"


# ---- torch-openreg run -----------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys, torch
print(sys.argv[1:], torch.cuda.is_available(), torch.cuda.device_count(), os.environ.get("OPENREG_EXECUTION"))
print(sys.flags.dev_mode, __name__, os.path.basename(sys.argv[0]))
sys.exit(3)
"""


def run_command(folder: Path, *arguments: str, options: tuple[str, ...] = ()) -> Done:
    return programs.run(sys.executable, *options, "-m", "torch_openreg", "run", *arguments, cwd=folder)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


@pytest.mark.slow
@AS_CUDA
def test_run_executes_a_module_and_passes_on_the_options_of_python(program: Path) -> None:
    options = ("--as=cuda", "--device-count=3", "--execution=chaos", "--seed=7")
    result = run_command(program, *options, "-m", "program", "--help", options=("-X", "dev", "-W", "ignore"))
    assert (result.returncode, result.stderr) == (3, "")
    assert result.stdout == "['--help'] True 3 chaos\nTrue __main__ program.py\n"


@pytest.mark.slow
@AS_CUDA
def test_run_is_a_console_script_too_and_executes_a_script_with_its_arguments(program: Path) -> None:
    script = Path(sys.executable).with_name("torch-openreg")
    result = programs.run(script, "run", "--as", "cuda", "program.py", "--as", "x", "-m", "--", "y", cwd=program)
    assert (result.returncode, result.stderr) == (3, "")
    assert result.stdout == "['--as', 'x', '-m', '--', 'y'] True 2 None\nFalse __main__ program.py\n"


@pytest.mark.slow
def test_run_without_options_changes_nothing(program: Path) -> None:
    assert run_command(program, "program.py").stdout == "[] False 0 None\nFalse __main__ program.py\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--as", "gpu", "x.py"), "argument --as: 'gpu' is not valid: expected cuda or openreg\n"),
        (
            ("--device-count", "0", "x.py"),
            "argument --device-count: '0' is not valid: expected a number from 1 to 64\n",
        ),
        (
            ("--device-count", "two", "x.py"),
            "argument --device-count: 'two' is not valid: expected a number from 1 to 64\n",
        ),
        (
            ("--execution", "fast", "x.py"),
            "argument --execution: 'fast' is not valid: expected inline, async, chaos, early, late or random:SEED\n",
        ),
        (("--as", "cuda"), "the following arguments are required: SCRIPT, ARGUMENTS\n"),
        (
            ("--as", "cuda", "missing.py"),
            "can't open file '{folder}/missing.py': [Errno 2] No such file or directory\n",
        ),
    ],
    ids=str,
)
def test_run_reports_a_bad_argument_or_program(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    result = run_command(tmp_path, *arguments)
    assert result.returncode == 2 and result.stderr.endswith(sentence.format(folder=tmp_path))


def test_run_explains_itself(tmp_path: Path) -> None:
    result = run_command(tmp_path, "--help")
    assert result.returncode == 0
    assert result.stdout.startswith(
        "usage: torch-openreg run [OPTIONS] SCRIPT [ARGUMENTS]\n"
        "       torch-openreg run [OPTIONS] -m MODULE [ARGUMENTS]\n"
    )
    assert "--as cuda|openreg" in result.stdout and "TORCH_OPENREG_AS" in result.stdout


# ---- Which devices ---------------------------------------------------------------------------------------------------

DEVICES = """
import os, torch
for value in {values}:
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    pid = os.fork()  # a process for each value: PyTorch and the device read the variable once
    if not pid:
        try:
            print(repr(value), torch.cuda.device_count(), torch._C._cuda_getDeviceCount(), flush=True)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
"""
UUID = "GPU-4f70656e-5265-6700-0000-00000000000{}"
# The value of CUDA_VISIBLE_DEVICES -> the indices of the visible devices on a machine with three devices.
VISIBLE = {
    "0": (0,), "2,0": (2, 0), " 1 , 2 ": (1, 2), "0,1,2": (0, 1, 2), "+1": (1,),
    "": (), "-1": (), "3": (), "0,-1,1": (0,), "1,7,0": (1,), "none": (), "0,x,1": (0,), "1gpu2,2ampere": (1, 2),
    "0,0": (), "0,1,0": (), "1,99999999999999999999": (1,),
    UUID.format(1): (1,), f"{UUID.format(2)},{UUID.format(0)}": (2, 0), "GPU-": (), "GPU-4f70": (),
    f"{UUID.format(1)},{UUID.format(1)}": (), f"{UUID.format(1)},GPU-1": (1,), f"{UUID.format(1)},0": (1,),
    f"{UUID.format(1)},GPU-7,GPU-7": (), UUID.format(9): (), "GPU-4F70656E": (), "MIG-1": (),
}  # fmt: skip


def pytorchs_own(value: str, uuids: list[str]) -> list[int]:
    """The devices that torch.cuda treats as visible if NVML reports the GPUs ``uuids``: torch/cuda/__init__.py."""
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    try:
        visible = torch.cuda._parse_visible_devices()
    finally:
        os.environ.pop("CUDA_VISIBLE_DEVICES")
        if before is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = before
    if visible and isinstance(visible[0], str):
        # For "MIG-..." _device_count_nvml() asks the driver; the simulated devices have no MIG instances.
        return torch.cuda._transform_uuid_to_ordinals(visible, uuids) if visible[0].startswith("GPU-") else []
    beyond = next((place for place, index in enumerate(visible) if index >= len(uuids)), len(visible))
    return list(visible[:beyond])


def test_the_table_of_visible_devices_is_pytorchs_own() -> None:
    uuids = [UUID.format(index) for index in range(3)]
    assert {value: tuple(pytorchs_own(value, uuids)) for value in VISIBLE} == VISIBLE


@AS_CUDA
def test_cuda_visible_devices_selects_as_cuda_does(shared_environment: Environment) -> None:
    code = DEVICES.format(values=list(VISIBLE))
    output = shared_environment.run(code, TORCH_OPENREG_AS="cuda", OPENREG_DEVICE_COUNT="3")
    assert output == "".join(f"{value!r} {len(devices)} {len(devices)}\n" for value, devices in VISIBLE.items())


@AS_CUDA
def test_device_count_reads_cuda_visible_devices_in_each_call_until_the_start(shared_environment: Environment) -> None:
    """torch/cuda/__init__.py, device_count(): the count is kept only after the initialisation."""
    # For "MIG-1" PyTorch asks CUDA, and so this device, which from then on keeps its answer.
    visible = {value: len(devices) for value, devices in VISIBLE.items() if value != "MIG-1"}
    code = f"""
import os, torch
for value, count in {visible}.items():
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    assert torch.cuda.device_count() == count, value
os.environ["CUDA_VISIBLE_DEVICES"] = "2,0"
torch.cuda.init()
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
devices = ["GPU-" + str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]
print([torch.cuda._raw_device_uuid_nvml().index(uuid) for uuid in devices])
"""
    assert shared_environment.run(code, TORCH_OPENREG_AS="cuda", OPENREG_DEVICE_COUNT="3") == "[2, 0]\n"


@pytest.mark.slow
@AS_CUDA
def test_device_count_before_the_start_is_the_number_of_devices_after_it(
    shared_environment: Environment, tmp_path: Path
) -> None:
    code = """
import torch
before = torch.cuda.device_count()
torch.cuda.init()
print(before, torch.cuda.device_count())
"""
    model = tmp_path / "four.json"
    model.write_text('{"about": "four devices", "properties": {"device_count": {"value": 4, "source": "this test"}}}')
    settings = (
        ({}, 2),
        ({"OPENREG_DEVICE_COUNT": "64"}, 64),
        ({"OPENREG_DEVICE_COUNT": "", "CUDA_VISIBLE_DEVICES": "1,0"}, 2),
        ({"OPENREG_MODEL": str(model)}, 4),
        ({"OPENREG_MODEL": str(model), "CUDA_VISIBLE_DEVICES": "3"}, 1),
        ({"OPENREG_MODEL": str(model), "OPENREG_DEVICE_COUNT": "3", "CUDA_VISIBLE_DEVICES": "0,3"}, 1),
        ({"OPENREG_VISIBLE_DEVICES": "1"}, 1),
    )
    runs = [partial(shared_environment.start, code, TORCH_OPENREG_AS="cuda", **each) for each, _ in settings]
    for (variables, count), result in zip(settings, at_once(*runs), strict=True):
        assert (result.stdout, result.stderr) == (f"{count} {count}\n", ""), variables


@AS_CUDA
def test_cuda_visible_devices_is_read_at_the_first_use_and_later_changes_have_no_effect(
    shared_environment: Environment,
) -> None:
    code = """
import os, torch
os.environ["CUDA_VISIBLE_DEVICES"] = "1"
torch.cuda.init()
os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
print(torch.cuda.device_count())
"""
    assert shared_environment.run(code, TORCH_OPENREG_AS="cuda") == "1\n"


def test_the_device_openreg_ignores_cuda_visible_devices(shared_environment: Environment) -> None:
    code = "import torch; print(torch.openreg.device_count())"
    assert shared_environment.run(code, CUDA_VISIBLE_DEVICES="") == "2\n"


@pytest.mark.slow
@AS_CUDA
def test_both_variables_may_agree_but_not_differ(shared_environment: Environment) -> None:
    code = "import torch; print(torch.cuda.device_count())"
    agree = {"OPENREG_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": " 1"}
    assert shared_environment.run(code, TORCH_OPENREG_AS="cuda", **agree) == "1\n"
    alone = {"OPENREG_VISIBLE_DEVICES": "0"}
    assert shared_environment.run(code, TORCH_OPENREG_AS="cuda", **alone) == "1\n"
    differ = {"OPENREG_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}
    result = shared_environment.start(code, TORCH_OPENREG_AS="cuda", **differ)
    assert (result.returncode, result.stdout) == (0, "0\n")
    assert (
        'CUDA_VISIBLE_DEVICES="1" and OPENREG_VISIBLE_DEVICES="0" select different devices: unset one of them'
    ) in result.stderr


# ---- How the process ends --------------------------------------------------------------------------------------------

IN_FLIGHT = """
import torch
stream = torch.cuda.Stream()
x = torch.rand(400, 400, device="cuda", requires_grad=True)
with torch.cuda.stream(stream):
    for _ in range(20):
        y = (x @ x).sum()
    y.backward()
host = torch.empty(400, 400).pin_memory()
host.copy_(x.detach(), non_blocking=True)
event = torch.cuda.Event()
event.record()
"""
FORKED = """
import os, torch, warnings
x = torch.ones(2, device="cuda")
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12's about a fork of a process with threads
if os.fork() == 0:
    import sys
    sys.exit(0)  # with Python's normal shutdown
print(os.wait()[1], (x + x).cpu().tolist())
"""
FORKED_BEFORE = """
import os, torch
if os.fork() == 0:
    (torch.ones(2, device="cuda") + 1).cpu()
    raise SystemExit(0)
print(os.wait()[1], torch.ones(2, device="cuda").cpu().tolist())
"""
ENDS = {
    "nothing but the import": ("import torch", ""),
    "a tensor": (f"import torch; {USE}", USED),
    "work in flight": (IN_FLIGHT, ""),
    "a forked child": (FORKED, "0 [2.0, 2.0]\n"),
    "a child forked before the first use": (FORKED_BEFORE, "0 [1.0, 1.0]\n"),
}


@pytest.mark.slow
@AS_CUDA
@pytest.mark.parametrize(("code", "output"), ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("execution", ["inline", "chaos"])
def test_the_process_ends_with_status_0_and_prints_no_error(
    shared_environment: Environment, code: str, output: str, execution: str
) -> None:
    assert shared_environment.run(code, TORCH_OPENREG_AS="cuda", OPENREG_EXECUTION=execution) == output


@pytest.mark.slow
@AS_CUDA
@pytest.mark.parametrize("end", ["work in flight", "a forked child"])
def test_the_end_leaves_no_file_open_and_no_memory_damaged(shared_environment: Environment, end: str) -> None:
    code, output = ENDS[end]
    # -X dev checks memory blocks and reports what was not closed. -W ignore: PyTorch's own imports warn in this mode.
    options = ("-X", "dev", "-W", "ignore")
    assert shared_environment.run(code, *options, TORCH_OPENREG_AS="cuda", OPENREG_EXECUTION="chaos") == output
