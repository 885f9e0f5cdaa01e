"""Programs of tests that a server starts (programs.py) do what they do in a new interpreter."""

from __future__ import annotations

import fcntl
import signal
import sys
from functools import partial
from pathlib import Path

import programs
import pytest

USE = "import torch; print(torch.accelerator.current_accelerator(), torch.accelerator.device_count())"
PATH = "import sys; print('torch' in sys.modules, sys.argv, sys.path, __name__); sys.exit('an error')"
SPAWNS = """
import sys, torch
import torch.multiprocessing as mp

def work(index):
    print(index, torch.accelerator.device_count(), flush=True)

if __name__ == "__main__":
    mp.spawn(work, nprocs=1)
    print(sys.argv, sys.path[0], __file__)
"""


@pytest.mark.parametrize(
    ("code", "safe_path"),
    [
        (f"import os; os.environ['OPENREG_DEVICE_COUNT'] = '3'\nfrom torch.nn import Linear\n{USE}", False),
        (PATH, False),
        (PATH, True),
        ("import sys; print(sys.orig_argv)", False),
        ("raise ValueError('a value')", False),
        ("import os; os.abort()", False),
        ("import atexit; atexit.register(print, 'the end')", False),
        ("import ctypes, sys; ctypes.CDLL(None).printf(b'in a buffer of C'); sys.exit(3)", False),
    ],
)
def test_code_does_what_it_does_in_a_new_interpreter(
    code: str, safe_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if safe_path:  # not a variable of the program only: such a program would have a new interpreter
        monkeypatch.setenv("PYTHONSAFEPATH", "1")
    variables = {"OPENREG_DEVICE_COUNT": "2", "PYTHONPATH": str(tmp_path)}
    new = programs.python(code, "argument", cwd=tmp_path, new_interpreter=True, **variables)
    ours = programs.python(code, "argument", cwd=tmp_path, **variables)
    assert (ours.returncode, ours.stdout, ours.stderr) == (new.returncode, new.stdout, new.stderr)


@pytest.mark.slow
@pytest.mark.skipif(not programs.SERVERS, reason="the server is part of the simulator")
def test_with_imports_the_server_has_the_modules_and_the_backend_reads_the_programs_variables() -> None:
    code = f"import sys; print('torch.onnx' in sys.modules); {USE}; import torch.onnx"
    variables = {"TORCH_OPENREG_AS": "openreg", "OPENREG_DEVICE_COUNT": "3"}
    new = programs.python(code, new_interpreter=True, **variables)
    ours = programs.python(code, imports=("torch", "torch.onnx"), **variables)
    assert (ours.returncode, ours.stdout, ours.stderr) == (
        new.returncode,
        new.stdout.replace("False", "True"),
        new.stderr,
    )


@pytest.mark.slow
def test_files_and_modules_do_what_they_do_in_a_new_interpreter(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "__main__.py").write_text("import sys; print(sys.argv, __name__, __package__)")
    (tmp_path / "program.py").write_text(SPAWNS)
    for words, folder in ((["program.py"], tmp_path), (["-m", "package"], Path("/"))):
        run = partial(programs.run, sys.executable, *words, "x", cwd=folder, PYTHONPATH=str(tmp_path))
        new, ours = run(status=0, errors="", new_interpreter=True), run()
        assert (ours.returncode, ours.stdout, ours.stderr) == (new.returncode, new.stdout, new.stderr)


def test_a_process_that_code_spawns_is_in_the_folder_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text("import os\ndef work():\n    print(os.getcwd(), flush=True)\n")
    code = """
import torch.multiprocessing as mp, worker
process = mp.get_context("spawn").Process(target=worker.work)
process.start()
process.join()
"""
    programs.python(code, cwd=tmp_path, status=0, output=f"{tmp_path}\n", errors="")


@pytest.mark.slow
def test_several_threads_start_programs_at_once() -> None:
    runs = [partial(programs.python, f"print({number}){' ' * 5000}") for number in range(16)]
    results = programs.at_once(*runs, most=8)
    assert [int(result.stdout) for result in results] == list(range(16))


@pytest.mark.parametrize("new_interpreter", [False, True])
def test_a_program_that_takes_too_long_is_killed_with_its_children_and_reported(
    tmp_path: Path, new_interpreter: bool
) -> None:
    lock = tmp_path / "lock"
    code = f"""
    import fcntl, os, time
    lock = open({str(lock)!r}, "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.fork():
        print("begins", flush=True)
    time.sleep(1000)
    """
    said, seconds = "", 1
    while "\nbegins\n" not in said:  # a busy machine needs seconds for the first line
        seconds *= 2
        with pytest.raises(AssertionError, match=f"still running after {seconds} s: ") as caught:
            programs.python(code, timeout=seconds, new_interpreter=new_interpreter)
        said = str(caught.value)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the child, which inherited the lock, has ended


def test_another_status_output_or_error_than_expected_fails_with_what_the_program_said() -> None:
    code = "import sys; print('a word'); sys.exit('an error')"
    programs.python(code, status=1, output="a word\n", errors="an error\n")
    programs.python(code, status=1, output="a word\nan error\n", merged=True)
    for expected in ({"status": 0}, {"output": ""}, {"errors": ""}):
        with pytest.raises(AssertionError, match=r"(?s)sys\.exit.*a word\nan error\n"):
            programs.python(code, **expected)


def test_a_program_may_have_none_of_the_variables_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENREG_DEVICE_COUNT", "3")
    monkeypatch.setenv("HOME", "/")
    code = "import os; print(os.environ.get('OPENREG_DEVICE_COUNT'), os.environ.get('HOME'))"
    programs.python(code, output="3 /\n")
    programs.python(code, output="None None\n", clean=True, HOME=None)


def test_ranks_find_each_other_and_lines_are_exchanged() -> None:
    code = "import os; print(*(os.environ[name] for name in ('RANK', 'WORLD_SIZE')))"
    assert [rank.stdout for rank in programs.ranks(2, code, status=0)] == ["0 2\n", "1 2\n"]
    with programs.Peer(sys.executable, "-c", "while True: print(input() + '!', flush=True)") as peer:
        assert [peer.ask("a"), peer.ask()] == ["a!", "!"]
    assert peer.process.returncode == -signal.SIGKILL


def test_what_python_reads_at_its_start_needs_a_new_interpreter() -> None:
    code = "import sys; print(sys.flags.utf8_mode)"
    assert isinstance(programs.start(sys.executable, "-c", "pass"), programs.Program)
    assert programs.python(code, PYTHONUTF8="1").stdout == "1\n"
    assert programs.run(sys.executable, "-X", "utf8", "-c", code).stdout == "1\n"


@pytest.mark.slow
def test_a_variable_that_this_process_gains_is_in_its_later_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os; print(os.environ.get('PYTHONUTF8'), os.environ.get('ADDED_BY_A_LIBRARY'))"
    monkeypatch.setenv("ADDED_BY_A_LIBRARY", "1")
    assert isinstance(programs.start(sys.executable, "-c", "pass"), programs.Program)
    assert programs.python(code).stdout == "None 1\n"
    monkeypatch.delenv("ADDED_BY_A_LIBRARY")
    assert programs.python(code).stdout == "None None\n"
