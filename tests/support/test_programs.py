"""Programs of tests that a server starts (programs.py) do what they do in a new interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import programs
import pytest

USE = "import torch; print(torch.accelerator.current_accelerator(), torch.accelerator.device_count())"
SPAWNS = """
import sys, torch
import torch.multiprocessing as mp

def work(index):
    print(index, torch.accelerator.device_count(), flush=True)

if __name__ == "__main__":
    mp.spawn(work, nprocs=1)
    print(sys.argv, sys.path[0], __file__)
"""


@pytest.mark.parametrize("safe_path", ["", "1"])
@pytest.mark.parametrize(
    "code",
    [
        USE,
        f"import os; os.environ['OPENREG_DEVICE_COUNT'] = '3'\nfrom torch.nn import Linear\n{USE}",
        "import sys; print('torch' in sys.modules, sys.argv, sys.path, __name__); sys.exit('an error')",
        "raise ValueError('a value')",
        "import os; os.abort()",
        "import atexit; atexit.register(print, 'the end')",
    ],
)
def test_code_does_what_it_does_in_a_new_interpreter(code: str, safe_path: str, tmp_path: Path) -> None:
    variables = os.environ | {"OPENREG_DEVICE_COUNT": "2", "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": safe_path}
    command = [sys.executable, "-c", code, "argument"]
    new = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True)
    ours = programs.run(command, env=variables, cwd=tmp_path)
    assert (ours.returncode, ours.stdout, ours.stderr) == (new.returncode, new.stdout, new.stderr)


def test_files_and_modules_do_what_they_do_in_a_new_interpreter(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "__main__.py").write_text("import sys; print(sys.argv, __name__, __package__)")
    (tmp_path / "program.py").write_text(SPAWNS)
    paths = os.environ | {"PYTHONPATH": str(tmp_path)}
    for words, folder in ((["program.py"], tmp_path), (["-m", "program"], tmp_path), (["-m", "package"], Path("/"))):
        command = [sys.executable, *words, "x"]
        new = subprocess.run(command, cwd=folder, env=paths, capture_output=True, text=True)
        ours = programs.run(command, cwd=folder, env=paths)
        assert (new.returncode, new.stderr) == (0, "")
        assert (ours.returncode, ours.stdout, ours.stderr) == (new.returncode, new.stdout, new.stderr)


def test_a_process_that_code_spawns_is_in_the_folder_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text("import os\ndef work():\n    print(os.getcwd(), flush=True)\n")
    code = """
import torch.multiprocessing as mp, worker
process = mp.get_context("spawn").Process(target=worker.work)
process.start()
process.join()
"""
    result = programs.run([sys.executable, "-c", code], cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{tmp_path}\n", "")


def test_several_threads_start_programs_at_once() -> None:
    commands = [[sys.executable, "-c", f"print({number}){' ' * 5000}"] for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(programs.run, commands))
    assert [int(result.stdout) for result in results] == list(range(40))


def test_a_program_that_takes_too_long_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        programs.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.5)
    program = programs.start([sys.executable, "-c", "import time; time.sleep(60)"])
    assert isinstance(program, programs.Program) and program.poll() is None
    program.kill()
    assert program.wait(30) == -signal.SIGKILL


def test_what_python_reads_at_its_start_needs_a_new_interpreter() -> None:
    code = "import sys; print(sys.flags.utf8_mode)"
    assert isinstance(programs.start([sys.executable, "-c", "pass"]), programs.Program)
    assert programs.run([sys.executable, "-c", code], env=os.environ | {"PYTHONUTF8": "1"}).stdout == "1\n"
    assert programs.run([sys.executable, "-X", "utf8", "-c", code]).stdout == "1\n"


def test_a_variable_that_this_process_gains_is_in_its_later_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os; print(os.environ.get('PYTHONUTF8'), os.environ.get('ADDED_BY_A_LIBRARY'))"
    monkeypatch.setenv("ADDED_BY_A_LIBRARY", "1")
    assert isinstance(programs.start([sys.executable, "-c", "pass"]), programs.Program)
    assert programs.run([sys.executable, "-c", code]).stdout == "None 1\n"
    monkeypatch.delenv("ADDED_BY_A_LIBRARY")
    assert programs.run([sys.executable, "-c", code]).stdout == "None None\n"
