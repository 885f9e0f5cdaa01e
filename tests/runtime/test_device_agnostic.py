"""torch.accelerator, the default device and PyTorch's own tools (torch.func, export, checkpoint) work on the device."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from comparison import DEVICE, DEVICE_0, DEVICE_1, assert_same, place
from programs import Run
from torch import Tensor, nn
from torch.export.passes import move_to_device_pass
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import FlopCounterMode

accelerator = torch.accelerator
MODULE = torch.get_device_module(DEVICE)


def randn(*shape: int) -> Tensor:
    """Random numbers on the CPU, the same ones in each call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))


def on_both(run: Callable[[str], Any]) -> None:
    """Asserts that ``run(device)`` gives on the device what it gives on the CPU."""
    assert_same(run(DEVICE), run("cpu"))


# ---- torch.accelerator -----------------------------------------------------------------------------------------------


def test_the_accelerator_is_the_device() -> None:
    assert accelerator.current_accelerator() == accelerator.current_accelerator(check_available=True)
    assert accelerator.current_accelerator() == torch.device(DEVICE)
    assert accelerator.is_available() and accelerator.device_count() == MODULE.device_count() == 2


def test_the_accelerators_device_index_is_the_current_device() -> None:
    with accelerator.device_index(1):
        assert accelerator.current_device_index() == MODULE.current_device() == 1
        assert torch.empty(0, device=DEVICE).device == torch.device(DEVICE_1)
        with accelerator.device_index(None):
            assert accelerator.current_device_index() == 1
    assert accelerator.current_device_index() == 0
    try:
        accelerator.set_device_index(DEVICE_1)
        assert MODULE.current_device() == 1
    finally:
        accelerator.set_device_index(0)


@pytest.mark.parametrize("index", [2, 100])
def test_the_accelerator_names_an_index_without_a_device(index: int) -> None:
    sentence = rf"^The device index is out of range\. It must be in \[0, 2\), but got {index}\."
    for call in (accelerator.set_device_index, accelerator.synchronize, accelerator.current_stream):
        with pytest.raises(torch.AcceleratorError, match=sentence) as error:
            call(index)
        assert error.value.error_code == 101  # cudaErrorInvalidDevice
    assert accelerator.current_device_index() == 0


def test_the_accelerators_deprecated_names_still_work() -> None:
    with pytest.warns(FutureWarning, match="^Use `set_device_index` instead.$"):
        accelerator.set_device_idx(0)
    with pytest.warns(FutureWarning, match="^Use `current_device_index` instead.$"):
        assert accelerator.current_device_idx() == 0


def test_the_accelerator_waits_for_a_given_device_or_for_the_current_one() -> None:
    event = torch.Event()
    event.record(torch.Stream(device=1))
    accelerator.synchronize(1)
    assert event.query()
    accelerator.synchronize()


def test_the_accelerators_capability_lists_the_dtypes() -> None:
    dtypes = accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int64, torch.bool} <= set(dtypes)
    assert accelerator.get_device_capability(DEVICE_1)["supported_dtypes"] == dtypes


def test_the_accelerators_memory_functions_count_the_devices_memory() -> None:
    accelerator.empty_cache()
    accelerator.reset_peak_memory_stats(1)
    before, (free, total) = accelerator.memory_allocated(1), accelerator.get_memory_info(1)
    x = torch.empty(8 << 20, dtype=torch.uint8, device=DEVICE_1)
    assert accelerator.memory_allocated(1) - before == 8 << 20 <= accelerator.memory_reserved(1)
    assert accelerator.get_memory_info(1)[0] <= free - (8 << 20) < total
    assert accelerator.memory_stats(1)["allocated_bytes.all.current"] == accelerator.memory_allocated(1)
    del x
    assert accelerator.memory_allocated(1) == before
    assert accelerator.max_memory_allocated(1) - before == 8 << 20 <= accelerator.max_memory_reserved(1)
    accelerator.reset_accumulated_memory_stats(1)
    assert accelerator.memory_stats(1)["allocated_bytes.all.allocated"] == 0
    accelerator.empty_cache()
    accelerator.empty_host_cache()
    assert accelerator.get_memory_info(1) == (free, total)


# ---- torch.device, default device, device module ---------------------------------------------------------------------


@pytest.mark.parametrize("device", [None, DEVICE, DEVICE_1, torch.device(DEVICE, 1)])
def test_every_form_of_the_device_has_the_same_module(device: str | torch.device | None) -> None:
    assert torch.get_device_module(device) is MODULE


# The names that core PyTorch 2.13 looks up in a device's module with getattr.
CORE = (
    "Event", "Stream", "_get_generator", "_initialized", "_is_in_bad_fork", "_lazy_init", "_utils._get_device_index",
    "current_device", "current_stream", "default_generators", "device", "device_count", "get_amp_supported_dtype",
    "get_device_name", "get_device_properties", "get_rng_state", "is_available", "is_bf16_supported", "is_initialized",
    "manual_seed", "manual_seed_all", "memory_allocated", "memory_reserved", "memory_stats", "set_device",
    "set_rng_state", "set_stream", "stream", "synchronize",
)  # fmt: skip


@pytest.mark.parametrize("name", CORE)
def test_the_module_has_what_core_pytorch_looks_up(name: str) -> None:
    found: Any = MODULE
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found) or name in ("_initialized", "default_generators")


def test_default_generators_are_the_ones_that_the_devices_draw_from() -> None:
    generators = MODULE.default_generators
    assert [generator.device for generator in generators] == [torch.device(DEVICE_0), torch.device(DEVICE_1)]
    generators[1].manual_seed(3)
    assert_same(torch.rand(4, device=DEVICE_1), torch.rand(4, generator=torch.Generator().manual_seed(3)))
    assert MODULE._get_generator(torch.device(DEVICE_1)).get_state().equal(generators[1].get_state())


def test_a_number_is_a_device_of_the_accelerator() -> None:
    assert torch.device(1) == torch.device(DEVICE, 1) == torch.device(type=DEVICE, index=1) == torch.device(DEVICE_1)
    assert torch.ones(1).to(1).device == torch.ones(1, device=1).device == torch.device(DEVICE_1)
    assert nn.Linear(1, 1).to(1).weight.device == torch.device(DEVICE_1)


def factories() -> list[Tensor]:
    return [
        torch.ones(1), torch.empty(1), torch.tensor([1.0]), torch.arange(2), torch.randn(1), torch.randperm(2),
        torch.linspace(0, 1, 2), torch.eye(1), torch.as_tensor([1]), torch.sparse_coo_tensor([[0]], [1.0], (1,)),
        nn.Linear(1, 1).weight, nn.BatchNorm1d(1).running_mean, torch.fft.fftfreq(2), torch.hann_window(2),
    ]  # fmt: skip


def test_the_device_as_a_context_is_the_default_inside_it() -> None:
    with torch.device(DEVICE_1):
        assert {x.device for x in factories()} == {torch.device(DEVICE_1)}
        with torch.device("cpu"):
            assert torch.ones(1).device.type == "cpu"
        assert torch.ones(1, device="cpu").device.type == "cpu"
    assert {x.device.type for x in factories()} == {"cpu"}


@pytest.fixture
def default_device() -> Iterator[None]:
    torch.set_default_device(DEVICE_1)
    yield
    torch.set_default_device(None)


@pytest.mark.usefixtures("default_device")
def test_the_default_device_is_used_by_every_factory() -> None:
    assert torch.get_default_device() == torch.device(DEVICE_1)
    assert {x.device for x in factories()} == {torch.device(DEVICE_1)}


@pytest.mark.usefixtures("default_device")
def test_a_training_step_on_the_default_device() -> None:
    model = network()
    batches = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(8, 5)), 4, shuffle=True, generator=torch.Generator(DEVICE)
    )
    optimizer = torch.optim.Adam(model.parameters())
    for (x,) in batches:
        assert x.device == torch.device(DEVICE_1)
        model(x).sum().backward()
        optimizer.step()
    assert {p.grad.device for p in model.parameters() if p.grad is not None} == {torch.device(DEVICE_1)}


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type:UserWarning")
def test_the_default_tensor_type_cannot_be_the_devices() -> None:
    """PyTorch's list of default tensor types is fixed. torch.set_default_device replaces the deprecated function."""
    with pytest.raises(TypeError, match="^invalid type object: only floating-point types are supported as the default"):
        torch.set_default_tensor_type(f"torch.{DEVICE}.FloatTensor")


def test_asking_about_a_device_starts_it(run_python: Run) -> None:
    """Each call runs in a forked child. The child may start the device, because its parent has not started it."""
    code = f"""
import os, torch
device = torch.{DEVICE}
calls = [
    device.get_device_properties, device.get_device_name, device.get_device_capability, device.mem_get_info,
    device.device_memory_used, lambda: device.can_device_access_peer(0, 1), device.synchronize, device.init,
]
for call in calls:
    if os.fork() == 0:
        before = device.is_available(), device.device_count(), device.is_initialized()
        call()
        os._exit(0 if before == (True, 2, False) and device.is_initialized() else 1)
    print(os.wait()[1])
"""
    assert run_python(code).stdout.split() == ["0"] * 8


# ---- Methods of tensors, modules, storages ---------------------------------------------------------------------------


def test_tensors_move_by_the_devices_own_method() -> None:
    x = randn(2, 3)
    for moved in (getattr(x, DEVICE)(1), getattr(x, DEVICE)(torch.device(DEVICE_1)), getattr(x, DEVICE)(device=1)):
        assert moved.device == torch.device(DEVICE_1) and getattr(moved, f"is_{DEVICE}")
        assert_same(moved, x)
    assert getattr(x, DEVICE)().device == torch.device(DEVICE_0) and not getattr(x, f"is_{DEVICE}")
    here = x.to(DEVICE)
    assert getattr(here, DEVICE)() is here
    assert (here.is_cuda, here.is_cpu, here.get_device()) == (False, False, 0)


def test_modules_and_packed_sequences_move_by_the_devices_own_method() -> None:
    assert {p.device for p in getattr(nn.LSTM(2, 2), DEVICE)(1).parameters()} == {torch.device(DEVICE_1)}
    packed = getattr(nn.utils.rnn.pack_sequence([randn(3, 2), randn(2, 2)]), DEVICE)()
    assert packed.data.device == torch.device(DEVICE_0) and getattr(packed, f"is_{DEVICE}")


def test_storages_move_by_the_devices_own_method() -> None:
    storage = randn(4).untyped_storage()
    moved = getattr(storage, DEVICE)()
    assert (
        moved.device == torch.device(DEVICE_0)
        and getattr(moved, f"is_{DEVICE}")
        and moved.cpu().tolist() == storage.tolist()
    )


def test_a_tensor_type_by_name_moves_the_tensor_to_its_device() -> None:
    x = randn(2).to(DEVICE)
    assert x.type() == f"torch.{DEVICE}.FloatTensor"
    assert x.cpu().type(f"torch.{DEVICE}.HalfTensor").device == torch.device(DEVICE_0)
    assert x.type(torch.float64).device == torch.device(DEVICE_0)
    assert x.type("torch.FloatTensor").device.type == "cpu"


# ---- Saving memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_repeats_the_forward_with_the_same_random_numbers(reentrant: bool) -> None:
    def run(device: str) -> list[Tensor]:
        model = nn.Sequential(network(), nn.Dropout(0.5)).to(device)
        x = place(randn(64, 5).requires_grad_(), device)
        torch.manual_seed(1)
        y = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=reentrant)
        torch.rand(100, device=device)  # advances the generator; the recomputation must not depend on that
        y.square().sum().backward()
        return [y, x.grad, *[p.grad for p in model.parameters()], torch.rand(4, device=device)]

    on_both(run)


def test_a_checkpoint_repeats_the_forward_under_the_same_autocast() -> None:
    def run(device: str) -> list[Tensor]:
        model = network().to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            y = torch.utils.checkpoint.checkpoint(model, randn(4, 5).to(device), use_reentrant=False)
        assert y.dtype is torch.bfloat16
        y.float().sum().backward()
        return [y, *[p.grad for p in model.parameters()]]

    on_both(run)


def test_checkpointed_segments_give_the_same_gradients() -> None:
    def run(device: str) -> list[Tensor]:
        model = network().to(device)
        x = place(randn(4, 5).requires_grad_(), device)
        torch.utils.checkpoint.checkpoint_sequential(model, 2, x, use_reentrant=False).sum().backward()
        return [x.grad, *[p.grad for p in model.parameters()]]

    on_both(run)


@pytest.mark.parametrize("pin_memory", [False, True])
def test_save_on_cpu_keeps_no_saved_tensor_on_the_device(pin_memory: bool) -> None:
    x = place(randn(256, 256).requires_grad_(), DEVICE)
    before = MODULE.memory_allocated()
    with torch.autograd.graph.save_on_cpu(pin_memory=pin_memory, device_type=DEVICE):
        y = x.exp().sin().sum()
    assert MODULE.memory_allocated() - before < x.nbytes
    y.backward()
    expected = randn(256, 256).requires_grad_()
    expected.exp().sin().sum().backward()
    assert_same(x.grad, expected.grad)


# ---- Measuring -------------------------------------------------------------------------------------------------------


def test_the_benchmark_timer_waits_for_the_device() -> None:
    timer = Timer("x + x", globals={"x": randn(4).to(DEVICE)})
    assert timer.timeit(10).median > 0
    assert timer.blocked_autorange(min_run_time=0.01).median > 0


def test_the_flop_counter_counts_the_same_on_the_device_and_on_the_cpu() -> None:
    totals = []
    for device in (DEVICE, "cpu"):
        with FlopCounterMode(display=False) as counter:
            network().to(device)(randn(4, 5).to(device)).sum().backward()
        totals.append(counter.get_total_flops())
    assert totals[0] == totals[1] > 0


# ---- Tensors without data --------------------------------------------------------------------------------------------


def test_fake_tensors_say_what_the_device_would_give() -> None:
    model, x = network().to(DEVICE_1), randn(4, 5).to(DEVICE_1)
    before = MODULE.memory_allocated(1)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = model(mode.from_tensor(x))
        custom = torch.ops.openreg.custom_abs(torch.empty(1 << 30, device=DEVICE_1))
    assert (fake.shape, fake.device) == ((4, 3), torch.device(DEVICE_1))
    assert (custom.shape, custom.device) == ((1 << 30,), torch.device(DEVICE_1))
    assert MODULE.memory_allocated(1) == before


def test_fake_tensors_refuse_mixed_devices_as_real_ones_do() -> None:
    sentence = f"^Expected all tensors to be on the same device, but found at least two devices, {DEVICE_0} and cpu!"
    with torch._subclasses.FakeTensorMode(), pytest.raises(RuntimeError, match=sentence):
        torch.ones(3, device=DEVICE) + torch.ones(3)
    with pytest.raises(RuntimeError, match=sentence):
        torch.ones(3, device=DEVICE) + torch.ones(3)


def test_a_module_on_meta_becomes_one_on_the_device() -> None:
    with torch.device("meta"):
        model = nn.Linear(3, 2)
    with pytest.raises(NotImplementedError, match="^Cannot copy out of meta tensor; no data! Please use torch.nn"):
        model.to(DEVICE)
    model.to_empty(device=DEVICE).load_state_dict({"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
    assert_same(model(torch.ones(1, 3, device=DEVICE)), torch.full((1, 2), 3.0).requires_grad_())
    assert torch.ones(2, device=DEVICE).to("meta").shape == (2,)


# ---- torch.func ------------------------------------------------------------------------------------------------------

TRANSFORMS: dict[str, Callable[[Tensor], Any]] = {
    "grad": torch.func.grad(lambda x: (x.sin() * x).sum()),
    "vjp": lambda x: torch.func.vjp(torch.sin, x)[1](x)[0],
    "jvp": lambda x: torch.func.jvp(torch.sin, (x,), (x,)),
    "linearize": lambda x: torch.func.linearize(torch.sin, x)[1](x),
    "jacrev": torch.func.jacrev(lambda x: x @ x.T),
    "jacfwd": torch.func.jacfwd(lambda x: x @ x.T),
    "hessian": torch.func.hessian(lambda x: (x**3).sum()),
    "functionalize": torch.func.functionalize(lambda x: x.clone().add_(1)),
    "vmap": torch.vmap(lambda row: (row * row).sum()),
    "vmap of vmap": torch.vmap(torch.vmap(torch.exp)),
    "vmap of grad": torch.vmap(torch.func.grad(lambda row: row.softmax(0)[0])),
    "vmap of linalg": torch.vmap(lambda row: torch.linalg.inv(torch.diag(row.abs() + 1))),
    "vmap in chunks": torch.vmap(torch.sin, chunk_size=1),
    "vmap of a factory": torch.vmap(lambda row: row + torch.arange(3, device=row.device)),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS.keys())
def test_transforms(transform: Callable[[Tensor], Any]) -> None:
    on_both(lambda device: transform(randn(2, 3).to(device)))


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_random_numbers_under_vmap(randomness: str) -> None:
    def run(device: str) -> Tensor:
        torch.manual_seed(2)
        draw = torch.vmap(lambda x: x + torch.rand(3, device=device), randomness=randomness)
        return draw(torch.zeros(4, 3, device=device))

    on_both(run)
    rows = run(DEVICE)
    assert rows[0].equal(rows[1]) == (randomness == "same")
    with pytest.raises(RuntimeError, match="^vmap: called random operation while in randomness error mode."):
        torch.vmap(lambda x: x + torch.rand(3, device=DEVICE))(torch.zeros(4, 3, device=DEVICE))


def test_gradients_of_each_sample() -> None:
    def run(device: str) -> dict[str, Tensor]:
        model = network().to(device)
        parameters = {name: p.detach() for name, p in model.named_parameters()}

        def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
            return torch.func.functional_call(model, parameters, (x,)).square().sum()

        return torch.vmap(torch.func.grad(loss), (None, 0))(parameters, randn(4, 5).to(device))

    on_both(run)


def test_an_ensemble_of_stacked_modules() -> None:
    def run(device: str) -> Tensor:
        torch.manual_seed(0)
        models = [nn.Linear(5, 2).to(device) for _ in range(3)]
        parameters, buffers = torch.func.stack_module_state(models)
        base = nn.Linear(5, 2, device="meta")
        return torch.vmap(lambda p, b, x: torch.func.functional_call(base, (p, b), (x,)), (0, 0, None))(
            parameters, buffers, randn(4, 5).to(device)
        ).detach()

    on_both(run)


def test_forward_mode_gradients() -> None:
    def run(device: str) -> Tensor:
        x = randn(3).to(device)
        with torch.autograd.forward_ad.dual_level():
            return torch.autograd.forward_ad.unpack_dual(torch.sin(torch.autograd.forward_ad.make_dual(x, x))).tangent

    on_both(run)
    x = randn(3).double().to(DEVICE).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: x.sin().sum(), x, check_forward_ad=True, check_batched_grad=True)


# ---- Export, tracing, graphs -----------------------------------------------------------------------------------------


def test_an_exported_program_runs_and_is_saved_with_its_device() -> None:
    model, x = network().to(DEVICE), randn(4, 5).to(DEVICE)
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    calls = [node.meta["val"].device for node in program.graph.nodes if node.op == "call_function"]
    assert calls and set(calls) == {torch.device(DEVICE_0)}
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    other = randn(7, 5).to(DEVICE)
    for exported in (program, torch.export.load(file), program.run_decompositions()):
        assert_same(exported.module()(other), model(other).cpu())


def test_a_program_exported_on_the_cpu_moves_to_the_device() -> None:
    model, x = network(), randn(4, 5)
    moved = move_to_device_pass(torch.export.export(model, (x,)), DEVICE)
    assert_same(moved.module()(x.to(DEVICE)), model(x))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_traced_module_runs_and_loads_anywhere() -> None:
    model, x = network().to(DEVICE), randn(4, 5)
    traced = torch.jit.trace(model, x.to(DEVICE))
    file = io.BytesIO()
    torch.jit.save(traced, file)
    for location in (None, "cpu", DEVICE_1):
        file.seek(0)
        loaded = torch.jit.load(file, map_location=location)
        device = location or DEVICE_0
        assert {p.device for p in loaded.parameters()} == {torch.device(device)}
        for _ in range(3):  # the second call runs what the profiling executor has optimised
            assert_same(loaded(x.to(device)), model(x.to(DEVICE)).cpu(), device=device)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_scripted_function_runs() -> None:
    @torch.jit.script
    def f(x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            x = x + torch.ones(3, device=x.device)
        return x.relu().sum()

    for _ in range(3):
        on_both(lambda device: f(randn(3).to(device)))


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_frozen_network_runs() -> None:
    def run(device: str) -> Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval().to(device)
        x = randn(1, 3, 8, 8).to(device)
        return torch.jit.freeze(torch.jit.trace(model, x))(x).detach()

    on_both(run)


def test_symbolic_traces_run() -> None:
    def f(x: Tensor) -> Tensor:
        return (x + 1).sin().sum()

    make_fx = torch.fx.experimental.proxy_tensor.make_fx
    for mode in ("real", "fake", "symbolic"):
        on_both(lambda device, mode=mode: make_fx(f, tracing_mode=mode)(randn(2, 3).to(device))(randn(2, 3).to(device)))
    on_both(lambda device: torch.fx.symbolic_trace(f)(randn(2, 3).to(device)))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_captured_graphs_run_forward_and_backward(backend: str) -> None:
    def run(device: str) -> list[Tensor]:
        model = network().to(device)
        y = torch.compile(model, backend=backend)(randn(4, 5).to(device))
        y.sum().backward()
        return [y, *[p.grad for p in model.parameters()]]

    on_both(run)


def test_captured_attention_runs_forward_and_backward() -> None:
    """The results have the shapes and dtypes of the meta kernel, which the captured graph saves for the backward."""

    def run(device: str, capture: bool) -> list[Tensor]:
        def attend(q: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)

        q = place(randn(2, 2, 4, 8).requires_grad_(), device)
        y = (torch.compile(attend, backend="aot_eager") if capture else attend)(q)
        y.sum().backward()
        return [y, q.grad]

    assert_same(run(DEVICE, True), run("cpu", False))


# ---- Other tools that look at the device -----------------------------------------------------------------------------


def test_assert_close_refuses_tensors_of_two_devices() -> None:
    x = torch.testing.make_tensor((2,), device=DEVICE, dtype=torch.float32)
    torch.testing.assert_close(x, x.clone())
    with pytest.raises(AssertionError, match=f"^The values for attribute 'device' do not match: {DEVICE_0} != cpu.$"):
        torch.testing.assert_close(x, x.cpu())


def test_a_custom_operator_for_the_device_by_name() -> None:
    @torch.library.custom_op("openreg_agnostic::double", mutates_args=(), device_types=DEVICE)
    def double(x: Tensor) -> Tensor:
        return x * 2

    double.register_fake(torch.empty_like)
    torch.library.opcheck(double, (randn(3).to(DEVICE),))
    with pytest.raises(
        NotImplementedError, match="^Could not run 'openreg_agnostic::double' with arguments from the 'CPU'"
    ):
        double(randn(3))


@pytest.mark.parametrize("parametrization", ["weight_norm", "spectral_norm", "orthogonal"])
def test_parametrizations(parametrization: str) -> None:
    def run(device: str) -> Tensor:
        torch.manual_seed(0)
        model = nn.Linear(5, 5).to(device)
        torch.manual_seed(1)  # spectral_norm draws on the device
        return getattr(nn.utils.parametrizations, parametrization)(model).weight.detach()

    on_both(run)


def test_parameters_as_one_vector_and_their_average() -> None:
    def run(device: str) -> list[Tensor]:
        model = network().to(device)
        average = torch.optim.swa_utils.AveragedModel(model)
        nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(model.parameters()) * 2, model.parameters())
        average.update_parameters(model)
        average.update_parameters(model)
        return [*model.state_dict().values(), *average.module.state_dict().values()]

    on_both(run)


def test_flex_attention_is_refused_in_pytorchs_words() -> None:
    q = torch.zeros(1, 1, 4, 8, device=DEVICE)
    flex_attention = torch.nn.attention.flex_attention.flex_attention
    with pytest.raises(ValueError, match="^FlexAttention is only supported on CUDA, CPU, HPU, or MPS devices."):
        flex_attention(q, q, q)
