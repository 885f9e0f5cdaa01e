"""The type "cuda": programs that only say "cuda" run unchanged, each in a process of its own."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from cuda_builds import AS_CUDA
from programs import Run

pytestmark = AS_CUDA

MODES = pytest.mark.parametrize("mode", ["inline", "chaos"])


@pytest.fixture
def succeeds(run_python: Run, tmp_path: Path) -> Callable[..., None]:
    """A function that runs a program. The program must print "done" and nothing else."""

    def run(program: str, **environment: str) -> None:
        (tmp_path / "program.py").write_text(textwrap.dedent(program) + "\nprint('done')\n")
        result = run_python(
            "import runpy; runpy.run_path('program.py', run_name='__main__')",
            **{"TORCH_OPENREG_AS": "cuda", **environment},
        )
        # PyTorch's profiler prints the line "USDT: ... profiler_start" for any device.
        said = "".join(line for line in result.stderr.splitlines(True) if not line.startswith("USDT:"))
        assert (result.returncode, result.stdout, said) == (0, "done\n", "")

    return run


TRAINING = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    assert torch.cuda.is_available() and torch.cuda.device_count() == 2
    device = torch.device("cuda", torch.cuda.current_device())

    images = torch.randn(96, 1, 8, 8)
    labels = (images.mean((1, 2, 3)) > 0).long()
    loader = DataLoader(TensorDataset(images, labels), batch_size=16, pin_memory=True)

    def make():
        features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        return nn.Sequential(features, nn.Flatten(), nn.Dropout(0.1), nn.Linear(288, 2))

    model = make().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
    copying = torch.cuda.Stream()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    losses = []

    def batches():
        for x, y in loader:
            assert x.is_pinned() and y.is_pinned()
            with torch.cuda.stream(copying):
                x, y = x.cuda(non_blocking=True), y.to(device, non_blocking=True)
            torch.cuda.current_stream().wait_stream(copying)
            x.record_stream(torch.cuda.current_stream())
            y.record_stream(torch.cuda.current_stream())
            yield x, y

    def train(epochs):
        for _ in range(epochs):
            for x, y in batches():
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast("cuda"):
                    output = model(x)
                    assert output.dtype is torch.float16
                    loss = nn.functional.cross_entropy(output, y)
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                losses.append(loss.item())

    begin.record()
    train(3)
    end.record()
    torch.cuda.synchronize()
    assert begin.elapsed_time(end) > 0
    assert sum(losses[-6:]) < sum(losses[:6]), losses

    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scaler": scaler.state_dict(),
        "rng": torch.cuda.get_rng_state(),
    }
    torch.save(state, "checkpoint.pt")
    train(1)
    expected = [parameter.detach().cpu() for parameter in model.parameters()]

    # Training that goes on from the checkpoint gives the same numbers, also on the other device.
    for where in ("cuda:0", "cuda:1"):
        with torch.cuda.device(where):
            device = torch.device(where)
            copying = torch.cuda.Stream()
            state = torch.load("checkpoint.pt", map_location=where)
            model = make().cuda()
            model.load_state_dict(state["model"])
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            optimizer.load_state_dict(state["optimizer"])
            scaler.load_state_dict(state["scaler"])
            torch.cuda.set_rng_state(state["rng"].cpu())
            train(1)
            assert {parameter.device for parameter in model.parameters()} == {device}
            assert all(torch.equal(a.detach().cpu(), b) for a, b in zip(model.parameters(), expected)), where
    assert torch.cuda.max_memory_allocated() > 0
"""


@pytest.mark.slow
@MODES
def test_a_training_script_that_says_only_cuda(succeeds: Callable[..., None], mode: str) -> None:
    succeeds(TRAINING, OPENREG_EXECUTION=mode)


DATA_PARALLEL = """
    import copy, warnings
    import torch
    from torch import nn

    warnings.filterwarnings("ignore", "PyTorch is not compiled with NCCL support")  # torch/cuda/nccl.py, is_available()
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
            self.register_buffer("scale", torch.full((3,), 2.0))
            self.seen = []

        def forward(self, x, factor=1.0):
            self.seen.append((x.device.index, len(x)))
            assert x.device == self.scale.device == self.layers[0].weight.device
            return self.layers(x) * self.scale * factor

    one = Model().double().cuda()  # so that rounding does not hide a wrong row
    two = nn.DataParallel(copy.deepcopy(one))
    assert two.device_ids == [0, 1]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (one, two)]
    for step in range(4):
        x, y = torch.randn(10, 6).double(), torch.randn(10, 3, device="cuda")
        outputs = []
        for model, optimizer in zip((one, two), optimizers):
            optimizer.zero_grad()
            output = model(x.cuda() if model is one or step % 2 else x, factor=0.5)
            assert output.device == torch.device("cuda:0")
            outputs.append(output)
            (output - y).pow(2).mean().backward()
            optimizer.step()
        # A row depends on no other row, but matrix products of different sizes may add in different orders.
        torch.testing.assert_close(*outputs)
    torch.testing.assert_close([*one.parameters()], [*two.module.parameters()])
    # Replicas share the list `seen`; each has half of the rows.
    assert sorted(two.module.seen) == [(0, 5)] * 4 + [(1, 5)] * 4, two.module.seen

    # The functions that DataParallel consists of, one by one.
    replicas = nn.parallel.replicate(one, [0, 1])
    assert [replica.scale.device.index for replica in replicas] == [0, 1]
    inputs = nn.parallel.scatter(torch.randn(4, 6).double(), [0, 1])
    outputs = nn.parallel.parallel_apply(replicas, inputs)
    gathered = nn.parallel.gather(outputs, 1)
    assert gathered.device == torch.device("cuda:1") and gathered.shape == (4, 3)
    assert nn.parallel.data_parallel(one, torch.randn(4, 6).double().cuda(), [0, 1]).shape == (4, 3)
    integers = nn.DataParallel(nn.Embedding(5, 4).cuda())
    assert integers(torch.arange(5, device="cuda")).shape == (5, 4)
"""


@pytest.mark.slow
@MODES
def test_data_parallel_on_two_devices_equals_one(succeeds: Callable[..., None], mode: str) -> None:
    succeeds(DATA_PARALLEL, OPENREG_EXECUTION=mode)


@pytest.mark.slow
def test_what_training_loops_use(succeeds: Callable[..., None]) -> None:
    succeeds(
        """
        import warnings
        import torch
        from torch import nn
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
        from torch.utils.checkpoint import checkpoint

        # torch/backends/cudnn/__init__.py, is_acceptable()
        warnings.filterwarnings("ignore", "PyTorch was compiled without cuDNN")
        torch.manual_seed(0)
        x = torch.randn(5, 2, 4)
        lstm = nn.LSTM(4, 3)
        packed = pack_padded_sequence(x, torch.tensor([5, 3]))
        expected, lengths = pad_packed_sequence(lstm(packed)[0])
        packed = pack_padded_sequence(x.cuda(), torch.tensor([5, 3]))
        assert packed.is_cuda and packed.batch_sizes.device.type == "cpu"
        result, lengths_too = pad_packed_sequence(lstm.cuda()(packed)[0])
        torch.testing.assert_close(result.cpu(), expected)  # the fused cell of the device rounds differently
        assert torch.equal(lengths, lengths_too)
        assert packed.cpu().cuda(1).data.device == torch.device("cuda:1")
        try:
            pack_padded_sequence(x.cuda(), torch.tensor([5, 3]).cuda())
            raise SystemExit("no error")
        except RuntimeError as error:
            assert str(error) == "'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor"

        # A checkpointed segment draws the same random numbers again.
        model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 1)).cuda()
        a = torch.randn(8, 4, device="cuda", requires_grad=True)
        grads = []
        def checkpointed(reentrant):
            return lambda a: checkpoint(model, a, use_reentrant=reentrant)

        for run in (model, checkpointed(False), checkpointed(True)):
            torch.cuda.manual_seed(3)
            run(a).sum().backward()
            grads.append(a.grad)
            a.grad = None
        assert torch.equal(grads[0], grads[1]) and torch.equal(grads[0], grads[2])

        state = torch.cuda.get_rng_state_all()
        with torch.random.fork_rng(devices=range(2)):
            torch.rand(3, device="cuda:0"), torch.rand(3, device="cuda:1")
        assert all(torch.equal(a, b) for a, b in zip(state, torch.cuda.get_rng_state_all()))
        """
    )


@pytest.mark.slow
def test_grad_scalers_skip_a_step_that_overflowed(succeeds: Callable[..., None]) -> None:
    succeeds(
        """
        import warnings
        import torch

        warnings.simplefilter("ignore", FutureWarning)  # PyTorch's own about torch.cuda.amp.GradScaler
        old, new = torch.cuda.amp.GradScaler, lambda **options: torch.amp.GradScaler("cuda", **options)
        for make in (lambda: old(init_scale=4.0), lambda: new(init_scale=4.0)):
            w = torch.nn.Parameter(torch.ones(2, device="cuda"))
            optimizer, scaler = torch.optim.SGD([w], lr=1.0), make()
            for value, expected, scale in [(1.0, 0.0, 4.0), (float("inf"), 0.0, 2.0), (-1.0, 1.0, 2.0)]:
                optimizer.zero_grad()
                scaler.scale((w * value).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
                assert w.tolist() == [expected] * 2 and scaler.get_scale() == scale, (w, scaler.get_scale())
            again = make()
            again.load_state_dict(scaler.state_dict())
            assert again.get_scale() == 2.0
        """
    )


@pytest.mark.slow
def test_optimizers_take_the_form_that_pytorch_chooses_for_cuda(succeeds: Callable[..., None]) -> None:
    # torch/optim/optimizer.py, _default_to_fused_or_foreach: foreach for tensors of these devices
    succeeds("""
        import copy, inspect, warnings
        import torch
        from torch.utils import _foreach_utils as kernels

        warnings.simplefilter("ignore")
        assert "cuda" in kernels._get_foreach_kernels_supported_devices()
        assert "cuda" in kernels._get_fused_kernels_supported_devices()
        called = []

        class Listen(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                called.append(str(func))
                return func(*args, **kwargs or {})

        torch.manual_seed(0)
        start = torch.nn.Linear(4, 4)

        def trained(optimizer, device, **options):
            model = copy.deepcopy(start).to(device)
            optimizer = optimizer(model.parameters(), **options)
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.ones(2, 4, device=device)).pow(2).sum().backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
            return [parameter.detach().cpu() for parameter in model.parameters()]

        classes = [value for value in vars(torch.optim).values()
                   if inspect.isclass(value) and value.__name__ not in ("Optimizer", "LBFGS", "SparseAdam", "Muon")]
        assert len(classes) >= 12
        for cls in classes:
            accepted = inspect.signature(cls).parameters
            for options in ({}, {"foreach": True}, {"foreach": False}, {"fused": True}, {"capturable": True},
                            {"foreach": True, "capturable": True}):
                if set(options) <= set(accepted):
                    called.clear()
                    with Listen():
                        result = trained(cls, "cuda", **options)
                    assert any("_foreach_norm" in name for name in called)
                    forms = [any(name.startswith(f"aten.{form}_") and "norm" not in name and "mul_.Tensor" not in name
                                 for name in called) for form in ("_foreach", "_fused")]
                    if "fused" in options:
                        assert forms[1], (cls, options, set(called))
                    elif options.get("foreach", True) and cls.__name__ != "Adafactor":
                        assert forms[0], (cls, options, set(called))
                    # The forms round in different orders, on the CPU too.
                    torch.testing.assert_close(result, trained(cls, "cpu"), msg=f"{cls} {options}")
    """)


def test_the_profiler_has_times_of_the_device(succeeds: Callable[..., None]) -> None:
    # torch/autograd/profiler.py: without CUPTI the times are CUDA events around each operator (KINETO_GPU_FALLBACK)
    succeeds("""
        import torch
        from torch.profiler import ProfilerActivity, profile

        a = torch.randn(256, 256, device="cuda")
        a @ a
        with torch.autograd.profiler.profile(use_device="cuda") as p:
            a @ a
        times = {event.key: event for event in p.key_averages()}
        assert times["aten::mm"].device_time_total > 0
        assert "CUDA time total" in p.key_averages().table()
        for activities in ([ProfilerActivity.CPU, ProfilerActivity.CUDA], None):
            with profile(activities=activities) as p:
                a @ a
            assert "aten::mm" in {event.key for event in p.key_averages()}
        p.export_chrome_trace("trace.json")
    """)


def test_the_demo_trains_on_the_device_by_this_name(run_python: Run) -> None:
    code = (
        "import runpy, sys; sys.argv[1:] = ['demo', '--help']; runpy.run_module('torch_openreg', run_name='__main__')"
    )
    shown = run_python(code, TORCH_OPENREG_AS="cuda", COLUMNS="100", status=0).stdout
    assert "the device to compare with the CPU (default: cuda)" in " ".join(shown.split())
