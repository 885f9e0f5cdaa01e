"""Tests of the unchanged library transformers: models, generation and Trainer. accelerate chooses Trainer's device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from comparison import DEVICE, DEVICE_0, DEVICE_1, assert_same
from libraries import REASON, accelerate_on, devices_of, integers, state_of
from torch import Tensor, nn

transformers = pytest.importorskip("transformers", reason=REASON)
pytest.importorskip("accelerate", reason=REASON)


def gpt2(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0,
            resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
        )
    )  # fmt: skip


def bert(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=32, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        )
    )  # fmt: skip


def sentences() -> list[dict[str, Tensor]]:
    """Rows of tokens. Each token is its predecessor plus 3, modulo 64. A language model can learn this rule."""
    rows = (integers(64, 256, 1) + 3 * torch.arange(12)) % 64
    return [{"input_ids": row, "labels": row} for row in rows]


def questions() -> list[dict[str, Any]]:
    """Rows of random tokens. The label says whether the first token is below 32. A classifier can learn this rule."""
    rows = integers(64, 256, 12)
    return [{"input_ids": row, "attention_mask": torch.ones(12), "labels": int(row[0] < 32)} for row in rows]


def arguments(folder: Path, **others: Any) -> Any:
    return transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=16, learning_rate=5e-3, logging_steps=1, report_to=[],
        disable_tqdm=True, seed=0, **{"save_strategy": "no", **others},
    )  # fmt: skip


class Training:
    """Trains with Trainer as its documentation shows, and keeps its losses, evaluation, predictions and model."""

    def __init__(self, device: str, model: nn.Module, data: list[Any], folder: Path, steps: int, **others: Any) -> None:
        resume = others.pop("resume_from_checkpoint", None)
        with accelerate_on(device):
            options = arguments(folder, max_steps=steps, **others)
            trainer = transformers.Trainer(model=model, args=options, train_dataset=data, eval_dataset=data[:16])
            trainer.train(resume_from_checkpoint=resume)
            self.losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
            self.evaluation = trainer.evaluate()["eval_loss"]
            self.predictions = torch.from_numpy(trainer.predict(data[:16]).predictions)
            trainer.save_model(str(folder / device))
            self.model = model


MODELS = {"GPT-2": (gpt2, sentences), "BERT": (bert, questions)}


@pytest.mark.parametrize(("make", "data"), MODELS.values(), ids=MODELS.keys())
def test_trainer_trains_saves_and_reloads_as_on_the_cpu(
    make: Callable[[], nn.Module], data: Any, tmp_path: Path
) -> None:
    here, there = (Training(device, make(), data(), tmp_path, 20) for device in (DEVICE, "cpu"))
    assert devices_of(here.model) == {DEVICE_0} and devices_of(there.model) == {"cpu"}
    assert len(here.losses) == 20 and here.losses == there.losses and here.losses[-1] < here.losses[0]
    assert_same(state_of(here.model), state_of(there.model))
    assert here.evaluation == there.evaluation and here.predictions.equal(there.predictions)

    ids = integers(64, 2, 5)
    for location in (DEVICE, DEVICE_1, "cpu"):
        loaded = type(here.model).from_pretrained(tmp_path / DEVICE, device_map=location)
        assert devices_of(loaded) == {str(torch.empty(0, device=location).device)}
        assert_same(loaded(ids.to(location)).logits, there.model.eval()(ids).logits, device=location)


def test_a_checkpoint_continues_the_run_to_the_same_end(tmp_path: Path) -> None:
    options = {"save_strategy": "steps", "save_steps": 4}
    whole = Training(DEVICE, gpt2(), sentences(), tmp_path, 8, **options)
    checkpoint = str(tmp_path / "checkpoint-4")
    continued = Training(DEVICE, gpt2(), sentences(), tmp_path, 8, resume_from_checkpoint=checkpoint)
    assert devices_of(continued.model) == {DEVICE_0} and len(whole.losses) == 8
    assert continued.losses == whole.losses  # the checkpoint holds four losses; four more are computed
    assert_same(state_of(continued.model), {name: value.cpu() for name, value in state_of(whole.model).items()})


@pytest.mark.parametrize(("make", "data"), MODELS.values(), ids=MODELS.keys())
def test_with_dropout_training_converges_alike(make: Callable[[float], nn.Module], data: Any, tmp_path: Path) -> None:
    """The losses differ, because the random numbers do.

    On the CPU one generator draws the order of the data and the dropout masks. The device draws the dropout masks with
    a generator of its own.
    """
    here, there = (Training(device, make(0.1), data(), tmp_path, 40).losses for device in (DEVICE, "cpu"))
    assert here != there
    start, ends = there[0], [sum(losses[-8:]) / 8 for losses in (here, there)]
    assert max(ends) < 0.8 * start and abs(ends[0] - ends[1]) < 0.1 * start


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_accumulation_steps": 2, "max_grad_norm": 0.1},
        {"gradient_checkpointing": True},
        {"optim": "adamw_torch_fused"},
        {"optim": "adafactor"},
        {"dataloader_num_workers": 1, "dataloader_pin_memory": True},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")
def test_trainer_trains_as_on_the_cpu_with_each_option(options: dict[str, Any], tmp_path: Path) -> None:
    here, there = (Training(device, bert(), questions(), tmp_path, 3, **options) for device in (DEVICE, "cpu"))
    assert here.losses == there.losses
    assert_same(state_of(here.model), state_of(there.model))


def test_trainer_refuses_bfloat16_by_the_devices_name_and_takes_it_from_accelerate(tmp_path: Path) -> None:
    with accelerate_on(DEVICE), pytest.raises(ValueError, match="^Your setup doesn't support bf16/gpu."):
        arguments(tmp_path, bf16=True)
    losses, dtypes = [], []
    for precision in ("no", "bf16"):
        with accelerate_on(DEVICE, ACCELERATE_MIXED_PRECISION=precision):
            model = bert()
            model.classifier.register_forward_hook(lambda module, args, output: dtypes.append(output.dtype))
            trainer = transformers.Trainer(
                model=model, args=arguments(tmp_path, max_steps=3), train_dataset=questions()
            )
            losses.append(trainer.train().training_loss)
        assert devices_of(model) == {DEVICE_0}
    assert dtypes == [torch.float32] * 3 + [torch.bfloat16] * 3
    assert 0 < abs(losses[0] - losses[1]) < 0.01


# ---- Generation ------------------------------------------------------------------------------------------------------

GENERATION: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "top_k": 20, "temperature": 0.7},
    "beams": {"num_beams": 3},
    "static cache": {"do_sample": False, "cache_implementation": "static"},
    "without cache": {"do_sample": False, "use_cache": False},
}


def llama() -> nn.Module:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2,
        )
    )  # fmt: skip


def t5() -> nn.Module:
    torch.manual_seed(0)
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, decoder_start_token_id=0
        )
    )


@pytest.mark.parametrize("options", GENERATION.values(), ids=GENERATION.keys())
@pytest.mark.parametrize("make", [gpt2, llama, t5])
def test_generation_gives_the_cpus_words(make: Callable[[], nn.Module], options: dict[str, Any]) -> None:
    def run(device: str) -> Tensor:
        model = make().eval().to(device)
        ids = torch.tensor([[1, 4, 7], [0, 2, 5]], device=device)
        mask = (ids != 0).long()
        torch.manual_seed(1)
        return model.generate(ids, attention_mask=mask, max_new_tokens=8, pad_token_id=0, **options)

    assert_same(run(DEVICE), run("cpu"))


def test_an_image_classifier_computes_as_on_the_cpu() -> None:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, image_size=32, patch_size=8
    )
    model, images = transformers.ViTForImageClassification(config).eval(), torch.rand(2, 3, 32, 32)
    expected = model(images).logits
    assert_same(model.to(DEVICE)(images.to(DEVICE)).logits, expected)


def test_device_map_auto_knows_only_some_devices_by_name(tmp_path: Path) -> None:
    gpt2().save_pretrained(tmp_path)
    assert devices_of(transformers.GPT2LMHeadModel.from_pretrained(tmp_path, device_map="auto")) == {"cpu"}
    spread = {"transformer.wte": 0, "transformer.wpe": 0, "transformer.h.0": 0, "transformer.h.1": 1,
              "transformer.ln_f": 1, "lm_head": 0}  # fmt: skip
    model = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, device_map=spread).eval()
    assert devices_of(model) == {DEVICE_0, DEVICE_1}
    ids = integers(64, 2, 5)
    assert_same(model(ids.to(DEVICE)).logits, gpt2().eval()(ids).logits)
