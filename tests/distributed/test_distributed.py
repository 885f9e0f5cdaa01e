"""torch.distributed on the device, with real processes: every collective, in each mode, with 2 and 4 ranks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import distributed_collectives
import programs
import pytest
from distributed_group import Group
from programs import PYTEST, Done, at_once

from torch_openreg._environment import all_variables

CHECKS = (
    "all_reduce",
    "all_reduce_operators",
    "average",
    "all_reduce_gives_the_same_bits",
    "all_reduce_of_booleans_and_complex",
    "broadcast",
    "a_broadcast_does_not_wait_for_its_receivers",
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
    "a_batch_keeps_its_place_between_other_messages",
    "a_tensor_may_change_after_its_send",
    "barrier",
    "object_collectives",
    "functional_collectives",
    "coalescing_manager",
    "a_collective_that_a_coalesced_call_refuses_is_not_queued",
    "groups",
    "split_group",
    "split_group_of_ranks_that_made_different_numbers_of_groups",
    "a_collective_waits_for_what_is_queued_on_the_current_stream",
    "async_collectives_overlap_and_wait_orders_them",
    "an_input_may_go_before_the_collective_is_done",
    "futures",
    "completion_hook",
    "observers_are_told_of_collectives",
    "observers_are_told_of_messages",
    "a_trace_shows_a_collective_as_a_kernel_of_the_library_s_stream",
    "a_captured_collective_runs_at_each_replay",
    "a_replay_without_its_group_fails",
    "bad_arguments",
    "the_timeout_of_a_group_is_set",
    "channels_last_is_contiguous",
)
MODES = ("inline", "async", "chaos")
# The build without the simulator has no transport between hosts.
OTHERS = [each for row in all_variables() if row.name == "OCCL_TRANSPORT" for each in row.choices[1:] if each != "shm"]
CANNOT_SHARE_MEMORY = (
    "OCCL_TRANSPORT is 'shm', but the ranks of the group cannot share memory: they run on several hosts or as several "
    "users, or there are more than 256 of them, or the device has no memory for the group."
    + "".join(f" Set it to auto or {each}." for each in OTHERS)
)


@pytest.fixture(scope="module")
def pair() -> Iterator[Group]:
    made = Group(2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def four() -> Iterator[Group]:
    made = Group(4)
    yield made
    made.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("check", CHECKS)
def test_collective(pair: Group, check: str, mode: str) -> None:
    pair.run(distributed_collectives.__name__, check, mode=mode)


# Two ranks have been through every mode: what four ranks add is their order, which only `chaos` changes.
@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_collective_of_four_ranks(four: Group, check: str) -> None:
    four.run(distributed_collectives.__name__, check, mode="chaos")


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_random_sequences_are_those_of_gloo(four: Group, mode: str) -> None:
    """Plays a few sequences. `python -m tests.distributed.distributed_sequences` plays thousands."""
    assert sum(four.run("distributed_sequences", "play", 0, 15, mode=mode)) > 50


@pytest.fixture(scope="module")
def sanitized() -> Iterator[Group]:
    made = Group(2, environment={"OPENREG_SANITIZER": "race,init,memory"})
    yield made
    made.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "check",
    [
        "all_reduce",
        "object_collectives",
        "functional_collectives",
        "async_collectives_overlap_and_wait_orders_them",
        "an_input_may_go_before_the_collective_is_done",
        "futures",
    ],
)
def test_the_sanitizer_reports_no_correct_collective(sanitized: Group, check: str, mode: str) -> None:
    sanitized.run(distributed_collectives.__name__, check, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_the_sanitizer_reports_a_collective_that_is_not_waited_for(sanitized: Group, mode: str) -> None:
    for report, after_wait in sanitized.run(distributed_collectives.__name__, "read_before_wait", mode=mode):
        assert "reads what occl:all_reduce may not have written yet" in report
        assert after_wait == 3.0


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 4])
def test_ranks_of_several_hosts(size: int) -> None:
    """With 3 ranks, the last one is alone on its host."""
    made = Group(size, hosts=2)
    for mode in ("inline", "chaos") if size == 3 else ("chaos",):
        for check in (
            "all_reduce",
            "all_reduce_operators",
            "all_reduce_gives_the_same_bits",
            "all_reduce_of_booleans_and_complex",
            "average",
            "coalescing_manager",
            "send_and_recv",
            "recv_from_any",
        ):
            # send_and_recv needs pairs of ranks. The sums of average are exact only if the number of ranks is even.
            if size % 2 == 0 or check not in ("send_and_recv", "average"):
                made.run(distributed_collectives.__name__, check, mode=mode)
        made.run("distributed_sequences", "play", 0, 10, mode=mode)
    made.close()


@pytest.mark.slow
def test_the_transport_is_chosen_by_a_variable_that_is_checked() -> None:
    for transport in ("gloo", "shm"):
        made = Group(2, environment={"OCCL_TRANSPORT": transport})
        for check in (
            "all_reduce",
            "average",
            "all_reduce_gives_the_same_bits",
            "broadcast",
            "all_gather",
            "reduce_scatter_tensor",
            "all_to_all_single",
            "barrier",
            "send_and_recv",
            "recv_from_any",
            "batch_isend_irecv",
            "a_batch_keeps_its_place_between_other_messages",
        ):
            made.run(distributed_collectives.__name__, check)
        if transport == "shm":
            for heard, _ in made.run("distributed_faults", "group_without_memory"):
                assert heard == f"RuntimeError: {CANNOT_SHARE_MEMORY}"
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["auto", "gloo"])
def test_the_check_of_headers_can_be_switched_off(transport: str) -> None:
    made = Group(2, environment={"OCCL_TRANSPORT": transport, "OCCL_CHECK": "0"})
    for check in (
        "all_reduce",
        "all_reduce_gives_the_same_bits",
        "broadcast",
        "reduce",
        "uneven_all_gather",
        "uneven_reduce_scatter",
        "uneven_all_to_all_single",
        "gather",
        "scatter",
        "barrier",
        "send_and_recv",
        "recv_from_any",
    ):
        made.run(distributed_collectives.__name__, check, mode="async")
    assert made.run("distributed_faults", "mismatched", "reductions") == ["no error"] * 2
    made.close()


def test_ranks_with_different_hostids_cannot_share_memory(tmp_path: Path) -> None:
    program = """
    import sys, torch.distributed as dist
    store = dist.FileStore(sys.argv[1], 2)
    dist.init_process_group("occl", store=store, rank=int(sys.argv[2]), world_size=2)
    """
    variables = {"OCCL_TRANSPORT": "shm"}
    ranks = [
        partial(programs.python, program, tmp_path / "store", str(rank), OCCL_HOSTID=str(rank), **variables)
        for rank in range(2)
    ]
    for rank in at_once(*ranks):
        assert CANNOT_SHARE_MEMORY in rank.stderr


def run_group_of_one(**variables: str) -> Done:
    program = """
    import torch, torch.distributed as dist
    dist.init_process_group("occl", store=dist.HashStore(), rank=0, world_size=1)
    dist.all_reduce(torch.ones(2, device="openreg"))
    dist.destroy_process_group()
    """
    return programs.python(program, imports=programs.DISTRIBUTED, **variables)


@pytest.mark.parametrize(
    ("variable", "sentence"),
    [
        ("OCCL_TRANSPORT", "OCCL_TRANSPORT is 'fast'. Set it to auto (the default), gloo or shm, or unset it."),
        ("OCCL_CHECK", "OCCL_CHECK is 'fast'. Set it to 1 (the default) or 0, or unset it."),
        (
            "OCCL_MULTI_RANK_GPU_ENABLE",
            "OCCL_MULTI_RANK_GPU_ENABLE is 'fast'. Set it to 0 (the default) or 1, or unset it.",
        ),
    ],
)
def test_a_wrong_setting_is_refused(variable: str, sentence: str) -> None:
    result = run_group_of_one(**{variable: "fast"})
    assert result.returncode == 1
    assert f"ValueError: {sentence}" in result.stderr


@pytest.mark.parametrize("name", ["OCCL_TRANSPORT", "OCCL_CHECK", "OCCL_MULTI_RANK_GPU_ENABLE"])
def test_the_settings_are_those_of_the_table(name: str) -> None:
    (variable,) = [each for each in all_variables() if each.name == name]
    *results, refused = at_once(
        *(partial(run_group_of_one, **{name: value}) for value in (*variable.choices, "", "many"))
    )
    assert [(result.returncode, result.stderr) for result in results] == [(0, "")] * len(results)
    with pytest.raises(ValueError) as caught:
        variable.check("many")
    assert f"ValueError: {caught.value}\n" in refused.stderr


def test_import_torch_imports_no_more_for_the_backend() -> None:
    program = "import sys, torch; print('torch_openreg.distributed' in sys.modules, torch.distributed.Backend.OCCL)"
    result = programs.python(program, status=0)
    assert result.stdout == "False occl\n"


@pytest.mark.slow
@pytest.mark.parametrize(("detail", "recorded"), [(None, "set()"), ("DETAIL", "{'gloo'}")])
def test_a_group_without_the_name_of_a_backend_has_the_device_s_as_its_default(
    detail: str | None, recorded: str
) -> None:
    program = """
    import pickle, torch, torch.distributed as dist
    from torch._C import _distributed_c10d
    dist.init_process_group()
    print(dist.group.WORLD.name(), dist.get_backend_config())
    dist.barrier()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).to("openreg"))
    model(torch.ones(1, 2, device="openreg")).sum().backward()
    # No library outside of PyTorch can add an entry to PyTorch's flight recorder.
    entries = pickle.loads(_distributed_c10d._dump_fr_trace())["entries"]
    print({entry["profiling_name"].split(":")[0] for entry in entries})
    dist.destroy_process_group()
    """
    expected = f"custom openreg:occl\n{recorded}\n"
    settings = {"TORCH_DISTRIBUTED_DEBUG": detail, "imports": programs.DISTRIBUTED}
    programs.ranks(1, program, **settings, status=0, output=expected)


def test_a_group_of_gloo_and_occl_has_the_device_s_default_backend_and_ends_without_a_warning() -> None:
    program = """
    import torch, torch.distributed as dist
    dist.init_process_group("cpu:gloo,openreg:occl", store=dist.HashStore(), rank=0, world_size=1)
    ended = []
    dist.group.WORLD._register_on_completion_hook(lambda info: ended.append(info.op_type))
    dist.all_reduce(torch.ones(2, device="openreg"))
    dist.all_reduce(torch.ones(2))
    dist.destroy_process_group()
    print(*ended)
    """
    programs.python(program, status=0, output="OpType.ALLREDUCE\n", errors="")


def test_the_group_fake_takes_the_device() -> None:
    program = """
    import torch, torch.distributed as dist
    dist.init_process_group("fake", rank=1, world_size=4)
    for device in ("cpu", "openreg"):
        x = torch.full((2,), 5.0, device=device)
        dist.all_reduce(x)
        print(x.tolist())
    print("openreg:fake" in dist.get_backend_config(), dist.get_default_backend_for_device("openreg"))
    """
    programs.python(program, status=0, output="[5.0, 5.0]\n[5.0, 5.0]\nTrue occl\n", errors="")


@pytest.mark.slow
def test_the_example_for_testers_finds_what_it_says() -> None:
    folder = Path(__file__).parents[2] / "examples" / "distributed"
    result = programs.run(*PYTEST, folder, cwd=folder, status=0)
    assert "4 passed" in result.stdout
