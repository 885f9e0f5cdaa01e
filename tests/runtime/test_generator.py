"""Generators of the device: the CPU's numbers for the same seed, their own state, no effect on the CPU's generator."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Callable

import pytest
import torch
from comparison import DEVICE, DEVICE_0, DEVICE_1, OURS, PRELUDE, assert_same
from programs import Run
from torch import Tensor

MODULE = torch.get_device_module(DEVICE)
TWO_DEVICES = pytest.mark.skipif(MODULE.device_count() < 2, reason="needs two devices")

# Only this device draws the CPU's numbers. The rules about states also hold on CUDA.
SAME_NUMBERS = pytest.mark.skipif(not OURS, reason="another device draws other numbers")

Draw = Callable[..., object]

# d: the device; g: a generator or None.
DRAWS: dict[str, Draw] = {
    "randn": lambda d, g: torch.randn(1001, device=d, generator=g),
    "randn of few": lambda d, g: torch.randn(3, device=d, generator=g),
    "randn in float64": lambda d, g: torch.randn(100, dtype=torch.double, device=d, generator=g),
    "randn in bfloat16": lambda d, g: torch.randn(100, dtype=torch.bfloat16, device=d, generator=g),
    "complex randn": lambda d, g: torch.randn(100, dtype=torch.cfloat, device=d, generator=g),
    "rand": lambda d, g: torch.rand(1001, device=d, generator=g),
    "randint": lambda d, g: torch.randint(-5, 1000, (50,), device=d, generator=g),
    "randperm": lambda d, g: torch.randperm(100, device=d, generator=g),
    "normal_": lambda d, g: torch.empty(33, device=d).normal_(1, 2, generator=g),
    "uniform_": lambda d, g: torch.empty(33, device=d).uniform_(-1, 2, generator=g),
    "random_": lambda d, g: torch.empty(33, dtype=torch.long, device=d).random_(generator=g),
    "random_ in a range": lambda d, g: torch.empty(33, dtype=torch.int32, device=d).random_(2, 9, generator=g),
    "bernoulli_": lambda d, g: torch.empty(33, device=d).bernoulli_(0.3, generator=g),
    "bernoulli of probabilities": lambda d, g: torch.bernoulli(torch.linspace(0, 1, 33, device=d), generator=g),
    "exponential_": lambda d, g: torch.empty(33, device=d).exponential_(2.0, generator=g),
    "cauchy_": lambda d, g: torch.empty(33, device=d).cauchy_(generator=g),
    "log_normal_": lambda d, g: torch.empty(33, device=d).log_normal_(generator=g),
    "geometric_": lambda d, g: torch.empty(33, device=d).geometric_(0.3, generator=g),
    "multinomial": lambda d, g: torch.multinomial(torch.ones(20, device=d), 5, generator=g),
    "multinomial with replacement": lambda d, g: torch.multinomial(torch.ones(20, device=d), 50, True, generator=g),
    "normal of tensors": lambda d, g: torch.normal(torch.zeros(9, device=d), torch.ones(9, device=d), generator=g),
    "poisson": lambda d, g: torch.poisson(torch.full((9,), 4.0, device=d), generator=g),
}
# These take no generator: they draw from the default generator of the device.
IMPLICIT: dict[str, Callable[[str], object]] = {
    "rand_like": lambda d: torch.rand_like(torch.zeros(40, device=d)),
    "dropout": lambda d: torch.nn.functional.dropout(torch.ones(100, device=d), 0.4),
    "feature dropout": lambda d: torch.nn.functional.dropout2d(torch.ones(4, 5, 2, 2, device=d), 0.4),
    "rrelu": lambda d: torch.nn.functional.rrelu(-torch.ones(40, device=d), training=True),
    "xavier": lambda d: torch.nn.init.xavier_uniform_(torch.empty(4, 5, device=d)),
    "trunc_normal_": lambda d: torch.nn.init.trunc_normal_(torch.empty(40, device=d)),
    "orthogonal_": lambda d: torch.nn.init.orthogonal_(torch.empty(4, 4, device=d)),
    "a module made there": lambda d: list(torch.nn.Linear(4, 5, device=d).parameters()),
    "distributions": lambda d: torch.distributions.Normal(torch.zeros(5, device=d), 1.0).sample(),
    "gumbel_softmax": lambda d: torch.nn.functional.gumbel_softmax(torch.zeros(5, device=d)),
    "fractional pooling": lambda d: torch.nn.functional.fractional_max_pool2d(
        torch.arange(64.0, device=d).reshape(1, 1, 8, 8), 2, output_size=3
    ),
}


@SAME_NUMBERS
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_a_generator_draws_the_cpus_numbers(draw: Draw) -> None:
    on_device, on_cpu = torch.Generator(DEVICE).manual_seed(42), torch.Generator().manual_seed(42)
    for _ in range(2):  # the second draw starts in the middle of the sequence
        assert_same(draw(DEVICE, on_device), draw("cpu", on_cpu))
    assert torch.equal(on_device.get_state(), on_cpu.get_state())


@SAME_NUMBERS
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_the_default_generator_draws_the_cpus_numbers(draw: Draw) -> None:
    torch.manual_seed(7)
    actual = [draw(DEVICE, None), draw(DEVICE, None)]
    torch.manual_seed(7)
    assert_same(actual, [draw("cpu", None), draw("cpu", None)])


@SAME_NUMBERS
@pytest.mark.parametrize("draw", IMPLICIT.values(), ids=IMPLICIT.keys())
def test_an_operator_without_a_generator_draws_the_cpus_numbers(draw: Callable[[str], object]) -> None:
    torch.manual_seed(7)
    actual = [draw(DEVICE), draw(DEVICE)]
    torch.manual_seed(7)
    assert_same(actual, [draw("cpu"), draw("cpu")])


@pytest.mark.parametrize("name", [*DRAWS, *IMPLICIT])
def test_drawing_on_the_device_leaves_the_cpus_generator_alone(name: str) -> None:
    before = torch.get_rng_state()
    if name in DRAWS:
        DRAWS[name](DEVICE, None)
    else:
        IMPLICIT[name](DEVICE)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_a_generator_of_the_cpu_is_refused_on_the_device(draw: Draw) -> None:
    cpu = torch.Generator().manual_seed(3)
    before = cpu.get_state()
    with pytest.raises(RuntimeError, match=f"^Expected a '{DEVICE}' device type for generator but found 'cpu'$"):
        draw(DEVICE, cpu)
    assert torch.equal(cpu.get_state(), before)


def test_a_generator_of_the_device_is_refused_on_the_cpu() -> None:
    with pytest.raises(RuntimeError, match=f"^Expected a 'cpu' device type for generator but found '{DEVICE}'$"):
        torch.randn(3, generator=torch.Generator(DEVICE))


def test_drawing_on_the_cpu_leaves_the_devices_generator_alone() -> None:
    before = MODULE.get_rng_state()
    torch.randn(5)
    torch.nn.functional.dropout(torch.ones(5))
    assert torch.equal(MODULE.get_rng_state(), before)


# ---- Seeds and states ----------------------------------------------------------------------------------------------


def test_torch_manual_seed_seeds_every_device() -> None:
    torch.manual_seed(123)
    assert MODULE.initial_seed() == 123
    draws = [torch.randn(4, device=f"{DEVICE}:{index}").cpu() for index in range(MODULE.device_count())]
    torch.manual_seed(123)
    again = [torch.randn(4, device=f"{DEVICE}:{index}").cpu() for index in range(MODULE.device_count())]
    assert all(torch.equal(a, b) for a, b in zip(draws, again, strict=True))


@TWO_DEVICES
def test_manual_seed_seeds_the_current_device_and_manual_seed_all_all() -> None:
    torch.manual_seed(1)
    other = MODULE.get_rng_state(DEVICE_1)
    MODULE.manual_seed(2)
    assert torch.equal(MODULE.get_rng_state(DEVICE_1), other)
    MODULE.manual_seed_all(2)
    assert torch.equal(MODULE.get_rng_state(DEVICE_1), MODULE.get_rng_state(DEVICE_0))


@pytest.mark.parametrize("where", [DEVICE, DEVICE_0, pytest.param(DEVICE_1, marks=TWO_DEVICES)])
def test_a_generator_belongs_to_its_device(where: str) -> None:
    generator = torch.Generator(where)
    assert generator.device == torch.device(where if ":" in where else DEVICE_0)
    assert torch.randn(3, device=where, generator=generator.manual_seed(0)).device.type == torch.device(DEVICE).type


def test_seed_initial_seed_and_manual_seed() -> None:
    generator = torch.Generator(DEVICE)
    assert generator.manual_seed(5) is generator
    assert generator.initial_seed() == 5
    generator.manual_seed(-1)
    assert generator.initial_seed() == 2**64 - 1
    first, second = generator.seed(), generator.seed()
    assert first != second
    assert generator.initial_seed() == second


def _next(generator: torch.Generator) -> list[float]:
    return torch.randn(3, device=generator.device, generator=generator).tolist()


def test_state_is_saved_and_restored() -> None:
    generator = torch.Generator(DEVICE).manual_seed(1)
    _next(generator)
    state = generator.get_state()
    assert (state.dtype, state.device.type) == (torch.uint8, "cpu")
    expected = _next(generator)
    generator.set_state(state)
    assert _next(generator) == expected
    other = torch.Generator(DEVICE)
    other.set_state(state)
    assert _next(other) == expected


def test_clone_state_does_not_share_and_graphsafe_state_does() -> None:
    generator = torch.Generator(DEVICE).manual_seed(1)
    clone = generator.clone_state()
    expected = _next(clone)
    assert _next(generator) == expected
    shared = generator.graphsafe_get_state()
    expected = _next(torch.Generator(DEVICE).set_state(generator.get_state()))
    assert _next(shared) == expected
    assert _next(generator) != expected, "the shared state has moved on"


def _pickled(generator: torch.Generator) -> torch.Generator:
    return pickle.loads(pickle.dumps(generator))


def _saved(generator: torch.Generator) -> torch.Generator:
    buffer = io.BytesIO()
    torch.save(generator, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, _pickled, _saved])
@pytest.mark.parametrize("where", ["cpu", DEVICE_0, pytest.param(DEVICE_1, marks=TWO_DEVICES)])
def test_a_copied_or_pickled_generator_goes_on_by_itself(
    where: str, duplicate: Callable[[torch.Generator], torch.Generator]
) -> None:
    generator = torch.Generator(where).manual_seed(11)
    _next(generator)  # after a draw the state is not the one that the seed gives
    again = duplicate(generator)
    assert (again.device, again.initial_seed()) == (generator.device, 11)
    expected = _next(again)
    assert _next(generator) == expected
    assert _next(generator) != expected


@SAME_NUMBERS
def test_a_generator_is_copied_in_a_program_that_does_nothing_else(
    run_python: Run,
) -> None:
    run_python(
        PRELUDE + "import copy; print(copy.deepcopy(torch.Generator(DEVICE).manual_seed(5)).initial_seed())",
        status=0,
        output="5\n",
        errors="",
    )


@SAME_NUMBERS
def test_a_state_cannot_be_shared_with_the_cpus_generator() -> None:
    sentence = {
        "openreg": r"^Expected a generator of the openreg device, but got one of cpu\.$",
        "cuda": "^Expected a CUDA Generator$",  # aten/src/ATen/cuda/CUDAGeneratorImpl.cpp, graphsafe_set_state
    }[DEVICE]
    with pytest.raises(RuntimeError, match=sentence):
        torch.Generator(DEVICE).graphsafe_set_state(torch.Generator())


def test_graphsafe_state_can_be_given_to_another_generator() -> None:
    first, second = torch.Generator(DEVICE).manual_seed(1), torch.Generator(DEVICE).manual_seed(2)
    third = torch.Generator(DEVICE).manual_seed(1)
    second.graphsafe_set_state(first.graphsafe_get_state())
    assert [_next(first), _next(second), _next(first)] == [_next(third), _next(third), _next(third)]


def test_a_bad_state_is_refused() -> None:
    generator = torch.Generator(DEVICE)
    with pytest.raises(TypeError, match="^RNG state must be a torch.ByteTensor$"):
        generator.set_state(torch.zeros(3))
    with pytest.raises(RuntimeError, match="^RNG state is wrong size"):
        generator.set_state(torch.zeros(3, dtype=torch.uint8))


THE_DEVICE = "the CUDA device" if DEVICE == "cuda" else "the openreg device"


@SAME_NUMBERS
def test_a_state_of_another_size_is_refused_with_the_sizes_that_are_taken() -> None:
    with pytest.raises(RuntimeError) as error:
        torch.Generator(DEVICE).set_state(torch.zeros(3, dtype=torch.uint8))
    assert str(error.value) == (
        f"RNG state is wrong size: a state of {THE_DEVICE} has 5056 bytes, and a state of a GPU has 16, but got 3."
    )


@SAME_NUMBERS
def test_a_state_of_a_gpu_gives_its_seed() -> None:
    # aten/src/ATen/cuda/CUDAGeneratorImpl.cpp, get_state(): the seed, then the offset
    generator = torch.Generator(DEVICE).set_state(torch.tensor([42, 0]).view(torch.uint8))
    assert generator.initial_seed() == 42
    assert _next(generator) == _next(torch.Generator(DEVICE).manual_seed(42))
    sentence = (
        f"^The random state is a GPU's: {THE_DEVICE} starts at the beginning of the sequence of the seed 42 without "
        "the offset 8, which a Mersenne twister cannot have, and gives other numbers than the GPU."
    )
    with pytest.warns(UserWarning, match=sentence):
        generator.set_state(torch.tensor([42, 8]).view(torch.uint8))
    assert _next(generator) == _next(torch.Generator(DEVICE).manual_seed(42))


@SAME_NUMBERS
def test_an_offset_is_refused() -> None:
    generator = torch.Generator(DEVICE)
    sentence = rf"^A generator of {THE_DEVICE} has no offset: it is a Mersenne twister, which has a seed only\.$"
    calls = [generator.get_offset, lambda: generator.set_offset(4)]
    if hasattr(generator, "philox_state"):  # since PyTorch 2.14
        calls.append(lambda: generator.philox_state(4))
    for call in calls:
        with pytest.raises(RuntimeError, match=sentence):
            call()


@pytest.mark.parametrize("which", [None, range(MODULE.device_count())])
def test_fork_rng_restores_the_cpu_and_every_device(which: range | None) -> None:
    torch.manual_seed(9)
    cpu, devices = torch.get_rng_state(), MODULE.get_rng_state_all()
    with torch.random.fork_rng(which, device_type=torch.device(DEVICE).type):
        torch.manual_seed(1)
        torch.randn(3), torch.randn(3, device=DEVICE)
    assert torch.equal(torch.get_rng_state(), cpu)
    assert all(torch.equal(a, b) for a, b in zip(MODULE.get_rng_state_all(), devices, strict=True))


def test_a_draw_on_a_generator_does_not_move_the_default_one() -> None:
    before = MODULE.get_rng_state()
    torch.randn(3, device=DEVICE, generator=torch.Generator(DEVICE))
    assert torch.equal(MODULE.get_rng_state(), before)


def test_threads_share_a_generator_without_drawing_a_number_twice() -> None:
    generator = torch.Generator(DEVICE).manual_seed(0)
    draws: list[Tensor] = []

    def work() -> None:
        for _ in range(50):
            draws.append(torch.rand(32, dtype=torch.double, device=DEVICE, generator=generator))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.cat(draws).unique().numel() == 4 * 50 * 32


def test_randperm_of_nothing_accepts_any_generator() -> None:
    """As on CUDA: no number is drawn."""
    for device, of in ((DEVICE, "cpu"), ("cpu", DEVICE), (DEVICE, DEVICE)):
        assert torch.randperm(0, device=device, generator=torch.Generator(of)).tolist() == []
    with pytest.raises(RuntimeError, match="^Expected a 'cpu' generator device but found"):
        torch.randperm(1, generator=torch.Generator(DEVICE))


def test_dropout_of_a_nested_tensor_draws_from_the_devices_generator() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 3, device=DEVICE), torch.ones(4, 3, device=DEVICE)])
    before = torch.get_rng_state()
    torch.get_device_module(DEVICE).manual_seed(5)
    first = torch.nn.functional.dropout(nested, 0.5).to_padded_tensor(0.0)
    second = torch.nn.functional.dropout(nested, 0.5).to_padded_tensor(0.0)
    torch.get_device_module(DEVICE).manual_seed(5)
    assert_same(torch.nn.functional.dropout(nested, 0.5).to_padded_tensor(0.0), first.cpu())
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_variable_chooses_the_random_numbers(run_python: Run) -> None:
    code = PRELUDE + "torch.manual_seed(0); print([round(each, 4) for each in torch.rand(3, device=DEVICE).tolist()])"
    run_python(code, OPENREG_RNG="philox", status=0, output="[0.399, 0.5167, 0.0249]\n", errors="")  # as on a GPU
    run_python(code, OPENREG_RNG="cpu", status=0, output="[0.4963, 0.7682, 0.0885]\n", errors="")
    result = run_python(code, OPENREG_RNG="gpu")
    assert "ValueError: OPENREG_RNG is 'gpu'. Set it to cpu or philox, or unset it." in result.stderr
