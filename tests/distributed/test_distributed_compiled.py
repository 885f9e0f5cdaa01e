"""Collectives and parallel training inside of torch.compile, with two processes, compared with the CPU and gloo."""

from __future__ import annotations

from collections.abc import Iterator

import distributed_compiled
import programs
import pytest
from distributed_group import Group

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair() -> Iterator[Group]:
    made = Group(2, "cpu:gloo,openreg:occl", imports=programs.COMPILER)
    yield made
    made.close()


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_collectives_have_the_bits_of_the_cpu(pair: Group, backend: str, mode: str) -> None:
    pair.run(distributed_compiled.__name__, "collectives", backend, mode=mode)


@pytest.mark.parametrize("mode", ["inline", "async"])
@pytest.mark.parametrize("stack", ["data_parallel", "fully_sharded", "tensor_parallel"])
def test_compiled_training_equals_that_on_one_device(pair: Group, stack: str, mode: str) -> None:
    pair.run(distributed_compiled.__name__, stack, mode=mode)
