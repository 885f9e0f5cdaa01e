"""torch.save and torch.load: tensors, sharing, modules, optimizers, and map_location in every form and direction."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import re
import sysconfig
from pathlib import Path
from typing import Any

import programs
import pytest
import torch
import torch.distributed.checkpoint as dcp
from comparison import DEVICE, DEVICE_0, DEVICE_1, OURS, assert_same
from environments import Environment
from programs import Done
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

MODULE = torch.get_device_module(DEVICE)
TWO_DEVICES = pytest.mark.skipif(MODULE.device_count() < 2, reason="needs two devices")


def saved(thing: Any, **options: Any) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(thing, buffer, **options)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str)
@pytest.mark.parametrize("zip_format", [True, False])
def test_a_tensor_comes_back_on_its_device(dtype: torch.dtype, zip_format: bool) -> None:
    a = torch.arange(6).reshape(2, 3).to(dtype)
    buffer = saved(a.to(DEVICE), _use_new_zipfile_serialization=zip_format)
    result = torch.load(buffer)
    assert_same(result, a)
    assert result.device == torch.device(DEVICE_0)


@pytest.mark.parametrize("weights_only", [True, False])
def test_strides_offsets_sharing_and_gradients_survive(weights_only: bool) -> None:
    base = torch.arange(12.0, device=DEVICE)
    things = {"base": base, "view": base[2:8].view(2, 3).t(), "leaf": torch.ones(2, device=DEVICE, requires_grad=True)}
    result = torch.load(saved(things), weights_only=weights_only)
    expected = torch.arange(12.0)
    assert_same(result["base"], expected)
    assert_same(result["view"], expected[2:8].view(2, 3).t())
    assert result["view"].storage_offset() == 2
    assert result["leaf"].requires_grad
    result["base"].zero_()
    assert_same(result["view"], torch.zeros(2, 3).t())


def test_parameters_buffers_and_empty_tensors() -> None:
    things = [
        torch.nn.Parameter(torch.ones(2, device=DEVICE)),
        torch.empty(0, 3, device=DEVICE),
        torch.tensor(5, device=DEVICE),
    ]
    result = torch.load(saved(things))
    assert isinstance(result[0], torch.nn.Parameter)
    assert_same(result, [torch.nn.Parameter(torch.ones(2)), torch.empty(0, 3), torch.tensor(5)])


@pytest.mark.parametrize("source", ["cpu", DEVICE_0])
@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("cpu", "cpu"),
        (torch.device("cpu"), "cpu"),
        (DEVICE, DEVICE_0),
        (DEVICE_0, DEVICE_0),
        (torch.device(DEVICE_0), DEVICE_0),
        pytest.param(DEVICE_1, DEVICE_1, marks=TWO_DEVICES),
        (lambda storage, tag: storage, "cpu"),
        (lambda storage, tag: storage.to(device=DEVICE), DEVICE_0),
        ({"cpu": DEVICE_0, DEVICE_0: "cpu"}, None),
    ],
    ids=["cpu", "cpu device", "name", "name and index", "device", "second device", "keep", "function", "mapping"],
)
def test_map_location(source: str, location: Any, expected: str | None) -> None:
    a = torch.arange(5.0)
    if expected is None:
        expected = {"cpu": DEVICE_0, DEVICE_0: "cpu"}[source]
    result = torch.load(saved(a.to(source)), map_location=location)
    assert_same(result, a, device=expected)
    assert result.device == torch.device(expected)


def test_a_mapping_that_does_not_name_the_device_leaves_tensors_there() -> None:
    buffer = saved(torch.arange(3.0, device=DEVICE))
    assert torch.load(buffer, map_location={"xpu:0": "cpu"}).device == torch.device(DEVICE_0)
    buffer.seek(0)
    assert torch.load(buffer, map_location=lambda storage, tag: None).device == torch.device(DEVICE_0)


def test_a_function_is_told_the_device() -> None:
    seen = []
    things = [torch.arange(3.0, device=DEVICE), torch.arange(3.0)]
    torch.load(saved(things), map_location=lambda storage, tag: seen.append((storage.device.type, tag)))
    assert seen == [("cpu", DEVICE_0), ("cpu", "cpu")]


def test_a_default_device_is_where_a_checkpoint_without_a_location_does_not_go() -> None:
    buffer = saved([torch.ones(2, device=DEVICE), torch.ones(2)])
    with torch.device("meta"):
        assert [a.device.type for a in torch.load(buffer)] == [DEVICE, "cpu"]


@pytest.mark.parametrize(
    ("location", "message"),
    [
        (
            f"{DEVICE}:7",
            f"Attempting to deserialize object on {DEVICE.upper()} device 7 but torch.{DEVICE}.device_count() is "
            f"{MODULE.device_count()}. Please use torch.load with map_location to map your storages to an existing "
            "device.",
        ),
        ("xpu", "Attempting to deserialize object on a XPU device but torch.xpu.is_available() is False. "),
    ],
)
@pytest.mark.parametrize("source", ["cpu", DEVICE])
def test_map_location_to_a_device_that_is_not_there(source: str, location: str, message: str) -> None:
    with pytest.raises(RuntimeError, match="^" + re.escape(message)):
        torch.load(saved(torch.ones(2, device=source)), map_location=location)


def test_map_location_to_meta() -> None:
    result = torch.load(saved(torch.ones(3, device=DEVICE)), map_location="meta")
    assert (result.device.type, result.shape) == ("meta", (3,))


def test_the_location_tag_carries_the_index() -> None:
    storage = torch.ones(2, device=DEVICE).untyped_storage()
    assert torch.serialization.location_tag(storage) == DEVICE_0


@pytest.mark.parametrize("where", ["cpu", DEVICE])
def test_a_file_can_be_mapped(tmp_path: Path, where: str) -> None:
    path = tmp_path / "tensor.pt"
    torch.save(torch.arange(1000.0, device=where), path)
    assert_same(torch.load(path, mmap=True, map_location="cpu"), torch.arange(1000.0), device="cpu")
    assert_same(torch.load(path, mmap=True, map_location=DEVICE), torch.arange(1000.0))
    assert torch.load(path, mmap=True, map_location="meta").device.type == "meta"
    assert torch.load(path, mmap=True).device.type == where


def test_a_module_and_its_optimizer_go_on_where_they_were(tmp_path: Path) -> None:
    def make() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)).to(DEVICE)
        return module, torch.optim.Adam(module.parameters(), lr=0.1)

    def train(module: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for step in steps:
            x = torch.randn(6, 4, generator=torch.Generator().manual_seed(step)).to(DEVICE)
            optimizer.zero_grad()
            module(x).square().sum().backward()
            optimizer.step()

    module, optimizer = make()
    train(module, optimizer, range(3))
    path = tmp_path / "checkpoint.pt"
    torch.save({"module": module.state_dict(), "optimizer": optimizer.state_dict()}, path)
    train(module, optimizer, range(3, 6))

    for location in (DEVICE, "cpu"):  # an optimizer moves its state to its parameters
        again, its_optimizer = make()
        checkpoint = torch.load(path, map_location=location, weights_only=True)
        again.load_state_dict(checkpoint["module"])
        its_optimizer.load_state_dict(checkpoint["optimizer"])
        train(again, its_optimizer, range(3, 6))
        assert_same(again.state_dict(), _on_cpu(module.state_dict()))


def _on_cpu(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return type(state)((name, value.cpu()) for name, value in state.items())


def test_a_whole_module_is_saved() -> None:
    module = torch.nn.Linear(3, 2, device=DEVICE)
    again = torch.load(saved(module), weights_only=False)
    x = torch.ones(1, 3, device=DEVICE)
    assert_same(again(x), module(x).detach().cpu().requires_grad_())


def test_a_cpu_checkpoint_loads_into_a_device_module_and_the_other_way_round() -> None:
    for source, to in (("cpu", DEVICE), (DEVICE, "cpu")):
        first, second = torch.nn.Linear(3, 2, device=source), torch.nn.Linear(3, 2, device=to)
        second.load_state_dict(torch.load(saved(first.state_dict())))
        assert_same(second.weight.detach(), first.weight.detach().cpu(), device=to)


def test_assign_takes_the_loaded_tensors_device() -> None:
    module = torch.nn.Linear(3, 2, device="meta")
    module.load_state_dict(torch.load(saved(torch.nn.Linear(3, 2, device=DEVICE).state_dict())), assign=True)
    assert module.weight.device == torch.device(DEVICE_0)


def test_random_states_are_saved() -> None:
    torch.manual_seed(4)
    torch.randn(3, device=DEVICE)
    buffer = saved({"device": MODULE.get_rng_state(), "all": MODULE.get_rng_state_all()})
    expected = torch.randn(3, device=DEVICE).cpu()
    states = torch.load(buffer)
    MODULE.set_rng_state(states["device"])
    assert_same(torch.randn(3, device=DEVICE), expected)
    MODULE.set_rng_state_all(states["all"])
    assert_same(torch.randn(3, device=DEVICE), expected)


def _in_process(program: str, path: Path, **environment: str) -> Done:
    return programs.python(program, str(path), **environment, cwd="/")


# torch/serialization.py, _validate_device
UNAVAILABLE = (
    f"Attempting to deserialize object on a {DEVICE.upper()} device but torch.{DEVICE}.is_available() is False. "
)
LOAD = "import sys, torch; print(torch.load(sys.argv[1]))"
LOAD_TO_CPU = "import sys, torch; print(torch.load(sys.argv[1], map_location='cpu').tolist())"


@pytest.mark.skipif(not OURS, reason="the number of devices is set in this device's environment")
@TWO_DEVICES
def test_a_checkpoint_of_a_device_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "second.pt"
    torch.save(torch.arange(3.0, device=DEVICE_1), path)
    result = _in_process(LOAD, path, OPENREG_DEVICE_COUNT="1")
    assert result.returncode == 1
    assert f"to deserialize object on {DEVICE.upper()} device 1 but torch.{DEVICE}.device_count() is 1" in result.stderr
    assert "map_location" in result.stderr
    assert _in_process(LOAD_TO_CPU, path, OPENREG_DEVICE_COUNT="1").stdout == "[0.0, 1.0, 2.0]\n"


@pytest.mark.skipif(not OURS, reason="without this backend the name is unknown")
def test_a_checkpoint_without_the_backend_loads_on_the_cpu(tmp_path: Path) -> None:
    path = tmp_path / "device.pt"
    torch.save(torch.arange(3.0, device=DEVICE), path)
    off = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    assert _in_process(LOAD_TO_CPU, path, **off).stdout == "[0.0, 1.0, 2.0]\n"
    result = _in_process(LOAD, path, **off)
    assert result.returncode == 1
    assert {
        "openreg": "don't know how to restore data location of torch.storage.UntypedStorage (tagged with openreg:0)",
        "cuda": UNAVAILABLE,
    }[DEVICE] in result.stderr


@pytest.mark.skipif(not OURS, reason="the number of devices is set in this device's environment")
def test_a_checkpoint_of_a_device_where_none_is_visible(tmp_path: Path) -> None:
    path = tmp_path / "device.pt"
    torch.save(torch.arange(3.0, device=DEVICE), path)
    result = _in_process(LOAD, path, OPENREG_VISIBLE_DEVICES="")
    assert result.returncode == 1
    assert (
        f"RuntimeError: {UNAVAILABLE}"
        "If you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map "
        "your storages to the CPU." in result.stderr
    )
    assert _in_process(LOAD_TO_CPU, path, OPENREG_VISIBLE_DEVICES="").stdout == "[0.0, 1.0, 2.0]\n"


@pytest.mark.slow
@pytest.mark.only_on("openreg", reason="CUDA tensors have no description of their memory")
def test_a_checkpoint_where_the_package_is_not_installed(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment")
    (environment.site_packages / "outer.pth").unlink()
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if "openreg" not in installed.name and not (environment.site_packages / installed.name).exists():
            (environment.site_packages / installed.name).symlink_to(installed)
    path = tmp_path / "device.pt"
    model = torch.nn.Linear(2, 1, bias=False).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    model(torch.ones(1, 2, device=DEVICE)).sum().backward()
    optimizer.step()
    described = torch.arange(2.0, device=DEVICE)
    torch._utils.set_tensor_metadata(described, {"version_number": True})
    torch.save([model.state_dict(), optimizer.state_dict(), MODULE.get_rng_state(), described], path)
    code = f"""
import importlib.util, torch
assert importlib.util.find_spec("torch_openreg") is None
try:
    torch.load({str(path)!r})
except RuntimeError as error:
    print(str(error).splitlines()[0])
model, optimizer, state, described = torch.load({str(path)!r}, map_location="cpu")
print(model["weight"].device, optimizer["state"][0]["momentum_buffer"].tolist(), state.numel(), described.tolist())
print(torch.load({str(path)!r}, map_location="meta")[0]["weight"].device)
"""
    output = environment.run(code).splitlines()
    assert (
        "don't know how to restore data location of torch.storage.UntypedStorage (tagged with openreg:0)" in output[0]
    )
    assert output[1:] == [f"cpu [[1.0, 1.0]] {MODULE.get_rng_state().numel()} [0.0, 1.0]", "meta"]


def test_a_checkpoint_in_the_format_of_old_versions_moves_to_the_device() -> None:
    old = saved({"a": torch.arange(3.0), "b": torch.ones(2, dtype=torch.half)}, _use_new_zipfile_serialization=False)
    result = torch.load(old, map_location=DEVICE)
    assert_same(result, {"a": torch.arange(3.0), "b": torch.ones(2, dtype=torch.half)})


@pytest.mark.filterwarnings("ignore")  # PyTorch warns that there is only one process
def test_a_distributed_checkpoint_of_one_process(tmp_path: Path) -> None:
    def make(device: str) -> tuple[torch.nn.Module, torch.optim.Optimizer, dict[str, Any]]:
        torch.manual_seed(1)
        model = torch.nn.Linear(4, 3, device=device)
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(1, 4, device=device)).sum().backward()
        optimizer.step()
        model_state, optimizer_state = get_state_dict(model, optimizer)
        return model, optimizer, {"model": model_state, "optimizer": optimizer_state}

    model, _, state = make(DEVICE)
    dcp.save(state, checkpoint_id=tmp_path)
    for device in {DEVICE, "cpu", DEVICE_1 if MODULE.device_count() > 1 else DEVICE}:
        again, optimizer, its_state = make(device)
        with torch.no_grad():
            again.weight.zero_()
        dcp.load(its_state, checkpoint_id=tmp_path)
        set_state_dict(again, optimizer, model_state_dict=its_state["model"], optim_state_dict=its_state["optimizer"])
        assert again.weight.device.type == torch.device(device).type
        assert_same(again.weight.detach(), model.weight.detach().cpu(), device=device)
        assert optimizer.state[again.weight]["exp_avg"].device == again.weight.device


@pytest.mark.parametrize("zip_format", [True, False])
def test_a_file_cut_anywhere_is_an_error_and_loses_nothing(zip_format: bool) -> None:
    kept = torch.arange(4.0, device=DEVICE)
    data = saved([torch.ones(1000, device=DEVICE)] * 3, _use_new_zipfile_serialization=zip_format).getvalue()
    gc.collect()
    before = torch.accelerator.memory_allocated()
    for size in (0, 1, 64, len(data) // 3, len(data) // 2, len(data) - 100, len(data) - 1):
        # Which error it is depends on where the cut falls.
        with pytest.raises((RuntimeError, EOFError, OSError, ValueError, IndexError, pickle.UnpicklingError)):
            torch.load(io.BytesIO(data[:size]))
    gc.collect()
    assert torch.accelerator.memory_allocated() == before
    assert_same(kept, torch.arange(4.0))
    assert_same(torch.load(io.BytesIO(data))[2], torch.ones(1000))


def test_a_truncated_file_is_an_error_and_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "truncated.pt"
    kept = torch.arange(4.0, device=DEVICE)
    torch.save(torch.ones(10_000, device=DEVICE), path)
    path.write_bytes(path.read_bytes()[:100])
    before = torch.accelerator.memory_allocated()
    with pytest.raises(RuntimeError, match="failed finding central directory"):
        torch.load(path)
    assert torch.accelerator.memory_allocated() == before
    assert_same(kept, torch.arange(4.0))


QUANTIZED = {
    "per tensor": lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.qint8),
    "per channel": lambda x: torch.quantize_per_channel(
        x, torch.tensor([0.1, 0.2], device=x.device), torch.tensor([1, 2], device=x.device), 0, torch.quint8
    ),
}


@pytest.mark.parametrize("quantize", QUANTIZED.values(), ids=QUANTIZED)
def test_quantized_tensors_are_copied_pickled_saved_and_loaded(quantize: Any) -> None:
    values = torch.tensor([[0.5, -1.0, 2.0], [0.25, 0.0, 1.5]])
    expected, q = quantize(values), quantize(values.to(DEVICE))

    def saved(tensor: torch.Tensor, location: str | None) -> torch.Tensor:
        file = io.BytesIO()
        torch.save(tensor, file)
        file.seek(0)
        return torch.load(file, map_location=location)

    copies = [(copy.deepcopy(q), DEVICE_0), (pickle.loads(pickle.dumps(q)), DEVICE_0), (saved(q, None), DEVICE_0)]
    copies += [(saved(q, "cpu"), "cpu"), (saved(q, DEVICE_1), DEVICE_1), (saved(expected, DEVICE), DEVICE_0)]
    for result, device in copies:
        assert str(result.device) == device and result.qscheme() is expected.qscheme()
        assert result.data_ptr() != q.data_ptr()
        assert_same(result, expected, device=device)
        assert_same(result.dequantize(), expected.dequantize(), device=device)
    view = copy.deepcopy([q, q[1]])
    assert view[0].data_ptr() == view[1].data_ptr() - 3
