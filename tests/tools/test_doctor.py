"""``python -m torch_openreg doctor``: its report is complete, whatever the installed backends do."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
from pathlib import Path
from typing import Any

import plugins
import programs
import pytest
from environments import Environment
from programs import Done

BROKEN = ("circular", "knot", "undefined", "hang", "abort", "exit", "quit", "garbage", "needs", "stale", "driverless")
TIMEOUT = 60  # seconds until the backend that hangs is ended; a healthy one needs 3


def doctor(environment: Environment, *options: str, timeout: int = 600, **variables: str) -> Done:
    command = [environment.python, "-m", "torch_openreg", "doctor", "--timeout", str(timeout), *options]
    return programs.run(*command, cwd=environment.folder, **variables)


@pytest.fixture(scope="module")
def ward(tmp_path_factory: pytest.TempPathFactory, owner_library: Path) -> Environment:
    """An environment with every backend of tests/support/plugins, and two real owners of PrivateUse1 besides ours."""
    environment = Environment(tmp_path_factory.mktemp("ward") / "environment")
    environment.install()
    for name in ("fine", "owner", *BROKEN):
        plugins.install(environment, f"torch_{name}")
    plugins.install(environment, "torch_second", copy_of="torch_owner")
    for name in ("owner", "second"):
        shutil.copy(owner_library, environment.site_packages / f"libtorch_{name}.so")
    plugins.compile_undefined(environment.site_packages / "torch_undefined")
    return environment


@pytest.fixture(scope="module")
def report(ward: Environment) -> dict[str, Any]:
    result = doctor(ward, "--json", timeout=TIMEOUT)
    assert (result.returncode, result.stderr) == (1, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def backend(report: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [entry for entry in report["backends"] if entry["name"] == f"torch_{name}"]
    return found  # type: ignore[no-any-return]


@pytest.mark.slow
def test_the_report_names_python_and_torch(report: dict[str, Any], ward: Environment) -> None:
    version, debug = ward.run(
        "import torch; print(torch.__version__, torch.version.cuda)", TORCH_DEVICE_BACKEND_AUTOLOAD="0"
    ).split()
    assert report["torch"]["version"] == version and report["torch"]["failure"] is None
    assert report["torch"]["build"] == ("CPU only" if debug == "None" else f"CUDA {debug}")
    assert report["python"]["executable"] == str(ward.python)
    assert report["torch"]["seconds"] > 0


@pytest.mark.slow
def test_every_entry_point_is_reported_with_its_distribution_and_version(report: dict[str, Any]) -> None:
    names = {entry["name"] for entry in report["backends"]}
    assert names == {f"torch_{name}" for name in ("openreg", "fine", "owner", "second", *BROKEN)}
    entry = backend(report, "fine")
    assert (entry["value"], entry["distribution"], entry["version"]) == ("torch_fine:_autoload", "torch_fine", "1.0")


@pytest.mark.slow
def test_a_healthy_backend_is_reported_with_what_it_loads(report: dict[str, Any], ward: Environment) -> None:
    entry = backend(report, "openreg")
    assert (entry["result"], entry["privateuse1"], entry["failure"]) == ("ok", "openreg", None)
    assert {Path(path).name for path in entry["libraries"]} == {
        *("_C.so", "libtorch_openreg_bindings.so", "libtorch_openreg.so", "libopenreg.so")
    }
    assert "torch_openreg._C" in entry["modules"] and "torch_openreg._cli.doctor" not in entry["modules"]
    assert entry["seconds"] > 0
    fine = backend(report, "fine")
    assert (fine["result"], fine["privateuse1"], fine["modules"]) == ("ok", None, ["torch_fine"])


AUTHORS = (
    "Report the failure to the authors of torch_{0}. Until it is repaired, uninstall torch_{0}, or leave all backends "
    "out with TORCH_DEVICE_BACKEND_AUTOLOAD=0."
)
CIRCLE = (
    "Import torch first, or leave all backends out with TORCH_DEVICE_BACKEND_AUTOLOAD=0. The authors of torch_{0} can "
    "repair this: they give the entry point a module of its own, which imports nothing at its top."
)

CAUSES = {
    "circular": (
        "failed",
        "`import torch_circular` before `import torch`: circular import: torch_circular -> torch -> torch_circular",
        CIRCLE,
    ),
    "knot": ("failed", "circular import: torch_knot -> torch_knot.ops -> torch_knot", CIRCLE),
    "undefined": (
        "failed",
        "undefined symbol: {site}/torch_undefined/_C.so needs at::openreg::missing(int), which no loaded library has",
        "{site}/torch_undefined/_C.so was built for another PyTorch than {torch}, or a library that "
        "{site}/torch_undefined/_C.so needs is missing: install a build of torch_{0} for this PyTorch, or build "
        "torch_{0} again.",
    ),
    "hang": (
        "failed",
        f"hangs: no end after {TIMEOUT} s in the function that torch_hang gave to PyTorch, at {{site}}/torch_hang.py:5",
        AUTHORS,
    ),
    "abort": (
        "failed",
        "kills the process with SIGABRT in the function that torch_abort gave to PyTorch, at {site}/torch_abort.py:5",
        AUTHORS,
    ),
    "exit": ("failed", "SystemExit: no licence", AUTHORS),
    "quit": ("failed", "ends the process with exit status 0 in the function that torch_quit gave to PyTorch", AUTHORS),
    "needs": (
        "failed",
        "missing module: torch_needs_this",
        "Install torch_needs_this, which torch_needs needs.",
    ),
    "stale": (
        "failed",
        "stale entry point: 'torch_stale:_autoload' names the module 'torch_stale', which is not installed",
        "Uninstall torch_stale, or install it again.",
    ),
    "driverless": (
        "unavailable",
        "loads, but finds no device: RuntimeError: Found no driver on your system.",
        "Repair this cause. Check the hardware and the driver that torch_driverless needs.",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_and_the_remedy_of_a_failure_are_named(report: dict[str, Any], ward: Environment, name: str) -> None:
    entry = backend(report, name)
    result, cause, remedy = CAUSES[name]
    names = {"site": ward.site_packages, "torch": report["torch"]["version"]}
    assert (entry["result"], entry["failure"]["cause"]) == (result, cause.format(name, **names))
    assert entry["failure"]["remedy"] == remedy.format(name, **names)


@pytest.mark.slow
def test_a_backend_that_prints_garbage_is_healthy_and_its_output_harmless(report: dict[str, Any]) -> None:
    entry = backend(report, "garbage")
    assert (entry["result"], entry["privateuse1"], entry["failure"]) == ("ok", None, None)


@pytest.mark.slow
def test_owners_that_conflict_are_reported_with_what_import_torch_does(report: dict[str, Any]) -> None:
    ours = backend(report, "openreg")["version"]
    causes = {frozenset(conflict["backends"]): conflict["cause"] for conflict in report["conflicts"]}
    assert set(causes) == {
        frozenset({f"torch_openreg {ours}", "torch_owner 1.0"}),
        frozenset({f"torch_openreg {ours}", "torch_second 1.0"}),
        frozenset({"torch_owner 1.0", "torch_second 1.0"}),
    }
    taken = "both take PrivateUse1, but a process has one PrivateUse1 device; `import torch` "
    assert causes[frozenset({f"torch_openreg {ours}", "torch_owner 1.0"})] == f"{taken}works, and 'owner' is the device"
    abort = causes[frozenset({"torch_owner 1.0", "torch_second 1.0"})]
    assert abort.startswith(f"{taken}fails: kills the process with SIGABRT in the function that torch_")


@pytest.mark.slow
def test_what_import_torch_does_with_all_of_them_is_reported(report: dict[str, Any]) -> None:
    assert report["healthy"] is False
    failure = report["import_torch"]["failure"]
    # The failure is that of the broken backend that is loaded first. The order is that of the file system.
    assert failure is not None and failure["remedy"]


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment that a test may spoil: torch_openreg, and one healthy backend."""
    environment = Environment(tmp_path_factory.mktemp("clinic") / "environment")
    environment.install()
    plugins.install(environment, "torch_fine")
    return environment


@pytest.mark.slow
def test_people_get_the_model_a_table_and_a_verdict_and_bad_options_are_named_and_ignored(clinic: Environment) -> None:
    result = doctor(clinic, "--frobnicate", "--timeout", "soon", OPENREG_MODEL="cuda-t4")
    assert result.stderr == (
        "torch-openreg doctor: argument --timeout: must be a number above 0 and below a million, not 'soon': all "
        "options ignored\n"
    )
    first, *lines, verdict = [line for line in result.stdout.splitlines() if line]
    head, *table = lines
    model, header = (next(n for n, line in enumerate(table) if line.startswith(word)) for word in ("Model", "backend"))
    shown = " ".join(table[model:header])
    assert shown.startswith("Model    cuda-t4, NVIDIA T4, 16 GB")
    assert all(words in shown for words in ("name Tesla T4", "total_memory 14.8 GiB", "major 7, minor 5"))
    assert table[1] == f"Package  torch_openreg  {clinic.package}"
    assert first == "Device: openreg, provided by torch_openreg."
    assert head.startswith("Python   3.") and table[0].startswith("PyTorch  ")
    names, *backends = map(str.split, table[header:])
    assert names == ["backend", "distribution", "result", "time", "modules", "libraries", "PrivateUse1"]
    assert {line[0]: line[3] for line in backends} == {"torch_openreg": "ok", "torch_fine": "ok"}
    assert verdict.startswith("`import torch` works here, in ") and verdict.endswith(" s, with device 'openreg'.")
    assert "\033" not in result.stdout
    assert result.returncode == 0


def test_our_own_failure_is_reported_in_our_own_words(environment: Environment) -> None:
    (environment.package / "_build_info.py").write_text(
        'version = "0.1.0"\ntorch_version = "2.9.1"\nlibrary_sizes = {}\n'
    )
    result = doctor(environment, "--details")
    assert result.returncode == 1
    assert 'loads, but finds no device: The device "openreg" is not available: torch_openreg failed in check_build' in (
        result.stdout
    )
    assert "  | ImportError: torch_openreg 0.1.0 was built for PyTorch 2.9.1" in result.stdout


def test_a_library_of_ours_that_was_cut_is_named(environment: Environment) -> None:
    library = environment.package / "lib" / "libtorch_openreg.so"
    size = library.stat().st_size
    os.truncate(library, 100_000)
    result = doctor(environment)
    assert (result.returncode, result.stderr) == (1, "")
    assert (
        f"torch_openreg failed in check_libraries: ImportError: {library} has 100,000 bytes, and the build recorded "
        f"{size:,} bytes: a full disk or an interrupted install may have cut it. Install torch_openreg again: pip "
        "install --no-build-isolation --force-reinstall --no-deps <its sources>\n"
    ) in result.stdout
    verdict = result.stdout.splitlines()[-1]
    assert verdict.startswith("`import torch` works here, in ") and verdict.endswith(" s, with no PrivateUse1 device.")


def test_a_torch_that_cannot_be_imported_is_reported(clinic: Environment, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError('libc10.so: cannot open shared object file')\n")
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.99.0'\ncuda: Optional[str] = '13.0'\n")
    result = doctor(clinic, PYTHONPATH=str(tmp_path))
    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout.startswith(
        "Device: none. `import torch` does not load torch_openreg here, or torch_openreg fails.\n"
    )
    assert f"PyTorch  2.99.0 (CUDA 13.0)  {tmp_path}/torch\n" in result.stdout
    assert "`import torch` without any backend: missing library: libc10.so\n" in result.stdout
    assert result.stdout.endswith("`import torch` fails here: missing library: libc10.so\n")


def test_a_missing_torch_is_reported_in_colour_on_a_terminal_and_an_unknown_option_is_named(
    clinic: Environment,
) -> None:
    (clinic.site_packages / "outer.pth").unlink()
    main, terminal = pty.openpty()
    command = [clinic.python, "-m", "torch_openreg", "doctor", "--frobnicate"]
    process = programs.start(*command, cwd=clinic.folder, NO_COLOR=None, stdout=terminal, stderr=subprocess.PIPE)
    assert isinstance(process, subprocess.Popen)
    _, errors = process.communicate(timeout=programs.LIMIT)
    os.close(terminal)
    output = os.read(main, 100_000).decode()
    os.close(main)
    assert (process.returncode, errors) == (1, "torch-openreg doctor: unknown, ignored: --frobnicate\n")
    assert "\033[1mPyTorch\033[0m  not installed\r\n" in output
    assert "`import torch` without any backend\033[0m: \033[31mPyTorch is not installed\033[0m\r\n" in output
    assert (
        "  To do: Install a CPU build: pip install torch --index-url https://download.pytorch.org/whl/cpu\r\n" in output
    )
