"""``python -m torch_openreg demo``: its claims, its files, and its options."""

from __future__ import annotations

import ast
import json
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import programs
import pytest
import torch
from programs import Done

from torch_openreg._cli import demo, train_digits
from torch_openreg._cli._curve import draw_log_curve

ROOT = Path(__file__).parents[2]


def run(folder: Path, *command: str | Path, **variables: str) -> Done:
    return programs.run(sys.executable, *command, cwd=folder, COLUMNS="100", **variables)


@pytest.mark.slow
def test_the_demo_proves_its_claims_and_writes_its_files(tmp_path: Path) -> None:
    """Four epochs are enough for the accuracy. `make demo` trains for twenty."""
    result = run(tmp_path, "-m", "torch_openreg", "demo", "--epochs", "4", "--plot", "curves.png", "--save", "model.pt")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("✓") == 5 and "✗" not in result.stdout
    for words in (
        "│ parameters           │ openreg:0      │ cpu",
        "│ optimizer            │ openreg:0      │ cpu",
        "epoch   4/4: loss",
        "Loss over 84 steps, on a logarithmic scale",
        "84 losses, one for each step",
        "151,435 values in 13 tensors",
        "Wall time of an epoch:",
        "The model is in model.pt",
        "The curves are in curves.png",
    ):
        assert words in result.stdout
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")

    model = train_digits.build()
    model.load_state_dict(torch.load(tmp_path / "model.pt", map_location="cpu", weights_only=True))
    data = train_digits.load_digits()
    assert train_digits.evaluate(model, data["test_x"], data["test_y"])[1] >= demo.TARGET_ACCURACY


@pytest.mark.slow
def test_a_claim_that_fails_is_marked_and_is_the_exit_status(tmp_path: Path) -> None:
    result = run(tmp_path, "-m", "torch_openreg", "demo", "--epochs", "1", PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout.isascii()
    failed = [line for line in result.stdout.splitlines() if line.startswith("| NO")]
    assert len(failed) == 1 and "At least 97% of the test images are" in failed[0]


def test_the_training_part_imports_only_torch() -> None:
    tree = ast.parse(Path(train_digits.__file__).read_text())
    body = [node for node in tree.body if getattr(node, "name", "") != "load_digits"]
    imported = set()
    for node in ast.walk(ast.Module(body, [])):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).split(".")[0])
    assert imported - set(sys.stdlib_module_names) == {"torch"}


@pytest.mark.slow
def test_the_example_is_the_training_part_and_runs_alone(tmp_path: Path) -> None:
    script = ROOT / "examples" / "train_digits.py"
    assert script.resolve() == Path(train_digits.__file__).resolve()
    result = run(tmp_path, script, "--device", "openreg", "--epochs", "1", "--threads", "1")
    assert (result.returncode, result.stderr) == (0, "")
    placement, epoch, final = map(json.loads, result.stdout.splitlines())
    for part in demo.PLACED:
        assert placement[part] == ["openreg:0"]
    assert len(epoch["losses"]) == 21 and final["reloaded_equal"] is True
    assert (tmp_path / "digits.pt").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["demo", "--epochs", "0"], "argument --epochs: '0' is not a whole number of at least 1"),
        (["demo", "--epochs", "many"], "argument --epochs: 'many' is not a whole number of at least 1"),
        (["demo", "--threads", "-1"], "argument --threads: '-1' is not a whole number of at least 1"),
        (["demo", "--plot", "a.nope"], "argument --plot: no image format is named 'nope'; use .png, .svg or .pdf"),
        (
            ["demo", "--save", "no/folder/a.pt"],
            "argument --save: cannot write 'no/folder/a.pt': it must be a file in a folder that can be written",
        ),
        (["nothing"], "argument COMMAND: invalid choice: 'nothing' (choose from"),
    ],
)
def test_a_bad_argument_is_named_before_anything_runs(tmp_path: Path, arguments: list[str], words: str) -> None:
    result = run(tmp_path, "-m", "torch_openreg", *arguments)
    assert result.returncode == 2 and result.stdout == ""
    assert words in result.stderr


def test_without_a_command_the_commands_are_listed(tmp_path: Path) -> None:
    result = run(tmp_path, "-m", "torch_openreg")
    assert result.returncode == 2
    assert re.search("demo +train a network on the device and on the CPU", result.stdout)


@pytest.mark.slow
def test_a_device_that_does_not_exist_is_reported_in_the_words_of_torch(tmp_path: Path) -> None:
    result = run(tmp_path, "-m", "torch_openreg", "demo", "--device", "nonsense")
    assert (result.returncode, result.stderr) == (1, "")
    assert "The training on nonsense ended with status 1." in result.stdout
    assert "device type at start of device string: nonsense" in " ".join(result.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("modules", "arguments", "packages"),
    [
        (["rich"], [], "rich"),
        (["sklearn"], [], "scikit-learn"),
        (["matplotlib"], ["--plot", "curves.png"], "matplotlib"),
        (["rich", "sklearn", "matplotlib"], [], "rich scikit-learn"),
    ],
)
def test_all_missing_packages_are_named_with_the_line_that_installs_them(
    tmp_path: Path, modules: list[str], arguments: list[str], packages: str
) -> None:
    code = (
        f"import sys; sys.modules |= dict.fromkeys({modules}); from torch_openreg._cli import main; "
        f"sys.exit(main(['demo', *{arguments}]))"
    )
    result = run(tmp_path, "-c", code)
    assert result.returncode == 2
    assert result.stderr == (
        f"torch-openreg demo needs packages that are not installed. Install them with\n  pip install {packages}\n"
    )


@pytest.mark.slow
def test_the_command_line_is_not_imported_with_the_package(tmp_path: Path) -> None:
    code = "import sys, torch_openreg; print([name for name in sys.modules if '_cli' in name or name == 'rich'])"
    assert run(tmp_path, "-c", code).stdout == "[]\n"


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Any, Any, Path]:
    """Two equal untrained runs, in the form that `check_claims` takes, and the path of the data."""
    model = train_digits.build()
    data = train_digits.load_digits()
    torch.save(data, tmp_path / "data")
    accuracy = train_digits.evaluate(model, data["test_x"], data["test_y"])[1]
    found = []
    for device in ("openreg", "cpu"):
        checkpoint = tmp_path / device
        torch.save(model.state_dict(), checkpoint)
        found.append(
            SimpleNamespace(
                device=device,
                losses=[0.5, 0.25],
                checkpoint=checkpoint,
                placement={part: [str(torch.empty(0, device=device).device)] for part in demo.PLACED},
                result={"accuracy": accuracy, "test_images": 450, "reloaded_equal": True},
            )
        )
    return found[0], found[1], tmp_path / "data"


def test_two_equal_runs_without_training_refute_only_the_claim_of_accuracy(runs: tuple[Any, Any, Path]) -> None:
    assert [claim.holds for claim in demo.check_claims(*runs)] == [True, False, True, True, True]


def test_one_bit_of_one_loss_refutes_the_claim(runs: tuple[Any, Any, Path]) -> None:
    runs[0].losses[1] = math.nextafter(0.25, 1)
    claim = demo.check_claims(*runs)[2]
    assert claim == (
        False,
        "The losses equal the CPU's, bit for bit",
        "1 of 2 differ, from step 2: 0.25000000000000006 and 0.25",
    )


def test_one_value_of_the_model_refutes_the_claim(runs: tuple[Any, Any, Path]) -> None:
    state = torch.load(runs[0].checkpoint)
    state["9.bias"][3] += 0.5
    torch.save(state, runs[0].checkpoint)
    claim = demo.check_claims(*runs)[3]
    assert claim == (
        False,
        "The trained model equals the CPU's, bit for bit",
        "1 of 13 tensors differ, by at most 0.5: 9.bias",
    )


def test_a_gradient_on_the_wrong_device_refutes_the_claim(runs: tuple[Any, Any, Path]) -> None:
    runs[0].placement["gradients"] = ["cpu", "openreg:0"]
    claim = demo.check_claims(*runs)[0]
    assert claim == (
        False,
        "Everything is on the device",
        "not on openreg:0: {'gradients': ['cpu', 'openreg:0']}",
    )


def test_a_model_that_reloads_differently_refutes_the_claim(runs: tuple[Any, Any, Path]) -> None:
    runs[0].result["reloaded_equal"] = False
    claim = demo.check_claims(*runs)[4]
    assert not claim.holds and claim.figures.startswith("on openreg:0: another output; on the CPU: ")


def test_a_curve_shows_its_ends_and_leaves_out_what_has_no_logarithm() -> None:
    assert draw_log_curve([100.0, 10.0, math.nan, 0.0, 1.0], width=5, height=3, ascii_only=True) == [
        "     100 |*",
        "         | *",
        "       1 |    *",
    ]
    assert draw_log_curve([1.0, 1.0], width=2, height=1) == ["       1 │⠉⠉"]
    assert draw_log_curve([math.nan]) == ["(no positive, finite value to draw)"]
