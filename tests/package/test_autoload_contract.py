"""`import torch` brings the device, in whatever order things are imported, and never breaks because of it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import sys
import sysconfig
import zipfile
from functools import partial
from pathlib import Path

import plugins
import programs
import pytest
import torch
from environments import Environment
from programs import at_once

from torch_openreg import _loader

USE = "x = torch.ones(2, device='openreg'); print((x + x).cpu().tolist())"
USED = "[2.0, 2.0]\n"

# Tries every kind of first use and prints the errors, each once: all of them must be the same.
FIRST_USE = """
import io, torch
assert torch.ones(2).sum().item() == 2
assert not torch.openreg.is_available() and torch.openreg.device_count() == 0
assert torch.accelerator.current_accelerator() is None and not torch.accelerator.is_available()
file = io.BytesIO()
torch.save(torch.ones(2), file)
said = set()
for use in (
    lambda: torch.ones(2, device="openreg"),
    lambda: torch.empty(2, device=torch.device("openreg", 1)),
    lambda: torch.ones(2).to("openreg"),
    lambda: torch.nn.Linear(2, 2).to("openreg"),
    lambda: torch.UntypedStorage(2, device="openreg"),
    lambda: torch.load(io.BytesIO(file.getvalue()), map_location="openreg"),
    lambda: torch.load(io.BytesIO(file.getvalue()), map_location="openreg:1", weights_only=False),
    lambda: torch.openreg.synchronize(),
    lambda: torch.openreg.anything,
):
    try:
        use()
    except RuntimeError as error:
        said.add(f"{error} | {error.__cause__!r}")
    else:
        said.add("nothing was raised")
print(*said, sep="\\n")
"""

UNAVAILABLE = 'The device "openreg" is not available: torch_openreg failed in '
DOCTOR = " `python -m torch_openreg doctor` says more."
AGAIN = ". Install torch_openreg again, built for this PyTorch." + DOCTOR

PACKAGE = importlib.util.find_spec("torch_openreg").submodule_search_locations  # type: ignore[union-attr]
LIBRARIES = sorted({str(file.relative_to(home)) for home in PACKAGE for file in Path(home).rglob("*.so")})
DAMAGED = (
    ": a full disk or an interrupted install may have cut it. Install torch_openreg again: pip install "
    f"--no-build-isolation --force-reinstall --no-deps <its sources>.{DOCTOR}"
)

NO_LIBRARY_OPEN = (
    "import re; assert not re.search(r'/torch_openreg/(_C|lib/)[^ \\n]*[.]so', open('/proc/self/maps').read())"
)


def first_use(environment: Environment, code: str = FIRST_USE, **variables: str) -> tuple[str, str]:
    """The message and the cause of the error that every first use raises."""
    message, cause = environment.run(code, **variables).removesuffix("\n").split(" | ")
    return message, cause


# ---- 1. Every order, every kind of process ---------------------------------------------------------------------------


ORDERS = (
    "import torch",
    "import torch, torch_openreg",
    "import torch_openreg, torch",
    "from torch_openreg import include_paths; import torch",
    "import torch_openreg.openreg.random; import torch",
    "import threading; t = threading.Thread(target=__import__, args=('torch',)); t.start(); t.join(); import torch",
)


@pytest.mark.slow
def test_the_device_is_there_in_every_import_order(shared_environment: Environment) -> None:
    for code in ORDERS:
        assert shared_environment.run(f"{code}; {USE}") == USED, code
    # The package imports torch, which imports the package: once with all that a new interpreter lacks.
    assert shared_environment.run(f"import torch_openreg, torch; {USE}", new_interpreter=True) == USED


@pytest.mark.slow
def test_two_threads_may_import_torch_and_the_package_at_once(shared_environment: Environment) -> None:
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
    assert shared_environment.run(code, new_interpreter=True) == USED


CHILDREN = """
import torch
import torch.multiprocessing as multiprocessing
from torch.utils.data import DataLoader


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return (torch.ones(2, device="openreg") + index).cpu()


def use(queue):
    queue.put((torch.ones(2, device="openreg") * 2).cpu().tolist())


if __name__ == "__main__":
    for method in ("fork", "forkserver", "spawn"):
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        child = context.Process(target=use, args=(queue,))
        child.start()
        print(method, queue.get())
        child.join()
    loader = DataLoader(Data(), num_workers=1)
    print("worker", [batch.tolist() for batch in loader])
"""


@pytest.mark.slow
def test_children_of_every_kind_and_dataloader_workers_have_the_device(shared_environment: Environment) -> None:
    program = shared_environment.folder / "children.py"  # a file, because spawned children import it
    program.write_text(CHILDREN)
    result = programs.run(shared_environment.python, program, cwd=shared_environment.folder)
    children = "".join(f"{method} [2.0, 2.0]\n" for method in ("fork", "forkserver", "spawn"))
    assert (result.stderr, result.stdout) == ("", children + "worker [[[1.0, 1.0]], [[2.0, 2.0]]]\n")


@pytest.mark.slow
def test_an_isolated_interpreter_and_one_without_site_have_the_device(shared_environment: Environment) -> None:
    code = f"import torch; {USE}"
    path = f"{shared_environment.site_packages}:{sysconfig.get_path('purelib')}"
    assert at_once(
        partial(shared_environment.run, code, "-I"),
        partial(shared_environment.run, code, "-S", PYTHONPATH=path),
    ) == [USED, USED]


@pytest.mark.slow
def test_an_editable_install_is_loaded_without_a_build(tmp_path: Path) -> None:
    hook = importlib.util.find_spec("_editable_skbc_torch_openreg")
    if hook is None or hook.origin is None:
        pytest.skip("torch_openreg is not an editable install here: `make test` makes one")
    # PATH has no compiler. So an import that builds, because the sources are newer than the build, would fail.
    programs.python(
        f"import torch; {USE}", cwd=tmp_path, PATH="", SKBUILD_EDITABLE_VERBOSE="1", status=0, output=USED, errors=""
    )


def test_from_a_zip_torch_is_imported_and_the_first_use_explains(environment: Environment, tmp_path: Path) -> None:
    archive = tmp_path / "torch_openreg.zip"
    with zipfile.ZipFile(archive, "w") as target:
        for path in environment.site_packages.glob("torch_openreg*/**/*"):
            target.write(path, path.relative_to(environment.site_packages))
        target.write(environment.site_packages / "torch_openreg_autoload.py", "torch_openreg_autoload.py")
    for path in environment.site_packages.glob("torch_openreg*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    message, cause = first_use(environment, PYTHONPATH=str(archive))
    assert message == (
        f"{UNAVAILABLE}check_build: ImportError: {archive}/torch_openreg lies in an archive, from which no shared "
        f"library can be loaded. Unpack it, or install it with pip.{DOCTOR}"
    )
    assert cause.startswith("ImportError(")


def test_the_device_is_there_inside_another_packages_import(environment: Environment) -> None:
    environment.add_distribution("other", f"import torch_openreg\nimport torch\n{USE}\n")
    environment.add_distribution("another", f"import torch\n{USE}\nimport other\n")
    assert environment.run("import another") == USED + USED


# ---- 2. As often as you like -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_loading_again_changes_nothing(shared_environment: Environment) -> None:
    code = f"""
import importlib, sys, torch
from importlib.metadata import entry_points
module = torch.openreg
for point in [*entry_points(group="torch.backends")] * 2:
    assert point.load()() is module
import torch_openreg, torch_openreg_autoload
from torch_openreg import _failure, _loader
for again in (torch_openreg, _loader, torch_openreg_autoload):
    importlib.reload(again)
assert torch_openreg_autoload._autoload() is module and _loader.load() is module and _failure.failure is None
assert torch_openreg._autoload() is module  # the name in PyTorch's documentation
for name in [name for name in sys.modules if name.split(".")[0].startswith("torch_openreg")]:
    del sys.modules[name]
import torch_openreg
from torch_openreg import _failure
assert torch.openreg is module and _failure.failure is None
{USE}
"""
    assert shared_environment.run(code) == USED


# ---- 3. The switches -------------------------------------------------------------------------------------------------

OFF = (
    {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    {"TORCH_DEVICE_BACKEND_AUTOLOAD": "true"},
    {"TORCH_OPENREG_AUTOLOAD": "0"},
)


def test_autoload_switched_off_leaves_torch_untouched_until_an_explicit_import(shared_environment: Environment) -> None:
    code = f"""
import sys, torch
assert not hasattr(torch, "openreg") and "torch_openreg" not in sys.modules
assert torch._C._get_privateuse1_backend_name() == "privateuseone"
import torch_openreg
{USE}
"""
    assert at_once(*(partial(shared_environment.run, code, **switch) for switch in OFF)) == [USED] * len(OFF)


def test_a_switched_off_package_may_be_imported_first(shared_environment: Environment) -> None:
    assert shared_environment.run(f"import torch_openreg, torch; {USE}", TORCH_OPENREG_AUTOLOAD="0") == USED


def test_strict_raises_at_import(environment: Environment) -> None:
    (environment.package / "lib" / "libopenreg.so").unlink()
    codes = ("import torch", "import torch_openreg")
    for result in at_once(*(partial(environment.start, code, TORCH_OPENREG_AUTOLOAD="strict") for code in codes)):
        assert result.returncode == 1
        assert f"{UNAVAILABLE}check_libraries: ImportError: {environment.package}/lib/libopenreg.so is missing" in (
            result.stderr
        )
        assert "Failed to load the backend extension: torch_openreg." in result.stderr


# ---- 4. Failures: kept, silent, and explained at first use -----------------------------------------------------------


def test_a_library_that_is_missing_cut_or_changed_is_explained_at_first_use(environment: Environment) -> None:
    for name in LIBRARIES:
        library = environment.package / name
        whole = library.read_bytes()
        lengths = [0, len(whole) - 1, len(whole) + 1] if name == "lib/libtorch_openreg.so" else []
        runs: list[tuple[int | None, str]] = [(length, f"has {length:,} bytes") for length in lengths]
        for length, found in [*runs, (None, "is missing")]:
            if length is None:
                library.unlink()
            else:
                library.write_bytes((whole + b"\0")[:length])
            text = f"{library} {found}, and the build recorded {len(whole):,} bytes{DAMAGED}"
            message, cause = first_use(environment, FIRST_USE + NO_LIBRARY_OPEN)
            assert message == f"{UNAVAILABLE}check_libraries: ImportError: {text}"
            assert cause.startswith("ImportError(")
        library.write_bytes(whole)


def test_a_cut_build_record_is_explained_at_first_use(environment: Environment) -> None:
    info = environment.package / "_build_info.py"
    whole = info.read_bytes()
    for length in (0, 10, whole.index(b"\n") + 1, whole.rindex(b"\n", 0, -1) + 1, len(whole) - 2):
        info.write_bytes(whole[:length])
        message, cause = first_use(environment, FIRST_USE + NO_LIBRARY_OPEN)
        assert message == (
            f"{UNAVAILABLE}check_build: ImportError: torch_openreg/_build_info.py is not what the build wrote{DAMAGED}"
        ), length
        assert cause.startswith("ImportError(")


def test_a_python_file_that_is_cut_or_missing_does_not_break_import_torch(environment: Environment) -> None:
    program = """
import warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    import torch
print(torch.ones(2).sum().item(), [str(each.message).partition(" (")[0] for each in told])
"""
    sentence = 'The device "openreg" is not available: torch_openreg cannot be imported'
    for file in ("__init__.py", "_loader.py", "_environment.py"):
        whole = (environment.package / file).read_bytes()
        (environment.package / file).write_bytes(b"")
        assert environment.run(program) == f"2.0 ['{sentence}']\n", file
        (environment.package / file).write_bytes(whole)
    shutil.rmtree(environment.package)
    assert environment.run(program) == f"2.0 ['{sentence}']\n"


def test_a_tool_that_changes_a_library_can_record_it_anew(environment: Environment) -> None:
    for name in LIBRARIES:
        with (environment.package / name).open("ab") as library:
            library.write(b"what follows a library is not read")
    assert first_use(environment)[0].startswith(f"{UNAVAILABLE}check_libraries: ")
    record_libraries(environment)
    assert environment.run(f"import torch; {USE}") == USED


def record_libraries(environment: Environment) -> None:
    tool = Path(__file__).parents[2] / "cmake" / "library_sizes.py"
    result = programs.run(sys.executable, tool, environment.package, cwd=environment.folder)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_an_undefined_symbol_is_explained_at_first_use(environment: Environment) -> None:
    plugins.compile_undefined(environment.package)
    (environment.package / "_C.so").chmod(0o755)
    record_libraries(environment)
    text = f"{environment.package}/_C.so: undefined symbol: _ZN2at7openreg7missingEi"
    assert first_use(environment) == (
        f"{UNAVAILABLE}open_libraries: ImportError: {text}{AGAIN}",
        f"ImportError('{text}')",
    )


def test_a_library_for_another_torch_is_not_even_opened(environment: Environment) -> None:
    info = environment.package / "_build_info.py"
    info.write_text('version = "0.1.0"\ntorch_version = "2.9.1"\nlibrary_sizes = {}\n')
    torch_version = environment.run("import torch; print(torch.__version__)").strip()
    message, cause = first_use(environment, FIRST_USE + NO_LIBRARY_OPEN)
    assert message == (
        f"{UNAVAILABLE}check_build: ImportError: torch_openreg 0.1.0 was built for PyTorch 2.9.1, and PyTorch "
        f"{torch_version} is running: a binary works with one minor version. Install a PyTorch that it was built for "
        '(pip install "torch==2.9.*" --index-url https://download.pytorch.org/whl/cpu), or the torch_openreg for this '
        "version, or rebuild it: pip install --no-build-isolation --force-reinstall --no-deps <its sources>."
        f"{DOCTOR}"
    )
    assert cause.startswith("ImportError(")


def test_sources_that_were_never_built_say_so(environment: Environment) -> None:
    for path in ("_build_info.py", "_C.so"):
        (environment.package / path).unlink()
    message, cause = first_use(environment)
    assert message == (
        f"{UNAVAILABLE}check_build: ImportError: {environment.package} holds the sources of torch_openreg, not a built "
        f"package. Leave that folder, or build in it with: pip install --no-build-isolation -e .{DOCTOR}"
    )
    assert cause.startswith("ImportError(")


def test_a_platform_that_is_not_linux_is_explained_at_first_use(shared_environment: Environment) -> None:
    code = f"import sys, torch; sys.platform = 'freebsd14'; import torch_openreg; sys.platform = 'linux'\n{FIRST_USE}"
    text = "torch_openreg runs on Linux only, and this is 'freebsd14': use it in a container."
    assert first_use(shared_environment, code, TORCH_OPENREG_AUTOLOAD="0") == (
        f"{UNAVAILABLE}check_platform: OSError: {text}{DOCTOR}",
        f'OSError("{text}")',
    )


def test_a_bad_switch_is_explained_at_first_use(shared_environment: Environment) -> None:
    text = "TORCH_OPENREG_AUTOLOAD is 'yes'. Set it to 1 (the default), 0 or strict, or unset it."
    assert first_use(shared_environment, TORCH_OPENREG_AUTOLOAD="yes") == (
        f"{UNAVAILABLE}check_environment: ValueError: {text}{DOCTOR}",
        f'ValueError("{text}")',
    )


def test_a_bad_device_variable_is_explained_at_first_use(shared_environment: Environment) -> None:
    code = "import torch\ntry: torch.ones(2, device='openreg')\nexcept RuntimeError as error: print(error)"
    assert shared_environment.run(code, OPENREG_DEVICE_COUNT="many") == (
        'orGetDeviceCount: OPENREG_DEVICE_COUNT="many" is not valid: expected a number of devices from 1 to 64\n'
    )


LATER_PHASES = (
    "claim_name",
    "attach_module",
    "attach_compiler",
    "attach_dtensor",
    "add_methods",
    "register_distributed",
)


def test_an_exception_in_a_later_phase_is_explained_at_first_use(environment: Environment) -> None:
    loader = environment.package / "_loader.py"
    whole = loader.read_text()
    for phase in LATER_PHASES:
        loader.write_text(
            f"{whole}\n\ndef broken() -> None:\n    {phase}()\n    raise KeyError('injected')\n\n"
            f"broken.__name__ = '{phase}'\n"
            f"PHASES = tuple(broken if phase is {phase} else phase for phase in PHASES)\n"
        )
        assert first_use(environment) == (f"{UNAVAILABLE}{phase}: KeyError: 'injected'{AGAIN}", "KeyError('injected')")


def test_no_phase_is_without_a_test_of_its_failure() -> None:
    from torch_openreg import _loader

    assert [phase.__name__ for phase in _loader.PHASES] == [
        *("check_platform", "check_environment", "check_build", "check_libraries", "check_owner"),
        *("open_libraries", *LATER_PHASES),
    ]


CPU_PROGRAM = """
import warnings
warnings.simplefilter("ignore")
import torch
from torch.utils.data import DataLoader

def show(function):
    try:
        print(function())
    except Exception as error:
        print(type(error).__name__)

torch.manual_seed(0)
x = torch.ones(2, requires_grad=True)
show(lambda: torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False).sum().backward())
with torch.random.fork_rng(), torch.autocast("cpu"):
    torch.nn.Linear(2, 2)(x).sum().backward()
torch.optim.AdamW([x]).step()
show(lambda: x)
show(lambda: x.detach().pin_memory())
show(lambda: x.is_pinned())
show(lambda: torch.empty(2, pin_memory=True))
show(lambda: [batch.tolist() for batch in DataLoader(torch.arange(4), num_workers=1, pin_memory=True)])
show(lambda: torch.accelerator.current_accelerator())
show(lambda: torch.accelerator.current_accelerator(check_available=True))
show(lambda: (torch.accelerator.is_available(), torch.accelerator.device_count()))
show(lambda: torch.profiler.profile().__enter__().__exit__(None, None, None))
show(lambda: torch.Generator().device)
show(lambda: torch.Stream("cpu"))
"""


def test_after_a_failure_programs_for_the_cpu_run_as_if_nothing_was_installed(environment: Environment) -> None:
    (environment.package / "lib" / "libopenreg.so").unlink()
    run = partial(environment.start, CPU_PROGRAM)
    failed, without = at_once(run, partial(run, TORCH_DEVICE_BACKEND_AUTOLOAD="0"))
    assert without.stdout.count("\n") == 12
    if torch.version.cuda is not None:  # without this package the accelerator is cuda, also if there is no GPU
        without.stdout = without.stdout.replace("\ncuda\n", "\nNone\n", 1)
    assert failed.stdout == without.stdout


def test_after_a_failure_the_name_is_not_taken_from_another_accelerator(environment: Environment) -> None:
    (environment.package / "lib" / "libopenreg.so").unlink()
    # In a PyTorch built with CUDA, _get_accelerator() answers like this, with or without a GPU.
    code = """
import io, torch
torch._C._get_accelerator = lambda: torch.device("cuda")
import torch_openreg
print(torch._C._get_privateuse1_backend_name(), torch.openreg.is_available())
file = io.BytesIO()
torch.save(torch.ones(2), file)
file.seek(0)
for use in (
    lambda: torch.load(file, map_location="openreg"),
    lambda: torch.openreg.synchronize(),
    lambda: torch.device("openreg"),
):
    try:
        use()
    except RuntimeError as error:
        print(str(error).split(",")[0], "|", repr(error.__cause__)[:11])
"""
    missing = f"{environment.package}/lib/libopenreg.so is missing"
    explained = f"{UNAVAILABLE}check_libraries: ImportError: {missing} | ImportError\n"
    assert environment.run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == (
        f"privateuseone False\n{2 * explained}Expected one of cpu | None\n"
    )


WAYS_IN = """
try:
    from torch_openreg import openreg
except ImportError as error:
    raise SystemExit(f"{type(error).__name__}: {error}")
import torch
print(openreg is torch.openreg, openreg.is_available())
for use in (lambda: openreg.synchronize(), lambda: __import__("torch_openreg.openreg.memory")):
    try:
        use()
    except RuntimeError as error:
        print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_the_typed_way_in_is_the_devices_module(shared_environment: Environment) -> None:
    codes = (WAYS_IN, f"import torch\n{WAYS_IN}", f"import torch_openreg\n{WAYS_IN}")
    off = {"TORCH_OPENREG_AUTOLOAD": "0"}
    runs = [partial(shared_environment.run, code, **switch) for code in codes for switch in ({}, off)]
    assert at_once(*runs) == ["True True\n"] * 6


def test_the_typed_way_in_explains_a_failure_as_torch_openreg_does(environment: Environment) -> None:
    library = environment.package / "lib" / "libtorch_openreg.so"
    whole = library.read_bytes()
    library.write_bytes(whole[:100_000])
    text = (
        f"BackendLoadError {UNAVAILABLE}check_libraries: ImportError: {library} has 100,000 bytes, and the build "
        f"recorded {len(whole):,} bytes{DAMAGED}\n"
    )
    codes = (WAYS_IN, f"import torch\n{WAYS_IN}", f"import torch_openreg\n{WAYS_IN}")
    off = {"TORCH_OPENREG_AUTOLOAD": "0"}
    runs = [partial(environment.run, code, **switch) for code in codes for switch in ({}, off)]
    assert at_once(*runs) == [f"True False\n{text}{text}"] * 6


def test_the_typed_way_in_without_torch_says_so(environment: Environment) -> None:
    (environment.site_packages / "outer.pth").unlink()
    result = environment.start(WAYS_IN, new_interpreter=True)
    assert (result.returncode, result.stderr) == (1, "ModuleNotFoundError: No module named 'torch'\n")


# ---- 5. Another owner of PrivateUse1 ---------------------------------------------------------------------------------


def taken(owner: str) -> str:
    return (
        f"{UNAVAILABLE}check_owner: RuntimeError: PyTorch has one PrivateUse1 device in a process, and the backend "
        f"{owner} has taken it. Uninstall one of the two, keep them in separate environments, or leave this one out "
        f"with TORCH_OPENREG_AUTOLOAD=0.{DOCTOR}\n"
    )


EXPLAIN = f"""
try:
    torch.openreg.synchronize()
except RuntimeError as error:
    print(error)
assert not torch.openreg.is_available()
{NO_LIBRARY_OPEN}
"""

OTHER = "assert torch.empty(2, device='owner').device.type == 'owner'"


@pytest.fixture
def with_owner(environment: Environment, owner_library: Path) -> Environment:
    plugins.install(environment, "torch_owner")
    shutil.copy(owner_library, environment.site_packages / "libtorch_owner.so")
    return environment


@pytest.mark.parametrize("first", ["torch_owner", "torch_openreg"])
def test_of_two_installed_owners_the_other_one_has_the_device(
    with_owner: Environment, tmp_path: Path, first: str
) -> None:
    # PYTHONPATH is searched first, so the package that moves there is loaded first.
    for path in with_owner.site_packages.glob(f"*{first}*"):
        path.rename(tmp_path / path.name)
    order = "from importlib.metadata import entry_points; print([p.name for p in entry_points(group='torch.backends')])"
    second = {"torch_owner": "torch_openreg", "torch_openreg": "torch_owner"}[first]
    path = {"PYTHONPATH": str(tmp_path)}
    assert with_owner.run(order, **path) == f"['{first}', '{second}']\n"
    explained = taken("'owner' (from torch_owner 1.0)")
    codes = [f"{code}\n{OTHER}\n{EXPLAIN}" for code in ("import torch", "import torch_openreg, torch")]
    assert at_once(*(partial(with_owner.run, code, **path) for code in codes)) == [explained] * 2


def test_an_owner_that_was_imported_by_hand_is_found(with_owner: Environment) -> None:
    codes = (
        f"import torch, torch_owner; torch_owner._autoload(); import torch_openreg\n{OTHER}",
        # This owner gives PyTorch neither a name nor a module.
        f"import torch; torch.ops.load_library('{with_owner.site_packages}/libtorch_owner.so'); import torch_openreg",
    )
    assert at_once(
        *(partial(with_owner.run, f"{code}\n{EXPLAIN}", TORCH_DEVICE_BACKEND_AUTOLOAD="0") for code in codes)
    ) == [
        taken("'owner' (from torch_owner 1.0)"),
        taken("'privateuseone'"),
    ]


def test_the_ways_out_of_two_owners_work(with_owner: Environment) -> None:
    theirs, ours = f"import torch\n{OTHER}; print(hasattr(torch, 'openreg'))", f"import torch, torch_openreg; {USE}"
    assert at_once(
        partial(with_owner.run, theirs, TORCH_OPENREG_AUTOLOAD="0"),
        partial(with_owner.run, ours, TORCH_DEVICE_BACKEND_AUTOLOAD="0"),
    ) == ["False\n", USED]


def test_a_backend_of_another_kind_is_no_hindrance(environment: Environment, tmp_path: Path) -> None:
    plugins.install(environment, "torch_fine", folder=tmp_path / "first")
    code = f"import torch; assert torch.fine.is_available(); {USE}"
    assert environment.run(code, PYTHONPATH=str(tmp_path / "first")) == USED
    for path in environment.site_packages.glob("torch_openreg*"):
        path.rename(tmp_path / path.name)
    assert environment.run(code, PYTHONPATH=f"{tmp_path}:{tmp_path / 'first'}") == USED


# ---- 6. Cost ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_import_torch_imports_only_our_modules_and_starts_no_thread_and_no_device(
    shared_environment: Environment,
) -> None:
    code = """
import os, sys, torch
plain, threads = set(sys.modules), os.listdir("/proc/self/task")
torch._import_device_backends()  # with which `import torch` ends
assert os.listdir("/proc/self/task") == threads and not torch.openreg.is_initialized()
print(*(set(sys.modules) - plain))
"""
    more = shared_environment.run(code, new_interpreter=True, TORCH_DEVICE_BACKEND_AUTOLOAD="0").split()
    assert "torch_openreg" in more
    assert {name for name in more if not name.startswith(("torch_openreg", "torch.openreg"))} == set()
    assert not {name for name in more if name.startswith(("torch_openreg._cli", "torch_openreg._failure"))}


@pytest.mark.parametrize("first", ["torch_fine", "torch_openreg"])
def test_the_installed_distributions_are_looked_through_once(
    environment: Environment, tmp_path: Path, first: str
) -> None:
    """Only PyTorch looks: it reads the metadata of every distribution, which takes milliseconds."""
    plugins.install(environment, "torch_fine")
    # PYTHONPATH is searched first, so the package that moves there is loaded first.
    for path in environment.site_packages.glob(f"{first}*"):
        path.rename(tmp_path / path.name)
    code = """
import importlib.metadata
looks, look = [], importlib.metadata.distributions
importlib.metadata.distributions = lambda **parameters: looks.append(parameters) or look(**parameters)
import torch
print([point.name for point in importlib.metadata.entry_points(group="torch.backends")])
print(torch.openreg.is_available(), len(looks) - 1)
"""
    second = {"torch_fine": "torch_openreg", "torch_openreg": "torch_fine"}[first]
    assert environment.run(code, PYTHONPATH=str(tmp_path)) == f"['{first}', '{second}']\nTrue 1\n"


# ---- 7. Names, and builds --------------------------------------------------------------------------------------------


def test_a_taken_attribute_is_not_replaced(shared_environment: Environment) -> None:
    code = "import torch; torch.openreg = 1; from torch_openreg import _failure; print(torch.openreg, _failure.failure)"
    assert shared_environment.run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == (
        f"1 {UNAVAILABLE}check_owner: RuntimeError: torch.openreg exists already: 1. Leave it to torch_openreg to set "
        f"it.{DOCTOR}\n"
    )


def test_a_build_does_not_load_an_older_build(environment: Environment) -> None:
    """Runs all Python code of a build. It must not import torch, because that would load the installed package."""
    (environment.package / "__init__.py").write_text("raise SystemExit('the older build was loaded')\n")
    root = Path(__file__).parents[2]
    code = f"""
import runpy, sys
tools = runpy.run_path({str(root / "cmake" / "installed_torch.py")!r}, run_name="installed_torch")
print(tools["dynamic_metadata"]({{}}, {{}})["dependencies"])
yaml = tools["folder"]("torchgen") / "packaged/ATen/native/native_functions.yaml"
sys.argv = ["codegen.py", "--yaml", str(yaml), "--output", "generated.inc"]
try:
    runpy.run_path({str(root / "csrc" / "aten" / "codegen.py")!r}, run_name="__main__")
finally:
    print("torch" in sys.modules)
"""
    major, minor = importlib.metadata.version("torch").split(".")[:2]
    assert (
        environment.run(code, new_interpreter=True) == f"['torch>={major}.{minor},<{major}.{int(minor) + 1}']\nFalse\n"
    )


def test_a_module_that_a_program_looks_up_is_still_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "waited_for.py").write_text("x = 1\n")
    told: list[object] = []
    for name in ("waited_for", "waited_for", "not_there"):
        _loader._WhenImported(name, told.append)
    assert importlib.util.find_spec("not_there") is None
    assert importlib.util.find_spec("waited_for") is not None and told == []
    module = importlib.import_module("waited_for")
    assert told == [module, module] and module.x == 1
    assert sys.modules.pop("waited_for") is module
