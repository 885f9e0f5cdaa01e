"""The operators of attention that PyTorch has for CUDA alone, and histc() of integers."""

from __future__ import annotations

import programs
import pytest
from cuda_builds import AS_CUDA

pytestmark = AS_CUDA

HEAD = """
import torch
from torch.nn.functional import scaled_dot_product_attention as attention
from torch.testing import assert_close

def tensors(*shape, dtype=torch.float32):
    torch.manual_seed(0)
    return [torch.randn(*shape, dtype=dtype).cuda().requires_grad_() for _ in range(3)]
"""


def run(code: str, **settings: str) -> None:
    program = f"{HEAD}{code}\nprint('done')"
    programs.python(program, TORCH_OPENREG_AS="cuda", status=0, output="done\n", **settings)


def test_attention_calls_the_operators_that_cuda_would_choose() -> None:
    run("""
def called(q, k, v, **options):
    with torch.profiler.profile() as profile:
        attention(q, k, v, **options).sum().backward()
    names = {event.name.removeprefix("aten::_scaled_dot_product_") for event in profile.events()}
    return names & {f"{kind}_attention{end}" for kind in ("flash", "efficient") for end in ("", "_backward")}

half, full = tensors(1, 2, 40, 16, dtype=torch.half), tensors(1, 2, 40, 16)
mask = torch.ones(40, 40, device="cuda", dtype=torch.bool).tril()
assert called(*half) == {"flash_attention", "flash_attention_backward"}
assert called(*half, attn_mask=mask) == called(*full) == {"efficient_attention", "efficient_attention_backward"}
""")


def test_the_results_have_the_forms_of_pytorchs_meta_kernels() -> None:
    run("""
from torch._subclasses import FakeTensorMode

def forms(results):
    return [(tuple(x.shape), x.stride(), x.dtype) for x in results if isinstance(x, torch.Tensor)]

aten = torch.ops.aten
for q, k, v in (tensors(2, 3, 40, 16), [each.transpose(1, 2) for each in tensors(2, 40, 3, 16)]):
    q, k, v = (each.detach() for each in (q, k, v))
    for compute in (
        lambda q, k, v: aten._scaled_dot_product_flash_attention(q, k, v),
        lambda q, k, v: aten._scaled_dot_product_efficient_attention(q, k, v, None, True),
        lambda q, k, v: aten._scaled_dot_product_efficient_attention(q, k, v, None, False),
        lambda q, k, v: aten._flash_attention_forward(q, k, v, None, None, 3, 3, 0.0, False, False),
    ):
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            expected = forms(compute(*map(mode.from_tensor, (q, k, v))))
        assert forms(compute(q, k, v)) == expected, (forms(compute(q, k, v)), expected)
""")


@pytest.mark.parametrize("mode", ["inline", "chaos"])
def test_sequences_of_different_lengths_attend_as_each_alone(mode: str) -> None:
    run(
        """
from torch.nn.attention.varlen import AuxRequest, varlen_attn

q, k, v = tensors(24, 4, 16)
ends = [0, 8, 8, 24]
cu = torch.tensor(ends, dtype=torch.int32, device="cuda")
for window, scale in (((-1, -1), None), ((-1, 0), None), ((3, 0), 0.3), ((2, 1), None)):
    actual, sums = varlen_attn(q, k, v, cu, cu, 16, 16, window_size=window, scale=scale, return_aux=AuxRequest(lse=True))
    parts, lse = [], []
    for begin, end in zip(ends, ends[1:]):
        one = [each[begin:end].transpose(0, 1) for each in (q, k, v)]
        near = torch.arange(end - begin, device="cuda")
        distance = near - near[:, None]
        seen = (distance <= window[1]) | (window[1] < 0)
        seen &= (distance >= -window[0]) | (window[0] < 0)
        parts.append(attention(*one, attn_mask=seen, scale=scale).transpose(0, 1))
        scores = (one[0] @ one[1].transpose(1, 2)) * (scale or 0.25)
        lse.append(scores.masked_fill(~seen, -torch.inf).logsumexp(2))
    assert_close(actual, torch.cat(parts))
    assert_close(sums, torch.cat(lse, 1))
    weights = torch.arange(16.0, device="cuda")
    found = torch.autograd.grad((actual * weights).sum(), (q, k, v))
    expected = torch.autograd.grad((torch.cat(parts) * weights).sum(), (q, k, v))
    for each in zip(found, expected):
        assert_close(*each, rtol=1e-4, atol=1e-4)
""",
        OPENREG_EXECUTION=mode,
    )


def test_a_query_sees_the_last_keys_and_queries_before_all_keys_give_zero() -> None:
    run("""
q, k, v = (each.detach() for each in tensors(1, 6, 2, 16))
forward = torch.ops.aten._flash_attention_forward
longer = forward(q[:, :3], k, v, None, None, 3, 6, 0.0, True, False)[0]
mask = torch.ones(3, 6, dtype=torch.bool, device="cuda").tril(3)
assert_close(longer, attention(*(each.transpose(1, 2) for each in (q[:, :3], k, v)), attn_mask=mask).transpose(1, 2))
shorter = forward(q, k[:, :2], v[:, :2], None, None, 6, 2, 0.0, True, False)[0]
assert shorter[:, :4].count_nonzero() == 0
assert_close(shorter[:, 4], v[:, 0])
for options, sentence in (
    ({"alibi_slopes": torch.ones(2, device="cuda")}, "has no alibi_slopes and no block_table"),
    ({"dropout_p": 0.5}, "has no dropout"),
):
    try:
        forward(q, k, v, None, None, 6, 6, options.pop("dropout_p", 0.0), False, False, **options)
    except NotImplementedError as error:
        assert sentence in str(error), error
    else:
        raise AssertionError(sentence)
""")


def test_histc_counts_integers_as_cuda_does() -> None:
    run("""
x = torch.tensor([0, 1, 1, 3, 4, -2, 9, 2], device="cuda")
for dtype in (torch.int64, torch.int32, torch.uint8):
    counts = torch.histc(x.to(dtype), bins=4, min=0, max=4)
    assert counts.dtype == dtype and counts.tolist() == [1, 2, 1, 2]
    assert torch.histc(x.to(dtype), bins=4, min=0, max=4, out=torch.empty(0, dtype=dtype, device="cuda")).equal(counts)
assert torch.histc(x, bins=2).tolist() == [6, 2]
assert torch.histc(x[:0], bins=2).tolist() == [0, 0]
""")
