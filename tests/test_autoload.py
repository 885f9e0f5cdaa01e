"""`import torch` brings the device, in whatever order things are imported, and never breaks because of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Environment

USE = "x = torch.ones(2, device='openreg'); print((x + x).cpu().tolist())"

# Prints what the first use raises, and where it came from.
FIRST_USE = """
import torch
assert torch.ones(2).sum().item() == 2
assert not torch.openreg.is_available()
for use in (
    lambda: torch.ones(2, device="openreg"),
    lambda: torch.ones(2).to("openreg"),
    lambda: torch.openreg.synchronize(),
):
    try:
        use()
    except RuntimeError as error:
        print(error, "|", type(error.__cause__).__name__)
"""

NO_LIBRARY_OPEN = "assert 'openreg' not in open('/proc/self/maps').read().replace('torch_openreg/_', '')"


def the_line(output: str) -> str:
    """The one line that every use printed."""
    lines = output.splitlines()
    assert len(lines) == 3 and len(set(lines)) == 1, output
    return lines[0]


# ---- Orders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "import torch",
        "import torch, torch_openreg",
        "import torch_openreg, torch",
        "from torch_openreg import include_paths; import torch",
        "import torch_openreg.openreg.random; import torch",
        "import torch.nn",
        "import threading; t = threading.Thread(target=__import__, args=('torch',)); t.start(); t.join(); import torch",
    ],
)
def test_the_device_is_there_in_every_import_order(environment: Environment, code: str) -> None:
    assert environment.run(f"{code}; {USE}") == "[2.0, 2.0]\n"


def test_two_threads_may_import_torch_and_the_package_at_once(environment: Environment) -> None:
    code = f"""
import threading
barrier = threading.Barrier(2)
def load(name):
    barrier.wait()
    __import__(name)
threads = [threading.Thread(target=load, args=(name,)) for name in ("torch", "torch_openreg")]
for thread in threads: thread.start()
for thread in threads: thread.join()
import torch
{USE}
"""
    assert environment.run(code) == "[2.0, 2.0]\n"


def test_autoload_switched_off_leaves_torch_untouched_until_an_explicit_import(environment: Environment) -> None:
    code = f"""
import sys, torch
assert not hasattr(torch, "openreg") and "torch_openreg" not in sys.modules
assert torch._C._get_privateuse1_backend_name() == "privateuseone"
import torch_openreg
{USE}
"""
    assert environment.run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "[2.0, 2.0]\n"
    assert environment.run(code, TORCH_OPENREG_AUTOLOAD="0") == "[2.0, 2.0]\n"


def test_a_switched_off_package_may_be_imported_first(environment: Environment) -> None:
    assert environment.run(f"import torch_openreg, torch; {USE}", TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "[2.0, 2.0]\n"
    assert environment.run(f"import torch_openreg, torch; {USE}", TORCH_OPENREG_AUTOLOAD="0") == "[2.0, 2.0]\n"


def test_the_entry_point_may_be_called_again(environment: Environment) -> None:
    code = f"""
import torch
from importlib.metadata import entry_points
for point in [*entry_points(group="torch.backends")] * 2:
    assert point.load()() is torch.openreg
{USE}
"""
    assert environment.run(code) == "[2.0, 2.0]\n"


# ---- Failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", ["libopenreg.so", "libtorch_openreg.so", "libtorch_openreg_bindings.so"])
def test_a_missing_library_is_explained_at_first_use(environment: Environment, library: str) -> None:
    (environment.package / "lib" / library).unlink()
    assert the_line(environment.run(FIRST_USE)) == (
        'The device "openreg" is not available: torch_openreg failed in open_libraries: ImportError: '
        f"{library}: cannot open shared object file: No such file or directory | ImportError"
    )


def test_a_corrupt_library_is_explained_at_first_use(environment: Environment) -> None:
    library = environment.package / "lib" / "libtorch_openreg.so"
    library.write_bytes(b"not a library")
    assert the_line(environment.run(FIRST_USE)) == (
        'The device "openreg" is not available: torch_openreg failed in open_libraries: ImportError: '
        f"{library}: file too short | ImportError"
    )


def test_a_library_for_another_torch_is_not_even_opened(environment: Environment) -> None:
    info = environment.package / "_build_info.py"
    info.write_text('version = "0.1.0+torch2.9"\ntorch_version = "2.9.1"\n')
    torch_version = environment.run("import torch; print(torch.__version__)").strip()
    assert the_line(environment.run(FIRST_USE + NO_LIBRARY_OPEN)) == (
        'The device "openreg" is not available: torch_openreg failed in check_build: ImportError: '
        f"torch_openreg 0.1.0+torch2.9 was built for PyTorch 2.9.1, and PyTorch {torch_version} is running: a binary "
        "works with one minor version. Install the torch_openreg for this version, or rebuild it: "
        "pip install --no-build-isolation --force-reinstall --no-deps <its sources> | ImportError"
    )


def test_sources_that_were_never_built_say_so(environment: Environment) -> None:
    for path in ("_build_info.py", "_C.so"):
        (environment.package / path).unlink()
    assert the_line(environment.run(FIRST_USE)) == (
        'The device "openreg" is not available: torch_openreg failed in check_build: ImportError: '
        f"{environment.package} holds the sources of torch_openreg, not a built package. "
        "Leave that folder, or build in it with: pip install --no-build-isolation -e . | ImportError"
    )


def test_a_second_owner_of_privateuse1_is_found_before_a_library_is_opened(environment: Environment) -> None:
    code = f"""
import torch
torch.utils.rename_privateuse1_backend("other")
import torch_openreg
try:
    torch.openreg.synchronize()
except RuntimeError as error:
    print(error)
assert not torch.openreg.is_available()
{NO_LIBRARY_OPEN}
"""
    assert environment.run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == (
        'The device "openreg" is not available: torch_openreg failed in check_owner: RuntimeError: '
        "PyTorch has one PrivateUse1 device in a process, and the backend 'other' has taken it. Uninstall one of the "
        "two, keep them in separate environments, or leave this one out with TORCH_OPENREG_AUTOLOAD=0.\n"
    )


def test_an_installed_second_owner_does_not_break_import_torch(environment: Environment, tmp_path: Path) -> None:
    environment.add_distribution(
        "torch_other",
        "def _autoload():\n    import torch\n    torch.utils.rename_privateuse1_backend('other')\n",
        "[torch.backends]\ntorch_other = torch_other:_autoload\n",
    )
    # The folder that is searched first is loaded first.
    first = tmp_path / "first"
    first.mkdir()
    for path in environment.site_packages.glob("torch_other*"):
        path.rename(first / path.name)
    code = "import torch; print(torch._C._get_privateuse1_backend_name(), torch.openreg.is_available())"
    assert environment.run(code, PYTHONPATH=str(first)) == "other False\n"


def test_a_taken_attribute_is_not_replaced(environment: Environment) -> None:
    code = "import torch; torch.openreg = 1; from torch_openreg import _loader; print(torch.openreg, _loader.failure)"
    assert environment.run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == (
        '1 The device "openreg" is not available: torch_openreg failed in check_owner: RuntimeError: '
        "torch.openreg exists already: 1.\n"
    )


def test_strict_raises_at_import(environment: Environment) -> None:
    (environment.package / "lib" / "libopenreg.so").unlink()
    result = environment.start("import torch", TORCH_OPENREG_AUTOLOAD="strict")
    assert result.returncode == 1
    assert "torch_openreg failed in open_libraries: ImportError: libopenreg.so: cannot open" in result.stderr


def test_after_a_failure_programs_for_the_cpu_run_as_before(environment: Environment) -> None:
    (environment.package / "lib" / "libopenreg.so").unlink()
    code = """
import torch
from torch.utils.data import DataLoader
torch.manual_seed(0)
x = torch.ones(2, requires_grad=True)
torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False).sum().backward()
with torch.random.fork_rng(), torch.autocast("cpu"):
    torch.nn.Linear(2, 2)(x).sum().backward()
torch.optim.AdamW([x]).step()
print(len(list(DataLoader(torch.arange(4), num_workers=1))), torch.accelerator.is_available())
print(torch.accelerator.current_accelerator(check_available=True))
"""
    assert environment.run(code) == "4 False\nNone\n"


# ---- Cost ------------------------------------------------------------------------------------------------------------


def test_import_torch_imports_nothing_more_than_our_own_modules(environment: Environment) -> None:
    code = "import sys, torch; print(*sorted(sys.modules))"
    plain = set(environment.run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").split())
    more = set(environment.run(code).split()) - plain
    assert {name for name in more if not name.startswith(("torch_openreg", "torch.openreg"))} == set()
    assert not any(name.startswith("torch_openreg._cli") for name in more)


def test_import_torch_starts_no_thread_and_no_device(environment: Environment) -> None:
    code = """
import os, torch
threads = len(os.listdir("/proc/self/task"))
print(threads, torch.openreg.is_initialized())
"""
    plain = environment.run(
        "import os, torch; print(len(os.listdir('/proc/self/task')))", TORCH_DEVICE_BACKEND_AUTOLOAD="0"
    )
    assert environment.run(code) == f"{plain.strip()} False\n"
