"""The examples about autoload, installed with pip."""

from __future__ import annotations

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path

import programs
import pytest
from programs import at_once

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"

PROJECTS = {
    "torch_foo": "autoload_minimal",
    "torch_ledger": "python_backend",
    "torch_door": "circular_imports/entry_module",
    "torch_flag": "circular_imports/state_flag",
    "torch_variable": "circular_imports/environment_variable",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Package of an example -> the folder, for PYTHONPATH, in which pip has installed the example."""
    root = tmp_path_factory.mktemp("examples")
    quiet = ["--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--no-index"]

    def install(name: str) -> None:
        # A copy: setuptools leaves its build beside the sources.
        source = shutil.copytree(EXAMPLES / PROJECTS[name], root / "sources" / name)
        programs.run(sys.executable, "-m", "pip", "install", *quiet, "--target", root / name, source, status=0)

    at_once(*(partial(install, name) for name in PROJECTS))
    return {name: root / name for name in PROJECTS}


def python(folder: Path, code: str, **variables: str) -> str:
    """Runs code with the example on PYTHONPATH. torch_openreg, which would take PrivateUse1, is not loaded."""
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    variables = {"PYTHONPATH": path, "TORCH_OPENREG_AUTOLOAD": "0", **variables}
    result = programs.python(code, cwd=folder, **variables, status=0, errors="")
    return result.stdout


OFF = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def test_the_minimal_example_works_in_both_orders_and_by_hand_and_leaves_a_taken_name_alone(
    folders: dict[str, Path],
) -> None:
    folder = folders["torch_foo"]
    by_hand = "import torch; print(hasattr(torch, 'foo')); import torch_foo; print(torch.foo.is_available())"
    first = "import torch_foo; print(torch_foo._autoload().is_available()); import torch; torch.foo"
    assert at_once(
        partial(python, folder, "import torch; print(torch.foo.is_available(), torch.foo.device_count())"),
        partial(python, folder, first),
        partial(python, folder, by_hand, **OFF),
        partial(python, folder, "import torch; torch.foo = 1; import torch_foo; print(torch.foo)", **OFF),
    ) == ["True 1\n", "True\n", "False\nTrue\n", "1\n"]


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [("torch_door", "torch_door"), ("torch_flag", "torch_flag.backend"), ("torch_variable", "torch_variable")],
)
def test_each_way_out_of_the_circle_works_in_both_orders(folders: dict[str, Path], name: str, by_hand: str) -> None:
    attribute = name.removeprefix("torch_")
    available = f"print(torch.{attribute}.is_available(), torch.{attribute}.__name__)"
    expected = f"True {by_hand}\n"
    codes = (f"import torch; {available}", f"import {by_hand}; import torch; {available}")
    assert at_once(*(partial(python, folders[name], code) for code in codes)) == [expected] * 2


def test_the_environment_variable_keeps_other_backends_out_and_is_restored(folders: dict[str, Path]) -> None:
    code = """
import os, torch_variable, torch
print(hasattr(torch, "foo"), os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD"))
"""
    both = f"{folders['torch_variable']}{os.pathsep}{folders['torch_foo']}"
    start = partial(python, folders["torch_variable"], code, PYTHONPATH=both)
    assert at_once(start, partial(start, TORCH_DEVICE_BACKEND_AUTOLOAD="1")) == ["False None\n", "False 1\n"]


LEDGER = """
import threading, torch
x = torch.ones(2, 3, device="ledger")
assert x.device == torch.device("ledger:0") and x.is_ledger
assert torch.equal(((x + 1) * x).cpu(), torch.full((2, 3), 2.0))
assert x.sum().item() == 6 and torch.tensor([1, 2], device="ledger").cpu().tolist() == [1, 2]
x.view(6)[1] = 5
x.t()[0, 0] += 1
print(x)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
data, target = torch.randn(16, 3), torch.randn(16, 1)
losses = {}
threads = set()  # the threads that compute gradients
for device in ("cpu", "ledger"):
    net = __import__("copy").deepcopy(model).to(device)
    net[2].bias.register_hook(lambda gradient: threads.add(threading.get_ident()))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses[device] = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(data.to(device)), target.to(device))
        loss.backward()
        optimizer.step()
        losses[device].append(loss.item())
assert losses["cpu"] == losses["ledger"] and losses["cpu"][-1] < losses["cpu"][0]
assert torch.ledger.calls["aten.relu.default"] == 5
assert threads == {threading.get_ident()}, threads
for use in (
    lambda: x + torch.ones(2, 3),
    lambda: torch.accelerator.synchronize(),
    lambda: torch.Generator("ledger"),
    lambda: torch.ones(2).pin_memory(),
):
    try:
        use()
    except RuntimeError as error:
        print(type(error).__name__, str(error).split(" `")[0])
"""


def test_the_python_backend_computes_trains_and_refuses_what_it_cannot_do(folders: dict[str, Path]) -> None:
    assert python(folders["torch_ledger"], LEDGER) == (
        "tensor([[2., 5., 1.],\n"
        "        [1., 1., 1.]], device='ledger:0')\n"
        "RuntimeError Expected all tensors to be on the same device, but found at least two devices, ledger:0 and cpu! "
        "(aten.add.Tensor)\n"
        "RuntimeError Backend doesn't support synchronizing all streams on device.\n"
        "NotImplementedError You should register\n"
        "NotImplementedError You should register\n"
    )


def test_the_python_backend_resolves_lazy_conjugation_and_negation(folders: dict[str, Path]) -> None:
    code = """
import torch
x = torch.full((2,), 1j, device="ledger").conj()
print(x.is_conj(), (x + 1).cpu().tolist(), (x.imag * 2).cpu().tolist())
"""
    assert python(folders["torch_ledger"], code) == "True [(1-1j), (1-1j)] [-2.0, -2.0]\n"


# A limit in the README of examples/python_backend -> the checks of the conformance kit that fail because of it.
LIMITS = {
    "`resize_`, `set_`, and other changes of a tensor's metadata": (
        "tensors/factories/ranges_have_their_values",
        "operators/dispatch/an_empty_out_is_resized",
        "operators/dispatch/the_kaiser_window_agrees",
    ),
    "more than one device": (
        "loads/names/an_index_out_of_range_is_an_error",
        "loads/names/set_device_index_rejects_what_does_not_exist",
    ),
    "`.numpy()` and `.tolist()` without `.cpu()`": (
        "tensors/printing/lists_and_formats",
        "trains/loading/a_loader_feeds_the_device",
    ),
    "an error in an operator or a hook during backward": ("trains/autograd/checkpointing_recomputes",),
    "tensors of the CPU beside tensors of the device": (
        "operators/mixed/a_scalar_of_the_cpu_is_not_copied_to_out",
        "operators/mixed/a_reduction_refuses_out_on_another_device",
        "operators/mixed/the_refusal_of_an_output_names_its_device",
        "operators/mixed/index_fill_refuses_the_wrong_device",
        "operators/mixed/masked_fill_refuses_the_wrong_device",
        "operators/mixed/binomial_refuses_two_devices",
        "operators/mixed/losses_refuse_the_wrong_device",
        "operators/mixed/copies_and_questions_take_every_device",
        "operators/mixed/a_fused_step_refuses_a_flag_of_the_cpu",
    ),
    "an operator that has a kernel for PrivateUse1 only": (
        "operators/custom/a_custom_operator_runs",
        "operators/custom/a_kernel_can_be_registered_for_the_key",
    ),
    "`nn.LSTM`, `nn.GRU`": ("trains/modules/lstm", "trains/modules/gru"),
    "`torch.func` transforms": ("operators/custom/func_transforms",),
    '`module.to("ledger")`': (
        "trains/modules/to_moves_parameters_in_place",
        "trains/modules/an_earlier_optimizer_trains_what_to_has_moved",
    ),
    "`torch.load`": (
        "tensors/serialization/a_tensor_is_saved_and_loaded",
        "tensors/serialization/map_location_moves",
        "tensors/serialization/a_state_dict_is_saved_and_loaded",
    ),
    "`memory_format=` of a factory": ("tensors/factories/strides_are_kept",),
}


def test_the_conformance_kit_finds_the_limits_of_the_python_backend_and_no_others(folders: dict[str, Path]) -> None:
    kit, results = EXAMPLES.parent / "conformance", folders["torch_ledger"].parent / "results.json"
    path = os.pathsep.join([str(folders["torch_ledger"]), str(kit), os.environ.get("PYTHONPATH", "")])
    # All limits show in the levels 0 to 3. The checks of level 0 that start processes repeat what this file tests. A busy
    # machine takes longer than the default limit of a check.
    groups = ("loads/names/*", "tensors/*", "operators/*", "trains/*")
    options = ["--quick", "--no-sweeps", "--quiet", "--jobs", "1", "--timeout", "600", "--json", results]
    options += [f"--checks={group}" for group in groups]
    command = ["-m", "torch_conformance", "--device", "ledger", *options]
    result = programs.run(sys.executable, *command, cwd=EXAMPLES, PYTHONPATH=path, TORCH_OPENREG_AUTOLOAD="0")
    assert result.returncode == 1, result.stderr
    checks = json.loads(results.read_text())["checks"]
    assert {check["name"] for check in checks if check["result"] == "passed"} > {"trains/modules/mlp"}
    bad = {check["name"] for check in checks if check["result"] not in ("passed", "noted", "not offered")}
    assert bad == {name for names in LIMITS.values() for name in names}
    readme = (EXAMPLES / "python_backend" / "README.md").read_text()
    assert [limit for limit in LIMITS if f"\n| {limit} |" not in readme] == []


def test_the_python_backend_works_in_both_orders_and_yields_to_another_owner(folders: dict[str, Path]) -> None:
    use = "print(torch.ones(2, device='ledger') + 1)"
    ones = "tensor([2., 2.], device='ledger:0')\n"
    code = """
import torch
torch.utils.rename_privateuse1_backend("other")
import torch_ledger
print(torch_ledger._autoload())
"""
    assert at_once(
        partial(python, folders["torch_ledger"], f"import torch_ledger, torch; {use}"),
        partial(python, folders["torch_ledger"], code, **OFF),
    ) == [ones, "None\n"]
