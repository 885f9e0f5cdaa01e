"""Dry execution of mixtures of experts of transformers, whose routes nobody computes."""

from __future__ import annotations

import json

import programs
import pytest
from libraries import REASON

TRAINING = """
import gc, json, os, torch
from transformers import MixtralConfig, MixtralForCausalLM
from transformers.models.mixtral import modeling_mixtral
D = torch.accelerator.current_accelerator()
chosen = modeling_mixtral.MixtralTopKRouter.forward

def choose_equally(router, states):
    logits, scores, routes = chosen(router, states)
    equal = torch.arange(routes.numel(), device=D).remainder_(router.num_experts).view_as(routes)
    routes.data.copy_(equal)  # also those that topk() saved for backward
    return logits, scores, routes

if "OPENREG_DRY" not in os.environ:
    modeling_mixtral.MixtralTopKRouter.forward = choose_equally
found = {}
for name in ("eager", "grouped_mm", "batched_mm"):
    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64,
    )
    model = MixtralForCausalLM._from_config(config, experts_implementation=name).to(D)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(128, (4, 32)).to(D)
    before = torch.accelerator.memory_allocated()
    found[name] = []
    for _ in range(2):
        torch.accelerator.reset_peak_memory_stats()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found[name].append(torch.accelerator.max_memory_allocated() - before)
    del model, optimizer, loss
    gc.collect()
print(json.dumps(found))
"""


def test_every_implementation_of_experts_needs_the_memory_of_equal_routes() -> None:
    pytest.importorskip("transformers", reason=REASON)
    options = {"OPENREG_DEVICE_COUNT": "1", "OPENREG_DEVICE_MEMORY": "4G"}
    runs = [options, options | {"OPENREG_DRY": "4K"}]
    real, dry = (json.loads(programs.python(TRAINING, status=0, errors=None, **each).stdout) for each in runs)
    assert dry == real
    assert all(min(steps) > 0 for steps in real.values())
