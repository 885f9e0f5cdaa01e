"""Compares answers of ``torch-openreg dry`` with published memory and speed of whole training runs.

    python -m benchmarks.dry_published [--torchtitan FOLDER]

- BERT-large with the Trainer of transformers on a V100 of 16 GB: huggingface/transformers,
  docs/source/en/perf_train_gpu_one.mdx of 2022. Its numbers are the memory that nvidia-smi shows, of which 1343 MiB is
  the context, and samples per second. Attention and AdamW are as they were then: single operators, one tensor at a time.
- Llama 3.1 8B with torchtitan's own train.py on H100 of 96 GB: pytorch/torchtitan,
  benchmarks/llama3_h100_202412_torchtitan.md, the tables 1 and 3 without torch.compile. Its numbers are the reserved
  memory and tokens per second of a GPU. FOLDER is a checkout of v0.2.2. That version asks for triton at import.

The list was committed before the first run of this program. The models' numbers were not changed afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

V100 = {
    "like": ["cuda-v100"],
    "properties": {"context_memory": {"value": 1343 << 20, "source": "perf_train_gpu_one.mdx"}},
}
H100 = {
    "like": ["cuda-h100"],
    "properties": {"total_memory": {"value": 95 << 30, "source": "llama3_h100_202412_torchtitan.md: 96 GB"}},
    "rates": {"memory_bandwidth": {"value": 2.4e12, "source": "llama3_h100_202412_torchtitan.md: HBM2e"}},
}
LITTLE = "per_device_train_batch_size=1 gradient_accumulation_steps=4 gradient_checkpointing=True"
BERT = {  # arguments of TrainingArguments -> the published MiB with the context, and samples per second
    "per_device_train_batch_size=4": (14949, 8.86),
    "per_device_train_batch_size=1 gradient_accumulation_steps=4": (8681, 7.75),
    LITTLE: (6775, 5.99),
    "per_device_train_batch_size=4 fp16=True": (13939, 18.64),
    f"{LITTLE} fp16=True": (7275, 10.09),
    "per_device_train_batch_size=4 optim=adafactor": (12295, 7.96),
    f"{LITTLE} fp16=True optim=adafactor": (4847, 9.06),
}
LLAMA = {8: (82.4, 5762), 128: (67.0, 5605)}  # ranks -> the published GiB, and tokens per second of a GPU
BATCH, LENGTH = 2, 8192  # of Llama, for each GPU
STEPS = 3


def train_bert(arguments: list[str]) -> None:
    """Runs within dry execution, as the page does."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    config = BertConfig(
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        attn_implementation="eager",
    )
    model = BertForSequenceClassification(config)
    values = {name: json.loads(text.lower()) if name != "optim" else text for name, text in _pairs(arguments)}
    optimizer = None if "optim" in values else torch.optim.AdamW(model.parameters(), lr=5e-5, foreach=False)
    item = {"input_ids": torch.randint(100, 30000, (512,)), "labels": torch.tensor(0)}
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(folder, max_steps=STEPS, report_to="none", save_strategy="no", **values)
        Trainer(model, options, train_dataset=[item] * 64, optimizers=(optimizer, None)).train()


def _pairs(arguments: list[str]) -> list[tuple[str, str]]:
    return [(name, text) for name, _, text in (each.partition("=") for each in arguments)]


def ask(model: dict[str, Any], command: list[str], folder: str | None = None) -> dict[str, Any]:
    """The answer of the command. ``folder``: where the program runs."""
    with tempfile.TemporaryDirectory() as place:
        card, answer = Path(place, "card.json"), Path(place, "answer.json")
        card.write_text(json.dumps(model))
        dry = [
            sys.executable,
            "-m",
            "torch_openreg",
            "dry",
            "--as",
            "cuda",
            "--model",
            str(card),
            "--json",
            str(answer),
        ]
        done = subprocess.run(dry + command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return json.loads(answer.read_text())


def llama(ranks: int, folder: str) -> dict[str, Any]:
    config = "torchtitan/models/llama3/train_configs/llama3_8b.toml"
    arguments = {
        "job.config_file": config,
        "model.hf_assets_path": "tests/assets/tokenizer",
        "training.dataset": "c4_test",
        "training.steps": STEPS,
        "training.local_batch_size": BATCH,
    }
    options = [text for name, value in arguments.items() for text in (f"--{name}", str(value))]
    options += ["--profiling.no-enable_profiling", "--metrics.no-enable_tensorboard"]
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    return ask(H100, ["--world", str(ranks), "torchtitan/train.py", *options], folder)


def show(name: str, published: tuple[float, float], found: tuple[float, float]) -> None:
    errors = (found[0] / published[0] - 1, published[1] / found[1] - 1)
    numbers = f"{published[0]:>10.1f}{found[0]:>10.1f}{errors[0]:>+8.1%}{published[1]:>10.5g}{found[1]:>10.4g}{errors[1]:>+8.0%}"
    print(f"{name:<100}{numbers}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--torchtitan", metavar="FOLDER", help="a checkout of torchtitan v0.2.2")
    folder = parser.parse_args().torchtitan
    print(f"{'':<100}{'GiB':>10}{'dry':>10}{'':>8}{'a second':>10}{'dry':>10}{'of time':>8}")
    for text, (mebibytes, rate) in BERT.items():
        answer = ask(V100, [__file__, *text.split()])
        found = (answer["peak_reserved"] / 2**30, 4 / answer["step_seconds"])
        show(f"BERT-large: {text}", ((mebibytes - 1343) / 1024, rate), found)
    for ranks, published in LLAMA.items() if folder else ():
        answer = llama(ranks, os.path.abspath(folder))
        show(
            f"Llama 3.1 8B: FSDP, {ranks} ranks",
            published,
            (answer["peak_reserved"] / 2**30, BATCH * LENGTH / answer["step_seconds"]),
        )


if __name__ == "__main__":
    train_bert(sys.argv[1:]) if "=" in "".join(sys.argv[1:2]) else main()
