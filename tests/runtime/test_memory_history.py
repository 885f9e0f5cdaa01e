"""Snapshots of device memory and the history of allocations. PyTorch's own viewer must read them."""

from __future__ import annotations

import gc
import pickle
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import programs
import pytest
import torch
from comparison import DEVICE, DEVICE_1, PRELUDE

from torch_openreg import _C, openreg
from torch_openreg.openreg import memory

MIB = 1 << 20


@pytest.fixture
def _history() -> Iterator[None]:
    gc.collect()
    openreg.empty_cache()
    memory._record_memory_history(stacks="python", clear_history=True)
    yield
    memory._record_memory_history(None, clear_history=True)


def trace(device: int = 0) -> list[dict[str, Any]]:
    return memory._snapshot()["device_traces"][device]


def test_the_device_says_whether_it_keeps_a_history(_history: None) -> None:
    assert _C._is_memory_history_enabled()
    memory._record_memory_history(None)
    assert not _C._is_memory_history_enabled()


def segment_of(tensor: torch.Tensor) -> dict[str, Any]:
    address = tensor.untyped_storage().data_ptr()
    (found,) = (s for s in memory.memory_snapshot() if s["address"] <= address < s["address"] + s["total_size"])
    return found


def block_of(tensor: torch.Tensor) -> dict[str, Any]:
    address = tensor.untyped_storage().data_ptr()
    (found,) = (block for block in segment_of(tensor)["blocks"] if block["address"] == address)
    return found


def test_a_snapshot_accounts_for_every_byte() -> None:
    kept = [torch.empty(size, device=DEVICE) for size in (1, 1000, 300_000, 3_000_000, 30_000_000)]
    stats, segments = openreg.memory_stats(), memory.memory_snapshot()
    segments = [segment for segment in segments if segment["device"] == openreg.current_device()]
    assert sum(s["total_size"] for s in segments) == stats["reserved_bytes.all.current"]
    assert sum(s["allocated_size"] for s in segments) == stats["allocated_bytes.all.current"]
    assert sum(s["active_size"] for s in segments) == stats["active_bytes.all.current"]
    assert sum(s["requested_size"] for s in segments) == stats["requested_bytes.all.current"]
    assert len(segments) == stats["segment.all.current"]
    for segment in segments:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
        assert segment["segment_type"] == ("small" if segment["total_size"] == 2 * MIB else "large")
    for tensor in kept:
        block = block_of(tensor)
        assert (block["state"], block["requested_size"]) == ("active_allocated", tensor.nbytes)


def test_a_block_that_another_stream_still_uses_awaits_its_free() -> None:
    stream = torch.Stream(DEVICE)
    tensor = torch.ones(MIB, device=DEVICE)
    tensor.record_stream(stream)
    segment = segment_of(tensor)["address"]
    address = tensor.data_ptr()
    del tensor
    (found,) = (s for s in memory.memory_snapshot() if s["address"] == segment)
    states = {block["address"]: block["state"] for block in found["blocks"]}
    assert states[address] == "active_awaiting_free"
    stream.synchronize()
    again = torch.ones(MIB, device=DEVICE)  # an allocation checks which events have passed
    assert again.data_ptr() == address


@pytest.mark.usefixtures("_history")
def test_the_history_tells_what_happened_and_where() -> None:
    line = sys._getframe().f_lineno + 1
    tensor = torch.empty(65 * MIB, dtype=torch.uint8, device=DEVICE)  # no segment of another test has so much free
    address = tensor.data_ptr()
    del tensor
    entries = trace()
    assert [entry["action"] for entry in entries] == ["segment_alloc", "alloc", "free_requested", "free_completed"]
    assert [entry["size"] for entry in entries] == [66 * MIB, 65 * MIB, 65 * MIB, 65 * MIB]
    assert {entry["addr"] for entry in entries} == {address}
    assert {entry["stream"] for entry in entries} == {0}
    assert {entry["pool_id"] for entry in entries} == {(0, 0)}
    times = [entry["time_us"] for entry in entries]
    assert times == sorted(times)
    lines = [(entry["frames"][0]["filename"], entry["frames"][0]["line"]) for entry in entries]
    assert lines == [(__file__, line), (__file__, line), (__file__, line + 2), (__file__, line + 2)]
    assert {entry["frames"][0]["name"] for entry in entries} == {
        "test_the_history_tells_what_happened_and_where",
    }


@pytest.mark.usefixtures("_history")
def test_memory_in_use_knows_where_it_was_allocated() -> None:
    tensor = torch.empty(100, device=DEVICE)
    frames = block_of(tensor)["frames"]
    assert frames == memory._allocation_traceback(tensor.untyped_storage().data_ptr())
    assert (frames[0]["filename"], frames[0]["name"]) == (__file__, "test_memory_in_use_knows_where_it_was_allocated")
    assert memory._allocation_traceback(tensor.data_ptr() + 4) is None


def test_without_a_history_nothing_is_recorded() -> None:
    memory._record_memory_history(None, clear_history=True)
    tensor = torch.empty(100, device=DEVICE)
    assert memory._snapshot()["device_traces"] == [[] for _ in range(openreg.device_count())]
    assert block_of(tensor)["frames"] == []
    assert memory._allocation_traceback(tensor.data_ptr()) is None


def test_the_history_can_be_short_selective_and_without_traces() -> None:
    memory._record_memory_history(stacks="python", context=None, max_entries=3, clear_history=True)
    kept = [torch.empty(100, device=DEVICE) for _ in range(10)]
    entries = memory._snapshot()["device_traces"][0]
    assert [entry["action"] for entry in entries] == ["alloc", "alloc", "alloc"]
    assert [entry["frames"] for entry in entries] == [[], [], []]
    memory._record_memory_history(
        "state", context="state", stacks="python", clear_history=True, skip_actions=["snapshot", "free_requested"]
    )
    kept.pop()
    entries = memory._snapshot()["device_traces"][0]
    assert [entry["action"] for entry in entries] == ["free_completed"]
    kept = [torch.empty(100, device=DEVICE)]
    assert block_of(kept[0])["frames"] != []
    memory._record_memory_history(context="state", stacks="python", clear_history=True)
    kept = [torch.empty(100, device=DEVICE)]  # frees the tensor before it, too
    entries = memory._snapshot()["device_traces"][0]
    assert {entry["action"] for entry in entries} >= {"alloc", "free_completed"}
    assert [entry["frames"] for entry in entries] == [[]] * len(entries)
    assert block_of(kept[0])["frames"] != []
    memory._record_memory_history(None, clear_history=True)


@pytest.mark.usefixtures("_history")
def test_entries_carry_the_threads_metadata() -> None:
    memory._set_memory_metadata("forward")
    kept = [torch.empty(100, device=DEVICE)]
    assert memory._get_memory_metadata() == "forward"
    memory._set_memory_metadata("")
    kept.append(torch.empty(100, device=DEVICE))
    assert [entry["user_metadata"] for entry in trace() if entry["action"] == "alloc"] == ["forward", ""]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"enabled": "yes"}, "expected state to be 'state', 'all', or None"),
        ({"context": "some"}, "expected context to be 'state', 'alloc', 'all', or None"),
        ({"stacks": "java"}, "expected stacks to be 'python', or 'all'"),
        ({"skip_actions": ["allocate"]}, "Unknown TraceEntry action: allocate"),
    ],
)
def test_wrong_options_of_the_history_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(RuntimeError) as error:
        memory._record_memory_history(**arguments)
    assert str(error.value).splitlines()[0] == message
    assert not _C._is_memory_history_enabled()


@pytest.mark.usefixtures("_history")
def test_other_devices_have_a_history_of_their_own() -> None:
    if openreg.device_count() < 2:
        pytest.skip("needs two devices")
    tensor = torch.empty(100, device=DEVICE_1)
    assert trace(0) == []
    (entry,) = (entry for entry in trace(1) if entry["action"] == "alloc")
    assert entry["addr"] == tensor.data_ptr()


@pytest.mark.usefixtures("_history")
def test_gradients_are_in_the_history_too() -> None:
    weight = torch.randn(64, 64, device=DEVICE, requires_grad=True)
    (weight @ weight).sum().backward()
    actions = Counter(entry["action"] for entry in trace())
    assert actions["alloc"] >= 4 and actions["alloc"] > actions["free_completed"]


# ---- what reads them: python -m torch.cuda._memory_viz

WORKLOAD = """
import sys
from torch_openreg.openreg import memory
memory._record_memory_history(stacks="python")
def model():
    weight = torch.randn(1024, 1024, device=DEVICE, requires_grad=True)
    (weight @ weight).relu().sum().backward()
    return weight
kept = model()
memory._dump_snapshot(sys.argv[1])
more = torch.empty(40 << 20, dtype=torch.uint8, device=DEVICE)
try:
    torch.empty(1 << 40, dtype=torch.uint8, device=DEVICE)
except torch.OutOfMemoryError:
    pass
memory._dump_snapshot(sys.argv[2])
"""

# The viewer loads a Perl script to draw flame graphs. This program prints the lines that the script would get.
FLAMES = """
import pickle, sys
import torch.cuda._memory_viz as viz
before, after = (pickle.load(open(name, "rb")) for name in sys.argv[1:])
same = lambda lines: lines
print(viz.segments(after, same)); print(viz.memory(after, same))
print(viz.compare(before["segments"], after["segments"], same))
"""


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("snapshots")
    before, after = folder / "before.pickle", folder / "after.pickle"
    script = folder / "workload.py"
    script.write_text(PRELUDE + WORKLOAD)
    # In an interpreter of its own, so that each stack begins in the program.
    programs.run(sys.executable, script, before, after, new_interpreter=True, status=0)
    return before, after


def viewer(*arguments: object) -> str:
    command = [sys.executable, "-W", "ignore", "-m", "torch.cuda._memory_viz", *map(str, arguments)]
    result = programs.run(*command, status=0, errors="")
    return result.stdout


@pytest.mark.slow
def test_the_viewer_prints_statistics_and_the_trace(dumps: tuple[Path, Path]) -> None:
    statistics = viewer("stats", dumps[1])
    assert "[a ] 40.0MiB allocated" in statistics or "[aa] 40.0MiB allocated" in statistics
    assert "total_allocated: " in statistics
    printed = viewer("trace", dumps[1])
    assert "= cudaMalloc(" in printed
    assert "raise OutOfMemoryError # 1.0TiB requested, " in printed
    assert "b = a[0:4.0MiB]" in printed


@pytest.mark.slow
def test_the_viewer_draws_the_timeline_and_the_segments(dumps: tuple[Path, Path], tmp_path: Path) -> None:
    for command in ("trace_plot", "segment_plot"):
        page = tmp_path / f"{command}.html"
        viewer(command, dumps[1], "-o", page)
        assert "MemoryViz.js" in page.read_text()
        assert page.stat().st_size > dumps[1].stat().st_size  # the snapshot is in it


@pytest.mark.slow
def test_the_viewers_flame_graphs_have_the_programs_lines(dumps: tuple[Path, Path]) -> None:
    result = programs.run(sys.executable, "-W", "ignore", "-c", FLAMES, *dumps, status=0)
    assert ";active_allocated;workload.py:10:<module>;workload.py:7:model 4194304" in result.stdout
    with dumps[1].open("rb") as file:
        address = max(pickle.load(file)["segments"], key=lambda segment: segment["total_size"])["address"]
    assert f"only_after = [{address}]" in result.stdout
