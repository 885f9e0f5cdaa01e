"""Hugging Face accelerate, unchanged: its training loop, precisions, batch sizes, checkpoints and spread models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from comparison import DEVICE, DEVICE_0, DEVICE_1, assert_same
from libraries import REASON, accelerate_on, devices_of, integers, state_of
from programs import Run
from torch import Tensor, nn

accelerate = pytest.importorskip("accelerate", reason=REASON)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 2))


def batches() -> Any:
    x = integers(100, 64, 8).float() / 50 - 1
    data = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
    return torch.utils.data.DataLoader(data, 8, shuffle=True)


def loop(device: str, steps: int = 1, clip: float | None = None, precision: str = "no") -> tuple[list[float], Any]:
    """The loop of accelerate's documentation. Returns the losses and the model's final state."""
    with accelerate_on(device):
        accelerator = accelerate.Accelerator(gradient_accumulation_steps=steps, mixed_precision=precision)
        accelerate.utils.set_seed(0)
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 32)
        model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, batches(), scheduler)
        losses = []
        for _ in range(4):
            for x, y in loader:
                assert x.device == y.device == torch.empty(0, device=device).device
                with accelerator.accumulate(model):
                    with accelerator.autocast():
                        loss = nn.functional.cross_entropy(model(x), y)
                    accelerator.backward(loss)
                    if clip is not None and accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), clip)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                losses.append(accelerator.gather(loss).item())
        return losses, state_of(accelerator.unwrap_model(model))


@pytest.mark.parametrize("options", [{}, {"steps": 4, "clip": 0.5}], ids=str)
def test_the_training_loop_is_the_cpus(options: dict[str, Any]) -> None:
    here, there = loop(DEVICE, **options), loop("cpu", **options)
    assert here[0] == there[0] and here[0][-1] < here[0][0]
    assert_same(here[1], there[1])


def test_bfloat16_trains_near_float32() -> None:
    low, full = loop(DEVICE, precision="bf16")[0], loop(DEVICE)[0]
    assert low != full and sum(low[-8:]) < 0.8 * sum(low[:8])
    assert max(abs(a - b) for a, b in zip(low, full, strict=True)) < 0.05


def test_float16_is_refused_by_the_devices_name_and_works_with_pytorchs_own() -> None:
    sentence = rf"^fp16 mixed precision requires a device in \(.*\) \(not '{DEVICE}'\)\.$"
    with accelerate_on(DEVICE), pytest.raises(ValueError, match=sentence):
        accelerate.Accelerator(mixed_precision="fp16")
    with accelerate_on(DEVICE):
        accelerator = accelerate.Accelerator()
        accelerate.utils.set_seed(0)
        model = network()
        model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1), batches())
        scaler, losses = torch.amp.GradScaler(DEVICE), []
        for _ in range(4):
            for x, y in loader:
                with torch.autocast(DEVICE, dtype=torch.float16):
                    output = model(x)
                    loss = nn.functional.cross_entropy(output, y)
                accelerator.backward(scaler.scale(loss))
                scaler.step(optimizer.optimizer)
                scaler.update()
                optimizer.zero_grad()
                losses.append(loss.item())
        assert output.dtype is torch.float16 and sum(losses[-8:]) < 0.8 * sum(losses[:8])


PROGRAM = """
import torch
from accelerate import Accelerator
from accelerate.utils import find_executable_batch_size

torch.set_num_threads(1)
accelerator = Accelerator()
tried = []

@find_executable_batch_size(starting_batch_size=8192)
def train(batch_size):
    accelerator.free_memory()
    tried.append(batch_size)
    model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    for _ in range(2):
        accelerator.backward(model(torch.ones(batch_size, 256, device=accelerator.device)).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    return batch_size

found = train()
peak = torch.accelerator.max_memory_allocated()
print(accelerator.device.type, tried[0], len(tried) > 1, found == tried[-1] < 8192, peak <= 32 << 20)
"""


def test_the_batch_size_shrinks_until_it_fits(run_python: Run) -> None:
    result = run_python(PROGRAM, ACCELERATE_TORCH_DEVICE=DEVICE, OPENREG_DEVICE_MEMORY="32M")
    assert result.stdout == f"{DEVICE} 8192 True True True\n", result.stderr


def test_a_saved_state_comes_back(tmp_path: Path) -> None:
    with accelerate_on(DEVICE):
        accelerator = accelerate.Accelerator()
        model = network()
        model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters()))

        def step() -> None:
            accelerator.backward(model(torch.ones(2, 8, device=accelerator.device)).square().sum())
            optimizer.step()
            optimizer.zero_grad()

        step()
        accelerator.save_state(str(tmp_path))
        step()
        expected = state_of(model)
        for parameter in model.parameters():
            parameter.data.zero_()
        accelerator.load_state(str(tmp_path))
        step()
        assert devices_of(model) == {DEVICE_0}
        assert_same(state_of(model), {name: value.cpu() for name, value in expected.items()})


def test_a_model_that_is_spread_over_two_devices_computes_as_on_the_cpu() -> None:
    model, x = network().eval(), torch.ones(3, 8)
    expected = model(x)
    model = accelerate.dispatch_model(model, {"0": 0, "1": DEVICE_0, "2": DEVICE_1, "3": 1})
    assert devices_of(model) == {DEVICE_0, DEVICE_1}
    assert_same(model(x.to(DEVICE)), expected)


def test_weights_stay_on_the_cpu_and_visit_the_device() -> None:
    model, x = network().eval(), torch.ones(3, 8)
    expected, seen = model(x), set()

    def look(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        seen.add(str(output.device))

    model[0].register_forward_hook(look)
    accelerate.cpu_offload(model, torch.device(DEVICE_1))
    assert_same(model(x.to(DEVICE_1)), expected)
    assert seen == {DEVICE_1} and devices_of(model) == {"meta"}


def test_only_devices_known_by_name_are_counted_or_chosen() -> None:
    assert list(accelerate.utils.get_max_memory()) == ["cpu"]
    assert accelerate.PartialState().device == torch.device("cpu")
    with accelerate_on(DEVICE):
        assert accelerate.PartialState().device == torch.device(DEVICE)
