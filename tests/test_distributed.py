"""torch.distributed on the device, with real processes: every collective, in each execution mode, with 2 and 4 ranks."""

from __future__ import annotations

from collections.abc import Iterator

import distributed_collectives
import pytest
from distributed_group import Group

CHECKS = (
    "all_reduce",
    "all_reduce_operators",
    "all_reduce_of_booleans_and_complex",
    "broadcast",
    "reduce",
    "all_gather",
    "uneven_all_gather",
    "all_gather_into_tensor",
    "reduce_scatter",
    "uneven_reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all_single",
    "uneven_all_to_all_single",
    "all_to_all",
    "gather",
    "scatter",
    "send_and_recv",
    "recv_from_any",
    "crossed_isend_irecv",
    "batch_isend_irecv",
    "barrier",
    "object_collectives",
    "functional_collectives",
    "coalescing_manager",
    "groups",
    "split_group",
    "a_collective_waits_for_what_is_queued_on_the_current_stream",
    "async_collectives_overlap_and_wait_orders_them",
    "an_input_may_go_before_the_collective_is_done",
    "futures",
    "completion_hook",
    "sequence_numbers",
    "observers_are_told_of_collectives",
    "bad_arguments",
    "channels_last_is_contiguous",
)
MODES = ("inline", "async", "chaos")


@pytest.fixture(scope="module", params=[2, 4])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    made = Group(request.param)
    yield made
    made.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("check", CHECKS)
def test_collective(group: Group, check: str, mode: str) -> None:
    group.run(distributed_collectives.__name__, check, mode=mode)
