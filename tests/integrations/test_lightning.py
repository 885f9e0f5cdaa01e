"""PyTorch Lightning: its trainer knows four accelerators by name and takes any other as an object."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from comparison import DEVICE, DEVICE_1, assert_same
from libraries import REASON, integers, state_of
from torch import Tensor, nn

pl = pytest.importorskip("lightning.pytorch", reason=REASON)
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class AnyAccelerator(pl.accelerators.Accelerator):
    """PyTorch's accelerator, whichever it is. Lightning's own classes differ from this one in the names only."""

    def setup_device(self, device: torch.device) -> None:
        torch.accelerator.set_device_index(device)

    def teardown(self) -> None:
        torch.accelerator.empty_cache()

    @staticmethod
    def parse_devices(devices: Any) -> Any:
        return devices

    @staticmethod
    def get_parallel_devices(devices: int) -> list[torch.device]:
        return [torch.device(index) for index in range(devices)]

    @staticmethod
    def auto_device_count() -> int:
        return 1

    @staticmethod
    def is_available() -> bool:
        return torch.accelerator.is_available()

    @staticmethod
    def name() -> str:
        return "any"


class Network(pl.LightningModule):
    """A module as a user of Lightning writes it, which also notes what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        self.losses: list[float] = []
        self.places: set[tuple[str, torch.dtype]] = set()

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        output = self.layers(batch[0])
        loss = nn.functional.cross_entropy(output, batch[1])
        self.losses.append(loss.item())
        self.places.add((str(output.device), output.dtype))
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        self.log("validation", nn.functional.cross_entropy(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 1e-2)


def fit(folder: Path, **options: Any) -> tuple[Any, Network]:
    x = integers(100, 64, 8).float() / 50 - 1
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long()), 8)
    trainer = pl.Trainer(
        max_epochs=2, logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=folder, **options,
    )  # fmt: skip
    network = Network()
    current = torch.accelerator.current_device_index()
    try:
        trainer.fit(network, loader, loader)
    finally:
        torch.accelerator.set_device_index(current)
    return trainer, network


def single_device(**options: Any) -> dict[str, Any]:
    strategy = pl.strategies.SingleDeviceStrategy(DEVICE_1)
    return {"accelerator": AnyAccelerator(), "devices": 1, "strategy": strategy, **options}


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:lightning")


def test_the_trainer_does_what_it_does_on_the_cpu(tmp_path: Path) -> None:
    options = {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5}
    (here, network), (there, expected) = (
        fit(tmp_path, **place, **options) for place in (single_device(), {"accelerator": "cpu"})
    )
    assert network.places == {(DEVICE_1, torch.float32)} and len(network.losses) == 16
    assert network.losses == expected.losses
    assert here.callback_metrics == there.callback_metrics and here.callback_metrics.keys() == {"loss", "validation"}
    assert_same(state_of(network), state_of(expected), device="cpu")  # Lightning leaves the model on the CPU

    here.save_checkpoint(tmp_path / "checkpoint")
    loaded = Network.load_from_checkpoint(tmp_path / "checkpoint", map_location=DEVICE)
    assert_same(state_of(loaded), state_of(expected))


@pytest.mark.parametrize(("precision", "dtype"), [("bf16-mixed", torch.bfloat16), ("16-mixed", torch.float16)])
def test_mixed_precision_comes_as_a_plugin(precision: str, dtype: torch.dtype, tmp_path: Path) -> None:
    scaler = torch.amp.GradScaler(DEVICE) if dtype is torch.float16 else None
    plugin = pl.plugins.MixedPrecision(precision, DEVICE, scaler)
    network = fit(tmp_path, **single_device(plugins=[plugin]))[1]
    assert network.places == {(DEVICE_1, dtype)}
    assert sum(network.losses[-4:]) < sum(network.losses[:4])


def test_the_devices_name_is_refused_and_auto_is_the_cpu(tmp_path: Path) -> None:
    sentence = f"^You selected an invalid accelerator name: `accelerator='{DEVICE}'`. Available names are: auto, "
    with pytest.raises(ValueError, match=sentence):
        pl.Trainer(accelerator=DEVICE)
    assert fit(tmp_path)[1].places == {("cpu", torch.float32)}
