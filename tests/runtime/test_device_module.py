"""The device's module behaves as torch.cuda does."""

from __future__ import annotations

import textwrap
import threading
import uuid
from collections.abc import Callable

import pytest
import torch
from comparison import DEVICE, DEVICE_0, DEVICE_1, NAME, PRELUDE, out_of_range
from programs import Run

from torch_openreg import openreg

A_DEVICE = "a cuda" if DEVICE == "cuda" else "an openreg"


# ---- Devices ---------------------------------------------------------------------------------------------------------


def test_there_are_two_devices_by_default() -> None:
    assert openreg.is_available()
    assert openreg.device_count() == torch.accelerator.device_count() == 2


@pytest.mark.only_on("openreg", reason="on a GPU this is torch.cuda")
def test_the_module_is_pytorchs_device_module() -> None:
    import torch_openreg

    assert torch.get_device_module(DEVICE) is torch.get_device_module() is openreg is torch_openreg.openreg
    assert torch.accelerator.current_accelerator() == torch.device(DEVICE)


@pytest.mark.only_on("openreg", reason="torch.openreg does not exist on a GPU")
def test_a_submodule_is_the_same_under_both_names(
    run_python: Run,
) -> None:
    code = """
        import importlib
        import torch.openreg.memory
        from torch.openreg.amp import autocast
        import torch_openreg.openreg.memory, torch_openreg.openreg.amp

        assert torch.openreg.memory is torch_openreg.openreg.memory
        assert autocast is torch_openreg.openreg.amp.autocast
        assert torch.openreg.memory.__spec__.name == torch.openreg.memory.__name__
        assert importlib.reload(torch.openreg.memory) is torch_openreg.openreg.memory
        try:
            import torch.openreg.nothing
        except ModuleNotFoundError as error:
            print(error)
    """
    result = run_python(textwrap.dedent(code))
    assert result.stdout + result.stderr == "No module named 'torch.openreg.nothing'\n"


@pytest.mark.parametrize("device", [1, DEVICE_1, torch.device(DEVICE_1)])
def test_set_device_takes_an_index_a_string_or_a_device(device: int | str | torch.device) -> None:
    try:
        openreg.set_device(device)
        assert openreg.current_device() == torch.accelerator.current_device_index() == 1
        assert torch.empty(0, device=DEVICE).device == torch.device(DEVICE_1)
    finally:
        openreg.set_device(0)
    assert openreg.current_device() == 0


def test_a_negative_index_changes_nothing() -> None:
    openreg.set_device(-1)
    assert openreg.current_device() == 0
    with openreg.device(-1):
        assert openreg.current_device() == 0


@pytest.mark.parametrize("index", [2, 127, 128, 256, 2**40])
@pytest.mark.parametrize(
    "use",
    [
        openreg.set_device,
        lambda index: openreg.device(index).__enter__(),
        openreg.synchronize,
        openreg.get_device_properties,
        openreg.get_device_name,
        lambda index: openreg.can_device_access_peer(0, index),
        openreg.get_rng_state,
        openreg.Stream,
        openreg.current_stream,
        openreg.default_stream,
        openreg.mem_get_info,
        openreg.memory_allocated,
        openreg.memory_stats_as_nested_dict,
        openreg.reset_peak_memory_stats,
    ],
)
def test_an_index_without_a_device_is_named(use: Callable[[int], object], index: int) -> None:
    with pytest.raises(RuntimeError, match=f"^{out_of_range(index, 2)}"):
        use(index)
    assert openreg.current_device() == 0


@pytest.mark.parametrize("use", [openreg.synchronize, openreg.get_device_properties, openreg.memory_allocated])
def test_a_negative_index_is_no_device_where_one_is_asked_about(use: Callable[[int], object]) -> None:
    with pytest.raises(RuntimeError, match=f"^{out_of_range(-1, 2)}"):
        use(-1)


def test_another_kind_of_device_is_refused() -> None:
    with pytest.raises(ValueError, match=f"^Expected {A_DEVICE} device, but got: cpu$"):
        openreg.set_device("cpu")
    with pytest.raises(ValueError, match=f"^Expected {A_DEVICE} device, but got: meta$"):
        openreg.synchronize(torch.device("meta"))


def test_set_device_wants_an_index() -> None:
    with pytest.raises(
        ValueError, match=f"^Expected a torch.device with a specified index or an integer, but got:{DEVICE}$"
    ):
        openreg.set_device(DEVICE)


def test_the_device_context_restores_also_after_an_exception() -> None:
    with openreg.device(1):
        assert openreg.current_device() == 1
        with openreg.device(DEVICE_0), openreg.device(None):
            assert openreg.current_device() == 0
        assert openreg.current_device() == 1
    with pytest.raises(KeyError), openreg.device(1):
        raise KeyError
    assert openreg.current_device() == 0


def test_device_of_follows_tensors_and_storages_of_the_device_only() -> None:
    x = torch.empty(1, device=DEVICE_1)
    for obj in (x, x.untyped_storage()):
        with openreg.device_of(obj):
            assert openreg.current_device() == 1
    with openreg.device_of(torch.empty(1)):
        assert openreg.current_device() == 0


def test_the_current_device_belongs_to_the_thread() -> None:
    seen = []

    def look() -> None:
        seen.append(openreg.current_device())
        openreg.set_device(0)

    with openreg.device(1):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert openreg.current_device() == 1
    assert seen == [0]


def test_properties_name_and_capability() -> None:
    properties = openreg.get_device_properties(1)
    assert properties.name == openreg.get_device_name() == "OpenReg simulated accelerator"
    assert properties.total_memory == openreg.mem_get_info(1)[1]
    assert openreg.get_device_capability(DEVICE_1) == (properties.major, properties.minor)
    maker = b"OpenReg"[:15].ljust(15, b"\x00")
    assert repr(properties) == (
        f"{type(properties).__name__}(name='OpenReg simulated accelerator', major=8, minor=0, "
        f"total_memory={properties.total_memory >> 20}MB, multi_processor_count=108, "
        f"uuid={uuid.UUID(bytes=maker + bytes([1]))}, pci_bus_id=2, pci_device_id=0, "
        "pci_domain_id=0, L2_cache_size=40MB)"
    )


def test_peers_reach_each_other_but_not_themselves() -> None:
    assert openreg.can_device_access_peer(0, 1) and openreg.can_device_access_peer(DEVICE_1, DEVICE_0)
    assert not openreg.can_device_access_peer(1, 1)


def test_init_may_be_called_again() -> None:
    openreg.init()
    openreg.init()
    assert openreg.is_initialized()
    assert not openreg._is_in_bad_fork()


# ---- Environment -----------------------------------------------------------------------------------------------------


LAZY = """
    done = []
    openreg._lazy_call(lambda: done.append(1))
    # A queued call may use the device, and may queue another one.
    openreg._lazy_call(lambda: (done.append(torch.ones(2, device=DEVICE).sum().item()), openreg._lazy_call(last)))
    def last():
        done.append(3)
    openreg._lazy_call(lambda: openreg.manual_seed_all(7), seed_all=True)
    print(done, openreg.is_initialized())
    x = torch.randn(3, device=DEVICE)
    print(done, openreg.is_initialized(), openreg.initial_seed())
    openreg._lazy_call(lambda: done.append("now"))
    openreg.init()
    print(done)
"""


@pytest.mark.only_on("openreg", reason="a queued call that queues another one deadlocks in PyTorch's torch.cuda")
def test_a_lazy_call_waits_until_the_device_starts(run_python: Run) -> None:
    result = run_python(PRELUDE + textwrap.dedent(LAZY))
    assert (result.stdout, result.stderr) == (
        "[] False\n[1, 2.0, 3] True 7\n[1, 2.0, 3, 'now']\n",
        "",
    )


def test_a_lazy_call_that_fails_says_where_it_was_made(run_python: Run) -> None:
    code = """
        def queue():
            openreg._lazy_call(lambda: 1 / 0)
        queue()
        for use in (openreg.synchronize, lambda: torch.ones(1, device=DEVICE)):
            try:
                use()
            except Exception as error:
                message, _, place = str(error).partition(" call was originally invoked at:")
                print(type(error).__name__, message.strip(), "in queue" in place)
                print(repr(error.__cause__), openreg.is_initialized())
    """
    result = run_python(PRELUDE + textwrap.dedent(code))
    error = {"openreg": "DeferredOpenRegCallError", "cuda": "DeferredCudaCallError"}[DEVICE]
    line = (
        f"{error} {NAME} call failed lazily at initialization with error: division by zero\n\n{NAME} True\n"
        "ZeroDivisionError('division by zero') False\n"
    )
    assert (result.stdout, result.stderr) == (2 * line, "")


def test_the_environment_sets_count_memory_and_visibility(run_python: Run) -> None:
    code = PRELUDE + "print(openreg.device_count(), openreg.mem_get_info()[1])"
    assert run_python(code, OPENREG_DEVICE_COUNT="8", OPENREG_DEVICE_MEMORY="512M").stdout == f"8 {512 << 20}\n"
    code = PRELUDE + "print(openreg.device_count(), openreg.is_available())"
    assert run_python(code, OPENREG_VISIBLE_DEVICES="1").stdout == "1 True\n"
    assert run_python(code, OPENREG_VISIBLE_DEVICES="").stdout == "0 False\n"


def test_a_senseless_environment_is_named_at_first_use_and_not_before(run_python: Run) -> None:
    code = """
try:
    torch.ones(1, device=DEVICE)
except RuntimeError as error:
    print(error)
"""
    result = run_python(PRELUDE + code, OPENREG_DEVICE_COUNT="many")
    assert result.returncode == 0 and result.stderr == ""
    assert result.stdout == (
        'orGetDeviceCount: OPENREG_DEVICE_COUNT="many" is not valid: expected a number of devices from 1 to 64\n'
    )


# ---- Streams and events ----------------------------------------------------------------------------------------------


def test_the_current_stream_is_the_default_stream_until_another_is_chosen() -> None:
    for index in range(2):
        assert openreg.current_stream(index) == openreg.default_stream(index) == torch.accelerator.current_stream(index)
        assert openreg.current_stream(index).device == torch.device(DEVICE, index)
    stream = openreg.Stream()
    with openreg.stream(stream):
        assert openreg.current_stream() == stream != openreg.default_stream()
    assert openreg.current_stream() == openreg.default_stream()


def test_a_stream_of_another_device_makes_its_device_current_and_both_are_restored() -> None:
    other = openreg.Stream(device=1)
    before = openreg.current_stream(1)
    with openreg.stream(other):
        assert openreg.current_device() == 1
        assert openreg.current_stream() == other
    assert openreg.current_device() == 0
    assert openreg.current_stream(1) == before
    with openreg.stream(None):
        assert openreg.current_stream() == openreg.default_stream()


def test_set_stream_stays_until_it_is_set_back() -> None:
    stream = openreg.Stream(1, -1)
    try:
        openreg.set_stream(None)
        assert openreg.current_device() == 0
        openreg.set_stream(stream)
        assert (openreg.current_device(), openreg.current_stream()) == (1, stream)
    finally:
        openreg.set_stream(openreg.default_stream(1))
        openreg.set_device(0)


def test_streams_are_pytorchs_streams() -> None:
    stream = openreg.Stream(device=DEVICE_1, priority=-1)
    assert type(stream) is torch.Stream and stream.device == torch.device(DEVICE_1)
    assert isinstance(stream, openreg.Stream) and not isinstance(openreg.Event(), openreg.Stream)
    same = openreg.Stream(stream_id=stream.stream_id, device_index=1, device_type=stream.device_type)
    assert same == stream and hash(same) == hash(stream)
    assert stream.query()


def test_events_time_and_order_work() -> None:
    start, end = openreg.Event(enable_timing=True), openreg.Event(True)
    assert isinstance(start, openreg.Event) and type(start) is torch.Event
    start.record()
    torch.ones(1000, device=DEVICE).sum()
    end.record()
    end.synchronize()
    assert start.query() and start.elapsed_time(end) >= 0
    stream = openreg.Stream()
    stream.wait_event(end)
    stream.wait_stream(openreg.current_stream())
    assert stream.record_event(end) is end and end.query()


def test_events_without_timing_say_so() -> None:
    start, end = openreg.Event(), openreg.Event()
    start.record()
    end.record()
    with pytest.raises(ValueError, match="^Both events must be created with argument 'enable_timing=True'."):
        start.elapsed_time(end)


# ---- Random numbers --------------------------------------------------------------------------------------------------


def test_manual_seed_seeds_the_current_device_only() -> None:
    openreg.manual_seed_all(1)
    with openreg.device(1):
        openreg.manual_seed(7)
        assert openreg.initial_seed() == 7
    assert openreg.initial_seed() == 1


def test_torch_manual_seed_seeds_every_device() -> None:
    torch.manual_seed(11)
    assert [torch_generator_seed(index) for index in range(2)] == [11, 11]


def torch_generator_seed(index: int) -> int:
    with openreg.device(index):
        return openreg.initial_seed()


def test_seed_all_gives_every_device_the_same_random_seed() -> None:
    openreg.seed_all()
    assert torch_generator_seed(0) == torch_generator_seed(1)
    openreg.manual_seed_all(3)
    openreg.seed()
    assert torch_generator_seed(0) != 3 and torch_generator_seed(1) == 3


def test_a_saved_state_brings_the_same_numbers_back() -> None:
    state = openreg.get_rng_state(1)
    states = openreg.get_rng_state_all()
    assert state.device.type == "cpu" and state.dtype == torch.uint8 and torch.equal(states[1], state)
    first = torch.rand(8, device=DEVICE_1)
    openreg.set_rng_state(state, DEVICE_1)
    assert torch.equal(torch.rand(8, device=DEVICE_1), first)
    openreg.set_rng_state_all(states)
    assert torch.equal(torch.rand(8, device=DEVICE_1), first)


def test_the_devices_numbers_are_the_cpus_and_leave_its_generator_alone() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    on_device = torch.randn(100, device=DEVICE)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(on_device.cpu(), torch.randn(100))


# ---- Memory ----------------------------------------------------------------------------------------------------------


def test_memory_queries_follow_allocation_and_release() -> None:
    openreg.empty_cache()
    openreg.reset_peak_memory_stats(1)
    before, free = openreg.memory_allocated(1), openreg.mem_get_info(1)[0]
    x = torch.empty(64 << 20, dtype=torch.uint8, device=DEVICE_1)
    assert openreg.memory_allocated(1) - before == 64 << 20
    assert openreg.memory_reserved(1) >= openreg.memory_allocated(1)
    assert free - openreg.mem_get_info(1)[0] >= 64 << 20
    del x
    assert openreg.memory_allocated(1) == before
    assert openreg.max_memory_allocated(1) - before == 64 << 20
    assert openreg.max_memory_reserved(1) >= 64 << 20
    openreg.empty_cache()
    openreg.reset_peak_memory_stats(1)
    assert openreg.max_memory_allocated(1) == before
    assert openreg.mem_get_info(1)[0] == free


def test_memory_stats_has_cudas_keys() -> None:
    torch.ones(1, device=DEVICE)
    stats = openreg.memory_stats()
    assert stats["allocated_bytes.all.current"] == openreg.memory_allocated()
    nested = openreg.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == openreg.memory_allocated()
    openreg.reset_accumulated_memory_stats()
    assert openreg.memory_stats()["allocated_bytes.all.allocated"] == 0


def test_utilization_is_the_time_of_kernels_and_memory_usage_also_that_of_copies() -> None:
    x, host = torch.ones(1024, 1024, device=DEVICE_1), torch.ones(1024, 1024)
    assert (openreg.utilization(0), openreg.memory_usage(0)) == (0, 0)

    def measure(work: Callable[[], object]) -> tuple[int, int]:
        done = threading.Event()

        def repeat() -> None:
            while not done.is_set():
                work()
                openreg.synchronize(1)

        thread = threading.Thread(target=repeat)
        thread.start()
        try:
            assert openreg.utilization(0) == 0
            return openreg.utilization(1), openreg.memory_usage(1)
        finally:
            done.set()
            thread.join()

    computing, using = measure(lambda: x @ x)
    assert 0 < computing <= 100 and 0 < using <= 100
    computing, using = measure(lambda: x.copy_(host))
    assert computing == 0 and 0 < using <= 100


# ---- Types and mixed precision ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("BFloat16Tensor", torch.bfloat16),
        ("BoolTensor", torch.bool),
        ("ByteTensor", torch.uint8),
        ("CharTensor", torch.int8),
        ("DoubleTensor", torch.float64),
        ("FloatTensor", torch.float32),
        ("HalfTensor", torch.float16),
        ("IntTensor", torch.int32),
        ("LongTensor", torch.int64),
        ("ShortTensor", torch.int16),
    ],
)
def test_legacy_tensor_types_make_and_recognise_tensors(name: str, dtype: torch.dtype) -> None:
    tensor_type = getattr(openreg, name)
    x = tensor_type(2, 3)
    assert (x.shape, x.dtype, x.device) == ((2, 3), dtype, torch.device(DEVICE_0))
    assert x.type() == f"torch.{DEVICE}.{name}"
    assert isinstance(x, tensor_type) and not isinstance(x.cpu(), tensor_type)
    assert tensor_type([1, 0]).tolist() == [1, 0]


@pytest.mark.only_on("openreg", reason="CUDA's methods are PyTorch's own")
def test_tensor_module_and_storage_have_the_devices_methods() -> None:
    x = torch.ones(2).openreg(1)
    assert x.is_openreg and x.device == torch.device(DEVICE_1) and not torch.ones(2).is_openreg
    assert next(torch.nn.Linear(2, 2).openreg().parameters()).is_openreg
    assert torch.ones(2).untyped_storage().openreg().is_openreg


def test_mixed_precision_dtypes() -> None:
    assert openreg.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    assert openreg.is_bf16_supported()
    with openreg.amp.autocast(dtype=torch.bfloat16):
        assert torch.is_autocast_enabled(DEVICE) and torch.get_autocast_dtype(DEVICE) == torch.bfloat16
