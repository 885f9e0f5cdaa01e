"""Random numbers under the name cuda: the numbers of a GPU, as other projects and issues of PyTorch have printed them.

A printed number has four digits. A GPU computes the sine and the cosine of normally distributed numbers with less
precision than this device (__sincosf), so more digits would not agree.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from cuda_builds import AS_CUDA
from programs import Run

pytestmark = AS_CUDA

HELPERS = """
import torch

def seeded(seed):
    return torch.Generator("cuda").manual_seed(seed)

def agrees(drawn, *printed):
    # The values at the end of `printed` are the last ones if there is an Ellipsis.
    printed = list(printed)
    at = printed.index(...) if ... in printed else len(printed)
    ends = printed[at + 1:]
    flat = drawn.double().cpu().flatten()
    found = flat[:at].tolist() + flat[len(flat) - len(ends):].tolist()
    assert [f"{value:.4f}" for value in found] == [f"{value:.4f}" for value in printed[:at] + ends], found
"""


@pytest.fixture
def philox(run_python: Run) -> Callable[..., None]:
    """A function that runs a program on the type cuda with its own random numbers. It must print nothing."""

    def run(program: str, **environment: str) -> None:
        settings = {"TORCH_OPENREG_AS": "cuda", "OPENREG_RNG": "", **environment}
        result = run_python(HELPERS + textwrap.dedent(program), **settings)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")

    return run


def test_numbers_that_were_printed_on_a_gpu(philox: Callable[..., None]) -> None:
    philox(
        """
        # NVIDIA/TensorRT-LLM, tests/unittest/trt/functional; ROCm and Triton tutorials print the second call.
        torch.manual_seed(0)
        agrees(torch.rand(12, device="cuda"), 0.3990, 0.5167, 0.0249, 0.9401, 0.9459, 0.7967, 0.4150, 0.8203, 0.2290,
               0.9096, 0.1183, 0.0752)
        agrees(torch.rand(10, device="cuda"), 0.9722, 0.7910, 0.4690, 0.3300, 0.3345, 0.3783, 0.7640, 0.6405, 0.1103,
               0.3594)

        # pytorch/pytorch#47347
        torch.manual_seed(0)
        zero, one = torch.tensor(0.0, device="cuda"), torch.tensor(1.0, device="cuda")
        agrees(torch.distributions.Uniform(zero, one).rsample((5,)), 0.3990, 0.5167, 0.0249, 0.9401, 0.9459)

        # The notebook about get_inputs() with torch.maximum, of PyTorch 2.2.0.
        torch.manual_seed(0)
        agrees(torch.randn(4, 8, device="cuda"), -0.9247, -0.4253, -2.6438, 0.1452, -0.1209, -0.5797, -0.6229, -0.3284,
               -1.0745, -0.3631, -1.6711, 2.2655, 0.3117, -0.1842, 1.2866, 1.1820,
               -0.1271, 1.2169, 1.4353, 1.0605, -0.4941, -1.4244, -0.7244, -1.2973, 0.0697, -0.0074)

        # pytorch/pytorch#79496
        torch.manual_seed(10)
        agrees(torch.randn(3, device="cuda"), -0.1029, 1.6810, -0.2708)

        # mrdbourke/pytorch-deep-learning#759: kaiming_uniform_ in [-1, 1)
        with torch.device("cuda"):
            torch.manual_seed(42)
            model = torch.nn.Linear(1, 1)
        agrees(model.weight, 0.2259)
        agrees(model.bias, 0.9754)
        """
    )


# pytorch/pytorch#143086: the first numbers are those of every GPU, and the last ones depend on its multiprocessors.
@pytest.mark.parametrize(
    ("model", "last"),
    [("cuda-a100", "0.1549, -0.6797, -0.1656"), ("cuda-h100", "-0.6970, -0.7780, 0.3267")],
)
def test_numbers_of_a_large_tensor_depend_on_the_multiprocessors(
    philox: Callable[..., None], model: str, last: str
) -> None:
    philox(
        f"""
        drawn = torch.randn(1, 49 * 12 * 112 * 144, device="cuda", generator=seeded(1))
        agrees(drawn, -0.2963, 2.6764, -0.1408, ..., {last})
        """,
        OPENREG_MODEL=model,
    )


def test_dropout_drops_the_elements_that_a_gpu_drops(philox: Callable[..., None], tmp_path: Path) -> None:
    """intel/torch-xpu-ops#2926, on an RTX 4080 SUPER: 80 multiprocessors with 1,536 threads each."""
    model = tmp_path / "gpu.json"
    counts = {"multi_processor_count": 80, "max_threads_per_multi_processor": 1536}
    properties = {name: {"value": value, "source": "NVIDIA"} for name, value in counts.items()}
    model.write_text(json.dumps({"about": "a GPU", "like": ["cuda-a100"], "properties": properties}))
    philox(
        """
        torch.cuda.manual_seed_all(1)
        dropped = (torch.nn.Dropout(p=0.1)(torch.ones(512 * 4 * 1024, device="cuda")) == 0).nonzero().flatten()
        assert dropped[:3].tolist() + dropped[-3:].tolist() == [8, 14, 20, 2097121, 2097140, 2097151]
        """,
        OPENREG_MODEL=str(model),
    )


def test_a_state_has_16_bytes_and_an_offset(philox: Callable[..., None]) -> None:
    """aten/src/ATen/cuda/CUDAGeneratorImpl.cpp."""
    philox(
        """
        generator = seeded(42)
        assert generator.get_offset() == 0
        torch.rand(3, device="cuda", generator=generator)
        assert generator.get_state().view(torch.int64).tolist() == [42, 4]
        torch.empty(5, device="cuda").bernoulli_(torch.full((5,), 0.5, device="cuda"), generator=generator)
        assert generator.get_offset() == 16  # 10 numbers are reserved, in whole calls of 4
        torch.randperm(10, device="cuda", generator=generator)
        assert generator.get_offset() == 32  # one call for the keys, and 10 numbers for equal keys
        torch.poisson(torch.ones(3, device="cuda"), generator=generator)
        assert generator.get_offset() == 36

        expected = torch.randn(5, device="cuda", generator=generator)
        assert torch.equal(torch.randn(5, device="cuda", generator=seeded(42).set_state(
            torch.tensor([42, 36]).view(torch.uint8))), expected)
        generator.set_offset(36)
        assert torch.equal(torch.randn(5, device="cuda", generator=generator), expected)
        assert generator.clone_state().get_offset() == generator.get_offset() == 40
        assert generator.manual_seed(42).get_offset() == 0
        assert seeded(1).set_state(torch.tensor([42]).view(torch.uint8)).initial_seed() == 42

        for call, error in (
            (lambda: generator.set_offset(3), "offset must be a multiple of 4"),
            (lambda: generator.set_state(torch.zeros(3, dtype=torch.uint8)),
             "RNG state is wrong size: a state of the CUDA device has 16 bytes, but got 3."),
        ):
            try:
                call()
            except RuntimeError as raised:
                assert str(raised) == error, raised
            else:
                raise AssertionError(error)
        """
    )


def test_a_state_of_an_earlier_version_gives_its_seed(run_python: Run) -> None:
    code = """
import torch
state = torch.Generator().manual_seed(42).get_state()
assert state.numel() == 5056
generator = torch.Generator("cuda").set_state(state)
print(generator.initial_seed(), generator.get_offset())
"""
    result = run_python(code, TORCH_OPENREG_AS="cuda", OPENREG_RNG="", status=0, output="42 0\n")
    assert (
        "UserWarning: The random state is a Mersenne twister's: the CUDA device starts at the beginning of the sequence "
        "of the seed 42, and gives other numbers. With OPENREG_RNG=cpu it continues the sequence of the state."
    ) in result.stderr


# Philox4x32-10, one thread at a time, by the paper and the layout of curand_init(): the reference for what no GPU has
# printed.
REFERENCE = """
def words(seed, call, thread):
    a, b, c, d = call & 0xffffffff, call >> 32, thread & 0xffffffff, thread >> 32
    first, second = seed & 0xffffffff, seed >> 32
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = q >> 32 ^ b ^ first, q & 0xffffffff, p >> 32 ^ d ^ second, p & 0xffffffff
        first, second = first + 0x9E3779B9 & 0xffffffff, second + 0xBB67AE85 & 0xffffffff
    return a, b, c, d

assert words(0, 0, 0) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)  # the paper's known answer

def uniform(word):
    return torch.tensor(word, dtype=torch.float32) * 2.0**-32 + 2.0**-33

def wide(pair):
    return (pair[0] << 32) + pair[1]
"""


def test_integers_and_permutations_follow_pytorchs_sources(philox: Callable[..., None]) -> None:
    philox(
        REFERENCE
        + textwrap.dedent(
            """
            n, seed = 40, 2**40 + 7
            first = [words(seed, 0, thread) for thread in range(n)]
            g = lambda: torch.Generator("cuda").manual_seed(seed)
            drawn = torch.randint(-5, 1000, (n,), device="cuda", generator=g())
            assert drawn.tolist() == [each[0] % 1005 - 5 for each in first]
            drawn = torch.randint(2**40, (n,), device="cuda", generator=g())
            assert drawn.tolist() == [wide(each) % 2**40 for each in first]
            drawn = torch.empty(n, dtype=torch.int32, device="cuda").random_(generator=g())
            assert drawn.tolist() == [each[0] % 2**31 for each in first]
            drawn = torch.empty(n, device="cuda").random_(generator=g())
            assert drawn.tolist() == [each[0] % (2**24 + 1) for each in first]
            drawn = torch.empty(n, dtype=torch.long, device="cuda").random_(-2**63, None, generator=g())
            assert [each % 2**64 for each in drawn.tolist()] == [wide(each) for each in first]

            # Four elements of a thread have the probabilities 0.5.
            p = torch.full((n,), 0.5, device="cuda")
            drawn = torch.bernoulli(p, generator=g())
            assert drawn.tolist() == [float(uniform(first[i // 4][i % 4]) <= 0.5) for i in range(n)]
            drawn = torch.empty(n, device="cuda").bernoulli_(0.3, generator=g())
            assert drawn.tolist() == [float(uniform(each[0]) < 0.3) for each in first]

            # Elements in memory order, whatever the strides are.
            drawn = torch.empty(5, 8, device="cuda").t().uniform_(generator=g())
            assert drawn.t().flatten().tolist() == [float(uniform(each[0])) for each in first]

            # Sorted by the lower bits of random keys.
            keys = [(wide(each) % (2**32 - 1) - 2**31) & 0xffffffff for each in first]
            bits = 13  # ceil(log2(n - (6 n^2 + 1) / (12 log 0.9)))
            order = sorted(range(n), key=lambda i: keys[i] & (2**bits - 1))
            assert torch.randperm(n, device="cuda", generator=g()).tolist() == order
            """
        )
    )


def test_permutations_are_permutations(philox: Callable[..., None]) -> None:
    philox(
        """
        for n in (1, 2, 1000, 40_000, 300_000):  # keys of 32 bits, and of 64
            for _ in range(3):
                drawn = torch.randperm(n, device="cuda")
                assert torch.equal(drawn.sort().values.cpu(), torch.arange(n))
        counts = torch.zeros(6)
        for _ in range(600):
            a, b, c = torch.randperm(3, device="cuda").tolist()
            counts[a * 2 + (b > c)] += 1
        assert counts.min() > 50, counts
        """
    )


def test_distributions_have_their_moments(philox: Callable[..., None]) -> None:
    philox(
        """
        def close(drawn, mean, deviation):
            drawn = drawn.double()
            assert abs(drawn.mean().item() - mean) < 5 * deviation / drawn.numel()**0.5, (drawn.mean(), mean)
            assert abs(drawn.std().item() / deviation - 1) < 0.05, (drawn.std(), deviation)

        torch.manual_seed(0)
        empty = lambda dtype=torch.float: torch.empty(300_000, dtype=dtype, device="cuda")
        for dtype in (torch.float, torch.double, torch.half, torch.bfloat16):
            close(empty(dtype).normal_(1, 2), 1, 2)
            close(empty(dtype).uniform_(-1, 2), 0.5, 0.75**0.5)
            close(empty(dtype).exponential_(0.5), 2, 2)
            close(empty(dtype).geometric_(0.5), 2, 2**0.5)
            close(empty(dtype).bernoulli_(0.25), 0.25, 0.1875**0.5)
        close(empty().log_normal_(0, 0.25).log(), 0, 0.25)
        close(empty().cauchy_().atan(), 0, (3.14159**2 / 12)**0.5)
        close(torch.normal(torch.ones(300_000, device="cuda"), torch.full((300_000,), 2.0, device="cuda")), 1, 2)
        close(torch.poisson(torch.full((300_000,), 4.0, device="cuda")), 4, 2)
        weights = torch.tensor([0.0, 1.0, 3.0], device="cuda")
        close(torch.multinomial(weights, 100_000, replacement=True), 1.75, 0.1875**0.5)
        close(torch.multinomial(weights.expand(100_000, 3), 1), 1.75, 0.1875**0.5)
        assert torch.multinomial(weights, 2).sort().values.tolist() == [1, 2]
        close(torch.nn.functional.dropout(torch.ones(300_000, device="cuda"), 0.2), 1, 0.5)
        """
    )


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_queued_kernels_and_replays_draw_the_numbers_of_eager_ones(philox: Callable[..., None], mode: str) -> None:
    philox(
        """
        def draw(x):
            return torch.nn.functional.dropout(x.uniform_() + torch.randn_like(x) + torch.rand_like(x), 0.3)

        x = torch.ones(300, 3, device="cuda")
        torch.manual_seed(3)
        expected = [draw(x).cpu() for _ in range(3)]
        end = torch.cuda.default_generators[0].get_offset()
        assert end == 3 * 4 * 4

        torch.manual_seed(3)
        queued = [draw(x) for _ in range(3)]
        assert all(map(torch.equal, expected, [each.cpu() for each in queued]))

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = draw(x)
        torch.manual_seed(3)
        for each in expected:
            graph.replay()
            assert torch.equal(out.cpu(), each)
        assert torch.cuda.default_generators[0].get_offset() == end
        """,
        OPENREG_EXECUTION=mode,
    )


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_a_kernel_in_python_gets_numbers_of_the_generator(philox: Callable[..., None], mode: str) -> None:
    philox(
        """
        if not hasattr(torch.Generator, "philox_state"):  # since PyTorch 2.14
            raise SystemExit

        generator, other = seeded(-1), seeded(-1)
        found = generator.philox_state(5)
        assert [(each.device.type, each.dtype, each.tolist()) for each in found] == [
            ("cpu", torch.int64, [-1]), ("cpu", torch.int64, [0]), ("cpu", torch.int64, [0])
        ]
        assert generator.get_offset() == 8  # whole counters of four numbers
        assert generator.philox_state(0)[1].item() == 8 == generator.get_offset()
        other.set_offset(8)
        draw = lambda of: torch.rand(3, device="cuda", generator=of)
        assert torch.equal(draw(generator), draw(other))

        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            seed, offset, within = generator.philox_state(6)
            drawn = draw(generator)
            _, last, last_within = generator.philox_state(1)
        assert (seed.device.type, offset.device.type, within.device.type) == ("cuda", "cuda", "cpu")
        generator.manual_seed(7), other.manual_seed(7)
        for start in (0, 16):
            graph.replay()
            assert (seed.item(), offset.item() + within.item()) == (7, start)
            assert last.item() + last_within.item() == start + 12
            other.set_offset(start + 8)
            assert torch.equal(drawn, draw(other))
            assert generator.get_offset() == start + 16
        """,
        OPENREG_EXECUTION=mode,
    )
