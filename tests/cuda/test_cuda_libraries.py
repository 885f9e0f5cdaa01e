"""Unchanged programs for "cuda", with TORCH_OPENREG_AS=cuda. Each has its own process, and the CPU is the reference."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from pathlib import Path
from typing import Any

import programs
import pytest
from cuda_builds import AS_CUDA
from libraries import IMPORTS, REASON

pytestmark = [AS_CUDA, pytest.mark.slow]

COMMON = """
import torch
torch.set_num_threads(1)

def integers(count, *shape, seed=0):
    return torch.randint(count, shape, generator=torch.Generator().manual_seed(seed))
"""


def cuda(folder: Path, program: str, *needed: str, devices: str = "0", **settings: Any) -> list[str]:
    """The lines that a program prints with the visible ``devices``. Fails the test if the program fails."""
    for name in needed:
        if importlib.util.find_spec(name) is None:
            pytest.skip(REASON)
    imports = next((IMPORTS[name] for name in needed if name in IMPORTS), ())
    settings = {"TORCH_OPENREG_AS": "cuda", "CUDA_VISIBLE_DEVICES": devices, "imports": imports, **settings}
    result = programs.python(COMMON + textwrap.dedent(program), cwd=folder, **settings, status=0)
    return result.stdout.splitlines()


# ---- transformers ----------------------------------------------------------------------------------------------------

TRAINER = """
import transformers

def gpt2():
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
    ))

rows = (integers(64, 256, 1) + 3 * torch.arange(12)) % 64
data = [{"input_ids": row, "labels": row} for row in rows]

def train(size, **options):
    model, dtypes = gpt2(), set()
    model.transformer.h[0].mlp.c_fc.register_forward_hook(lambda module, args, output: dtypes.add(output.dtype))
    arguments = transformers.TrainingArguments(
        output_dir=".", max_steps=12, per_device_train_batch_size=size, learning_rate=5e-3, logging_steps=1,
        report_to=[], disable_tqdm=True, seed=0, save_strategy="no", **options,
    )
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=data)
    trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    return losses, {str(p.device) for p in model.parameters()}, dtypes, arguments.n_gpu
"""


def test_trainer_in_float32_is_the_cpus(tmp_path: Path) -> None:
    program = f"""{TRAINER}
losses, devices, dtypes, count = train(16)
expected = train(16, use_cpu=True)
print(devices, dtypes, count, losses == expected[0], expected[1], losses[-1] < losses[0])
"""
    # Trainer prints the lines before the last one.
    result = cuda(tmp_path, program, "transformers", "accelerate")[-1]
    assert result == "{'cuda:0'} {torch.float32} 1 True {'cpu'} True"


def test_trainer_takes_every_visible_device(tmp_path: Path) -> None:
    program = f"""{TRAINER}
losses, devices, dtypes, count = train(8)
expected = train(16, use_cpu=True)[0]
apart = max(abs(a - b) for a, b in zip(losses, expected))
print(devices, dtypes, count, apart < 1e-5, losses[-1] < losses[0], torch.cuda.max_memory_allocated(1) > 0)
"""
    result = cuda(tmp_path, program, "transformers", "accelerate", devices="0,1")[-1]
    assert result == "{'cuda:0'} {torch.float32} 2 True True True"


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_trainer_in_mixed_precision(tmp_path: Path, precision: str) -> None:
    program = f"""{TRAINER}
losses, devices, dtypes, count = train(16, {precision}=True)
full = train(16)[0]
apart = max(abs(a - b) for a, b in zip(losses, full))
print(devices, dtypes, losses != full, apart < 0.1, losses[-1] < 0.9 * losses[0])
"""
    dtype = {"bf16": "bfloat16", "fp16": "float16"}[precision]
    result = cuda(tmp_path, program, "transformers", "accelerate", imports=())[-1]
    assert result == f"{{'cuda:0'}} {{torch.{dtype}}} True True True"


def test_generate_gives_the_cpus_words(tmp_path: Path) -> None:
    program = f"""{TRAINER}
for options in ({{"do_sample": False}}, {{"do_sample": True, "top_k": 20}}, {{"num_beams": 3}}):
    words = []
    for device in ("cuda", "cpu"):
        model = gpt2().eval().to(device)
        ids = torch.tensor([[1, 4, 7], [3, 2, 5]]).to(device)
        torch.manual_seed(1)
        words.append(model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, pad_token_id=0, **options
        ))
    print(words[0].device, words[0].tolist() == words[1].tolist())
loaded = gpt2()
loaded.save_pretrained("saved")
spread = transformers.GPT2LMHeadModel.from_pretrained("saved", device_map="auto")
print({{p.device.type for p in spread.parameters()}})
"""
    lines = cuda(tmp_path, program, "transformers", "accelerate", devices="0,1")
    assert lines == ["cuda:0 True"] * 3 + ["{'cuda'}"]


# ---- Lightning, accelerate, peft -------------------------------------------------------------------------------------

LIGHTNING = """
import lightning.pytorch as pl
from torch import nn

class Network(pl.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.losses, self.places = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)), [], set()

    def training_step(self, batch, index):
        output = self.layers(batch[0])
        self.places.add((str(output.device), output.dtype))
        loss = nn.functional.cross_entropy(output, batch[1])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)

x = integers(100, 64, 8).float() / 50 - 1
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long()), 8, pin_memory=True)

def fit(**options):
    trainer = pl.Trainer(
        max_epochs=3, logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        **options,
    )
    network = Network()
    trainer.fit(network, loader)
    return network
"""


def test_lightning_finds_the_gpu(tmp_path: Path) -> None:
    program = f"""{LIGHTNING}
found, auto, expected = fit(accelerator="gpu", devices=1), fit(devices=1), fit(accelerator="cpu")
print(found.places, found.losses == auto.losses == expected.losses, auto.places == found.places, expected.places)
"""
    assert cuda(tmp_path, program, "lightning") == ["{('cuda:0', torch.float32)} True True {('cpu', torch.float32)}"]


def test_lightning_in_mixed_precision(tmp_path: Path) -> None:
    program = f"""{LIGHTNING}
for precision in ("16-mixed", "bf16-mixed"):
    network = fit(accelerator="gpu", devices=1, precision=precision)
    print(network.places, sum(network.losses[-8:]) < sum(network.losses[:8]))
"""
    assert cuda(tmp_path, program, "lightning") == [
        f"{{('cuda:0', torch.{dtype})}} True" for dtype in ("float16", "bfloat16")
    ]


ACCELERATE = """
import accelerate
from torch import nn

def train(precision, **options):
    accelerator = accelerate.Accelerator(mixed_precision=precision, **options)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 2))
    x = integers(100, 64, 8).float() / 50 - 1
    data = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters(), 1e-2), torch.utils.data.DataLoader(data, 8)
    )
    losses, dtypes = [], set()
    for _ in range(4):
        for x, y in loader:
            with accelerator.autocast():
                output = model[0](x)
                dtypes.add(output.dtype)
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    scaler = None if accelerator.scaler is None else type(accelerator.scaler).__name__
    return str(accelerator.device), dtypes, scaler, losses
"""


def test_accelerate_chooses_cuda_and_takes_float16(tmp_path: Path) -> None:
    program = f"""{ACCELERATE}
half = train("fp16")
print(half[:3], half[3][-1] < half[3][0])
"""
    assert cuda(tmp_path, program, "accelerate") == ["('cuda', {torch.float16}, 'GradScaler') True"]


def test_accelerate_in_float32_is_the_cpus(tmp_path: Path) -> None:
    program = f"""{ACCELERATE}
print(train("no", cpu=CPU))
"""
    (here,), (there,) = (cuda(tmp_path, program.replace("CPU", cpu), "accelerate") for cpu in ("False", "True"))
    assert here.startswith("('cuda', {torch.float32}, None, [") and there.startswith("('cpu', ")
    assert here.partition("[")[2] == there.partition("[")[2]


def test_peft_adapters_train_as_on_the_cpu(tmp_path: Path) -> None:
    program = f"""{TRAINER}
import peft
ends = []
for device in ("cuda", "cpu"):
    model = gpt2()
    torch.manual_seed(0)
    config = peft.LoraConfig(target_modules=["c_attn"], init_lora_weights=False, fan_in_fan_out=True, lora_dropout=0)
    model = peft.get_peft_model(model, config).to(device)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2)
    losses = []
    for _ in range(5):
        ids = rows[:8].to(device)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    ends.append((losses, model.merge_and_unload()(ids).logits.cpu()))
print(ends[0][0] == ends[1][0], losses[-1] < losses[0], ends[0][1].equal(ends[1][1]))
"""
    assert cuda(tmp_path, program, "transformers", "peft") == ["True True True"]


# ---- timm ------------------------------------------------------------------------------------------------------------


def test_timm_models_train_as_on_the_cpu(tmp_path: Path) -> None:
    apart = Path(sys.prefix) / "timm"
    if not apart.exists():
        pytest.skip("needs timm in a folder of the environment: run `make test`")
    program = """
    import timm, timm.optim, timm.utils
    images, labels = integers(256, 4, 3, 32, 32).float() / 128 - 1, integers(10, 4)
    for name, options in (
        ("resnet10t", {}),
        ("vit_tiny_patch16_224", {"img_size": 32, "depth": 2}),
        ("convnext_atto", {"depths": (1, 1, 1, 1)}),
    ):
        results = []
        for device in ("cuda", "cpu"):
            torch.manual_seed(0)
            model = timm.create_model(name, num_classes=10, **options).to(device)
            average = timm.utils.ModelEmaV3(model)
            optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3)
            losses = []
            for _ in range(3):
                loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                average.update(model)
                losses.append(loss.item())
            results.append((losses, next(average.parameters()).detach().cpu()))
        print(name, results[0][0] == results[1][0], losses[-1] < losses[0], results[0][1].equal(results[1][1]))
    """
    assert cuda(tmp_path, program, PYTHONPATH=str(apart)) == [
        f"{name} True True True" for name in ("resnet10t", "vit_tiny_patch16_224", "convnext_atto")
    ]


# ---- safetensors, torchmetrics, torch-geometric ----------------------------------------------------------------------


def test_safetensors_loads_onto_cuda_by_name_and_index(tmp_path: Path) -> None:
    program = """
    import safetensors, safetensors.torch as files
    tensors = {"a": torch.arange(12.0).view(3, 4), "b": torch.arange(5).bfloat16(), "empty": torch.empty(0, 3)}
    files.save_file({name: value.cuda() for name, value in tensors.items()}, "x")
    for device, place in (("cuda", "cuda:0"), ("cuda:1", "cuda:1"), (1, "cuda:1")):
        loaded = files.load_file("x", device=device)
        print({str(value.device) for value in loaded.values()} == {place},
              all(loaded[name].cpu().equal(value) for name, value in tensors.items()))
    with safetensors.safe_open("x", "pt", device="cuda:1") as file:
        part = file.get_slice("a")[1:, :2]
    print(part.device, part.tolist())
    """
    assert cuda(tmp_path, program, "safetensors", devices="0,1") == [
        *["True True"] * 3,
        "cuda:1 [[4.0, 5.0], [8.0, 9.0]]",
    ]


def test_torchmetrics_counts_on_cuda(tmp_path: Path) -> None:
    program = """
    import torchmetrics
    values = {}
    for device in ("cuda", "cpu"):
        metrics = torchmetrics.MetricCollection([
            torchmetrics.Accuracy("multiclass", num_classes=5), torchmetrics.F1Score("multiclass", num_classes=5),
            torchmetrics.AUROC("multiclass", num_classes=5), torchmetrics.ConfusionMatrix("multiclass", num_classes=5),
        ]).to(device)
        for seed in range(3):
            scores = integers(1000, 32, 5, seed=seed).float().softmax(1).to(device)
            metrics.update(scores, integers(5, 32, seed=seed + 9).to(device))
        values[device] = metrics.compute()
    print({str(v.device) for v in values["cuda"].values()},
          all(v.cpu().equal(values["cpu"][name]) for name, v in values["cuda"].items()), len(values["cuda"]))
    """
    assert cuda(tmp_path, program, "torchmetrics") == ["{'cuda:0'} True 4"]


def test_a_graph_network_trains_as_on_the_cpu(tmp_path: Path) -> None:
    program = """
    import torch_geometric as geometric
    from torch_geometric.nn import GATConv, GCNConv
    graph = geometric.data.Data(integers(100, 20, 8).float() / 50, integers(20, 2, 60), y=integers(3, 20))
    results = []
    for device in ("cuda", "cpu"):
        torch.manual_seed(0)
        layers = torch.nn.ModuleList([GCNConv(8, 16), GATConv(16, 3)]).to(device)
        data = geometric.transforms.ToUndirected()(graph.clone()).to(device)
        optimizer, losses = torch.optim.Adam(layers.parameters(), 1e-2), []
        for _ in range(5):
            output = layers[1](layers[0](data.x, data.edge_index).relu(), data.edge_index)
            loss = torch.nn.functional.cross_entropy(output, data.y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        results.append((losses, data.is_cuda))
    print(results[0][0] == results[1][0], results[0][0][-1] < results[0][0][0], results[0][1], results[1][1])
    """
    assert cuda(tmp_path, program, "torch_geometric") == ["True True True False"]
