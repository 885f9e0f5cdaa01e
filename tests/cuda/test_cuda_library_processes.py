"""Unchanged libraries train in several processes with TORCH_OPENREG_AS=cuda: they find "nccl" by themselves.

The processes have the environment that torchrun gives them, but are forks of a server that has imported the library."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from cuda_builds import AS_CUDA
from libraries import IMPORTS, REASON
from test_cuda_distributed import END, SETUP, TRAINED, start_two

pytestmark = [AS_CUDA, pytest.mark.slow]

LIBRARIES = {
    "accelerate": """
import accelerate
accelerator = accelerate.Accelerator()
assert (accelerator.distributed_type, accelerator.device.type) == ("MULTI_GPU", "cuda"), accelerator.distributed_type
network = accelerator.prepare(model())
found = train(network, x[rank], y[rank])
""",
    "transformers": """
import transformers
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = model()
    def forward(self, x, labels):
        return {"loss": nn.functional.mse_loss(self.layers(x), labels)}
items = [{"x": a, "labels": b} for a, b in zip(x.cpu().flatten(0, 1), y.cpu().flatten(0, 1))]
arguments = transformers.TrainingArguments(
    output_dir=".", max_steps=5, per_device_train_batch_size=4, learning_rate=0.1, optim="sgd", report_to=[],
    lr_scheduler_type="constant", max_grad_norm=0, disable_tqdm=True, save_strategy="no", logging_strategy="no",
)
assert (arguments.parallel_mode.value, arguments.n_gpu) == ("distributed", 1)
network = Network()
transformers.utils.logging.set_verbosity_error()
transformers.Trainer(model=network, args=arguments, train_dataset=items).train()
found = [p.detach() for p in network.parameters()]
""",
    "lightning": """
import lightning.pytorch as pl
class Network(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = model()
    def training_step(self, batch, number):
        return nn.functional.mse_loss(self.layers(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
network = Network()
items = torch.utils.data.TensorDataset(x[rank].cpu(), y[rank].cpu())
trainer = pl.Trainer(
    accelerator="gpu", devices=2, strategy="ddp", max_epochs=5, use_distributed_sampler=False, logger=False,
    enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
)
trainer.fit(network, torch.utils.data.DataLoader(items, 4))
found = [p.detach().cuda() for p in network.parameters()]
""",
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_trains_in_two_processes_as_in_one(tmp_path: Path, library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(REASON)
    lines = start_two(tmp_path, SETUP + LIBRARIES[library] + END, imports=IMPORTS[library])
    assert lines[-1] == TRAINED  # the lines before come from the libraries
