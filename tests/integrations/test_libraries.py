"""Libraries that work on the device without any setting: they use the device of the tensors and modules that they get.

Only ignite gets the device as an argument.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from comparison import DEVICE, assert_same
from libraries import REASON, devices_of, integers, state_of
from torch import Tensor, nn


def library(name: str) -> Any:
    """Imports a library, or skips the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=REASON)


def same_on_both_devices(run: Callable[[str], Any]) -> Any:
    """Runs ``run`` with the device and with "cpu". Asserts that both give the same bits, and returns the result."""
    result = run(DEVICE)
    assert_same(result, run("cpu"))
    return result


def classification() -> torch.utils.data.TensorDataset:
    x = integers(100, 64, 8).float() / 50 - 1
    return torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def test_einops() -> None:
    einops = library("einops")
    layers = library("einops.layers.torch")
    x = integers(100, 2, 3, 4).float()

    def run(device: str) -> list[Tensor]:
        y = x.to(device)
        return [
            einops.rearrange(y, "a b c -> (a c) b"),
            einops.reduce(y, "a b c -> b", "mean"),
            einops.repeat(y, "a b c -> a b c 2"),
            einops.einsum(y, y, "a b c, a d c -> a b d"),
            einops.pack([y, y[:, 0]], "a *")[0],
            layers.Rearrange("a b c -> c (a b)")(y),
        ]

    same_on_both_devices(run)


def test_torchmetrics() -> None:
    metrics = library("torchmetrics")
    scores, labels = integers(1000, 50, 5).float().softmax(1), integers(5, 50)
    images = [integers(9, 1, 3, 32, 32, seed=seed) / 9 for seed in range(2)]
    task = {"task": "multiclass", "num_classes": 5}
    cases: list[tuple[Callable[[], Any], tuple[Tensor, ...]]] = [
        (lambda: metrics.Accuracy(**task), (scores, labels)),
        (lambda: metrics.F1Score(**task, average="macro"), (scores, labels)),
        (lambda: metrics.AUROC(**task), (scores, labels)),
        (lambda: metrics.AveragePrecision(**task), (scores, labels)),
        (lambda: metrics.ConfusionMatrix(**task), (scores, labels)),
        (lambda: metrics.CalibrationError(**task), (scores, labels)),
        (lambda: metrics.MeanSquaredError(), (scores, scores * 0.9)),
        (lambda: metrics.SpearmanCorrCoef(), (scores[:, 0], scores[:, 1])),
        (lambda: metrics.text.Perplexity(), (integers(9, 2, 5, 7).float(), integers(7, 2, 5))),
        (lambda: metrics.image.StructuralSimilarityIndexMeasure(), tuple(images)),
    ]  # fmt: skip
    for make, arguments in cases:

        def run(device: str, make: Any = make, arguments: tuple[Tensor, ...] = arguments) -> Tensor:
            metric = make().to(device)
            for _ in range(2):
                metric.update(*[argument.to(device) for argument in arguments])
            return metric.compute()

        same_on_both_devices(run)


def test_peft(tmp_path: Path) -> None:
    """Trains and saves a LoRA adapter, loads it into a second model with equal weights, merges it, generates text."""
    peft, transformers = library("peft"), library("transformers")

    def base(device: str) -> nn.Module:
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        )  # fmt: skip
        return transformers.GPT2LMHeadModel(config).to(device)

    def run(device: str) -> list[Any]:
        config = peft.LoraConfig(r=4, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True)
        model = peft.get_peft_model(base(device), config)
        optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), 1e-2)
        ids, losses = integers(64, 4, 10).to(device), []
        for _ in range(5):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        assert losses[-1] < losses[0]
        model.save_pretrained(tmp_path / device)
        loaded = peft.PeftModel.from_pretrained(base(device), tmp_path / device)
        assert loaded.eval()(ids).logits.equal(model.eval()(ids).logits)
        merged = model.merge_and_unload()
        words = merged.generate(ids[:1], attention_mask=ids[:1] * 0 + 1, max_new_tokens=4, do_sample=False)
        return [losses, state_of(merged), words]

    same_on_both_devices(run)


def test_ignite() -> None:
    engine, metrics = library("ignite.engine"), library("ignite.metrics")

    def run(device: str) -> tuple[list[float], dict[str, float]]:
        model, losses = network().to(device), []
        loader = torch.utils.data.DataLoader(classification(), 8)
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        trainer = engine.create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss(), device=device)
        trainer.add_event_handler(engine.Events.ITERATION_COMPLETED, lambda e: losses.append(e.state.output))
        trainer.run(loader, 2)
        measures = {
            "accuracy": metrics.Accuracy(device=device),
            "loss": metrics.Loss(nn.CrossEntropyLoss(), device=device),
        }
        return losses, engine.create_supervised_evaluator(model, measures, device=device).run(loader).metrics

    losses, _ = same_on_both_devices(run)
    assert len(losses) == 16 and losses[-1] < losses[0]


def test_gpytorch() -> None:
    """An exact Gaussian process: Cholesky factors, solves, and their gradients."""
    gpytorch = library("gpytorch")

    class Process(gpytorch.models.ExactGP):
        def __init__(self, x: Tensor, y: Tensor, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.covariance = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

    def run(device: str) -> list[Tensor]:
        x = torch.linspace(0, 1, 30).to(device)
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = Process(x, torch.sin(x * 6), likelihood).to(device)
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        log_likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = -log_likelihood(model(x), torch.sin(x * 6))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        assert losses[-1] < losses[0]
        model.eval()
        with torch.no_grad():
            prediction = likelihood.eval()(model(torch.linspace(0, 1, 7).to(device)))
        return [*losses, prediction.mean, prediction.variance]

    same_on_both_devices(run)


def test_torch_geometric() -> None:
    """Message passing over batches of graphs: gather, scatter, and their gradients."""
    geometric, data = library("torch_geometric.nn"), library("torch_geometric.data")
    loaders = library("torch_geometric.loader")

    class Graphs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList(
                [geometric.GCNConv(4, 8), geometric.GATConv(8, 4, heads=2), geometric.SAGEConv(8, 8)]
            )
            self.head = nn.Linear(8, 2)

        def forward(self, batch: Any) -> Tensor:
            x = batch.x
            for layer in self.layers:
                x = layer(x, batch.edge_index).relu()
            return self.head(geometric.global_mean_pool(x, batch.batch))

    graphs = [
        data.Data(x=integers(9, 6, 4, seed=i) / 9, edge_index=integers(6, 2, 12, seed=i), y=torch.tensor([i % 2]))
        for i in range(16)
    ]

    def run(device: str) -> list[Any]:
        model = Graphs().to(device)
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        losses = []
        for batch in loaders.DataLoader(graphs, 4):
            batch = batch.to(device)
            loss = nn.functional.cross_entropy(model(batch), batch.y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return [*losses, state_of(model)]

    same_on_both_devices(run)


def test_diffusers() -> None:
    """A small diffusion model: a pipeline makes an image, and a training step computes gradients."""
    diffusers = library("diffusers")

    def unet(device: str) -> nn.Module:
        torch.manual_seed(0)
        return diffusers.UNet2DModel(
            sample_size=16, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16),
            norm_num_groups=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        ).to(device)  # fmt: skip

    def image(device: str) -> Tensor:
        pipeline = diffusers.DDPMPipeline(unet("cpu"), diffusers.DDPMScheduler(num_train_timesteps=20)).to(device)
        pipeline.set_progress_bar_config(disable=True)
        assert devices_of(pipeline.unet) == {str(torch.empty(0, device=device).device)}
        generator = torch.Generator(device).manual_seed(1)
        return torch.from_numpy(pipeline(num_inference_steps=3, generator=generator, output_type="np").images)

    assert image(DEVICE).equal(image("cpu"))

    def gradients(device: str) -> dict[str, Tensor]:
        model = unet(device)
        x, noise = integers(9, 2, 1, 16, 16) / 9, integers(9, 2, 1, 16, 16, seed=1) / 9
        noisy = diffusers.DDPMScheduler(num_train_timesteps=20).add_noise(x, noise, torch.tensor([3, 7]))
        model(noisy.to(device), torch.tensor([3, 7], device=device)).sample.sub(
            noise.to(device)
        ).square().mean().backward()
        return {name: p.grad.cpu() for name, p in model.named_parameters()}

    # Not equal bit for bit: on every device but the CPU, PyTorch's backward of group_norm first makes channels-last
    # tensors contiguous, so sums are added in another order.
    torch.testing.assert_close(gradients(DEVICE), gradients("cpu"))
