"""PyTorch's parallel APIs on the device, with real processes, compared with the same training on one device."""

from __future__ import annotations

from collections.abc import Iterator

import distributed_training
import pytest
from distributed_group import Group

STACKS = (
    "ddp_options",
    "ddp_no_sync",
    "ddp_gradients_have_the_bits_of_two_backwards",
    "ddp_captured_has_the_bits_of_ddp",
    "ddp_unused_parameters",
    "ddp_comm_hooks",
    "ddp_statistics",
    "ddp_optimizer_in_backward",
    "ddp_buffers",
    "sync_batch_norm",
    "join",
    "zero_redundancy_optimizer",
    "post_local_sgd",
    "fsdp1",
    "fsdp2",
    "fsdp2_mixed_precision_and_offload",
    "dtensor",
    "dtensor_random_numbers",
    "dtensor_attention",
    "tensor_parallel",
    "embedding_by_rows_and_loss_parallel",
    "sequence_parallel",
    "checkpoints",
    "device_mesh",
)


@pytest.fixture(scope="module")
def pair() -> Iterator[Group]:
    made = Group(2, "cpu:gloo,openreg:occl")
    yield made
    made.close()


@pytest.fixture(scope="module")
def four() -> Iterator[Group]:
    made = Group(4, "cpu:gloo,openreg:occl")
    yield made
    made.close()


MODES = pytest.mark.parametrize("mode", ["async", pytest.param("chaos", marks=pytest.mark.slow)])


@MODES
@pytest.mark.parametrize("stack", STACKS)
def test_training_equals_that_on_one_device(pair: Group, stack: str, mode: str) -> None:
    pair.run(distributed_training.__name__, stack, mode=mode)


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["ddp_options", "fsdp1", "fsdp2"])
def test_training_as_late_as_possible_follows_from_the_schedule_alone(pair: Group, stack: str) -> None:
    """A schedule of the mode chaos."""
    pair.run(distributed_training.__name__, "without_force", stack, mode="late")


@MODES
@pytest.mark.parametrize("schedule", ["ScheduleGPipe", "Schedule1F1B", "ScheduleInterleaved1F1B"])
def test_a_pipeline_has_the_gradients_of_one_device(pair: Group, schedule: str, mode: str) -> None:
    pair.run(distributed_training.__name__, "pipeline", schedule, mode=mode)


@pytest.mark.parametrize("stack", ["hybrid_sharding", "device_mesh"])
def test_training_on_a_mesh_of_two_dimensions(four: Group, stack: str) -> None:
    four.run(distributed_training.__name__, stack)


@pytest.mark.parametrize("schedule", ["ScheduleLoopedBFS", "ScheduleInterleavedZeroBubble"])
def test_a_pipeline_of_four_ranks_has_the_gradients_of_one_device(four: Group, schedule: str) -> None:
    four.run(distributed_training.__name__, "pipeline", schedule, mode="async")
