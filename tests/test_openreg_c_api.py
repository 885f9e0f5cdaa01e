"""The simulated device through its C API: the ladder of openreg.h, then what needs a process of its own."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from openreg_c import (
    DEFAULT,
    DEVICE,
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HOST,
    HOST_TO_DEVICE,
    HOST_TO_HOST,
    UNREGISTERED,
    DeviceProp,
    HostFn,
    attributes,
    call,
    download,
    get_int,
    get_pointer,
    lib,
    library_path,
    malloc,
    memory_info,
    upload,
)
from openreg_process import INCLUDE, compile_program, cpp_compiler, error_of, output_of, raises, run_program, run_python

PAGE = 4096
MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_is_leaked() -> Iterator[None]:
    call("orSetDevice", 0)
    free_before, _ = memory_info()
    yield
    call("orSetDevice", 0)
    assert memory_info()[0] == free_before
    call("orDeviceSynchronize")


@pytest.fixture
def device_memory() -> Iterator[int]:
    """Two pages of device memory."""
    pointer = malloc(2 * PAGE)
    yield pointer
    call("orFree", pointer)


@pytest.fixture
def pinned_memory() -> Iterator[int]:
    """Two pages of pinned host memory."""
    pointer = get_pointer("orMallocHost", 2 * PAGE)
    yield pointer
    call("orFreeHost", pointer)


@pytest.fixture
def event() -> Iterator[int]:
    handle = get_pointer("orEventCreateWithFlags", 1)
    yield handle
    call("orEventDestroy", handle)


# ---- Version and errors --------------------------------------------------------------------------------------------


def test_the_api_version_is_the_headers() -> None:
    header = (INCLUDE / "openreg.h").read_text()
    assert f"#define OPENREG_API_VERSION {get_int('orGetApiVersion')}\n" in header


def test_error_codes_have_cudas_values_names_and_texts() -> None:
    expected = {
        0: ("orSuccess", "no error"),
        1: ("orErrorInvalidValue", "invalid argument"),
        2: ("orErrorMemoryAllocation", "out of memory"),
        3: ("orErrorInitializationError", "initialization error"),
        9: ("orErrorInvalidConfiguration", "invalid configuration argument"),
        21: ("orErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"),
        35: ("orErrorInsufficientDriver", "OpenReg driver version is insufficient for OpenReg runtime version"),
        46: ("orErrorDevicesUnavailable", "OpenReg-capable device(s) is/are busy or unavailable"),
        100: ("orErrorNoDevice", "no OpenReg-capable device is detected"),
        101: ("orErrorInvalidDevice", "invalid device ordinal"),
        214: ("orErrorECCUncorrectable", "uncorrectable ECC error encountered"),
        304: ("orErrorOperatingSystem", "OS call failed or operation not supported on this OS"),
        400: ("orErrorInvalidResourceHandle", "invalid resource handle"),
        600: ("orErrorNotReady", "device not ready"),
        700: ("orErrorIllegalAddress", "an illegal memory access was encountered"),
        710: ("orErrorAssert", "device-side assert triggered"),
        719: ("orErrorLaunchFailure", "unspecified launch failure"),
        800: ("orErrorNotPermitted", "operation not permitted"),
        801: ("orErrorNotSupported", "operation not supported"),
        -1: ("unrecognized error code", "unrecognized error code"),
        12345: ("unrecognized error code", "unrecognized error code"),
    }
    for code, texts in expected.items():
        assert (lib.orGetErrorName(code).decode(), lib.orGetErrorString(code).decode()) == texts


def test_the_last_error_stays_until_it_is_got() -> None:
    assert lib.orSetDevice(-1) == 101
    assert get_int("orGetDevice") == 0  # a call that succeeds changes nothing
    assert lib.orPeekAtLastError() == 101
    assert lib.orGetLastError() == 101
    assert lib.orGetLastError() == 0


def test_the_last_error_belongs_to_the_thread() -> None:
    lib.orGetLastError()
    seen: list[object] = []

    def fail() -> None:
        seen.append(lib.orGetLastErrorMessage())
        lib.orFree(1)
        seen.append(lib.orPeekAtLastError())

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert seen == [b"", 1]
    assert lib.orPeekAtLastError() == 0


def test_a_null_for_a_result_is_an_error_that_names_the_parameter() -> None:
    for name, arguments, message in (
        ("orGetApiVersion", (None,), "version is NULL; pass the address of an int"),
        ("orGetDeviceCount", (None,), "count is NULL; pass the address of an int"),
        ("orGetDevice", (None,), "device is NULL; pass the address of an int"),
        ("orGetDeviceProperties", (None, 0), "prop is NULL; pass the address of an orDeviceProp"),
        ("orDeviceCanAccessPeer", (None, 0, 0), "canAccess is NULL; pass the address of an int"),
        ("orMalloc", (None, 1), "devPtr is NULL; pass the address of a pointer"),
        ("orMallocHost", (None, 1), "ptr is NULL; pass the address of a pointer"),
        ("orMemGetInfo", (None, None), "free is NULL; pass the address of a size_t"),
        ("orPointerGetAttributes", (None, None), "attributes is NULL; pass the address of an orPointerAttributes"),
        ("orStreamCreate", (None,), "stream is NULL; pass the address of an orStream_t"),
        ("orStreamGetPriority", (None, None), "priority is NULL; pass the address of an int"),
        ("orStreamGetDevice", (None, None), "device is NULL; pass the address of an int"),
        ("orEventCreate", (None,), "event is NULL; pass the address of an orEvent_t"),
        ("orEventElapsedTime", (None, None, None), "ms is NULL; pass the address of a float"),
        ("orLaunchHostFunc", (None, HostFn(), None), "fn is NULL; pass a function"),
        ("orLaunch", (None, HostFn(), None, 0), "fn is NULL; pass a function"),
    ):
        with raises("orErrorInvalidValue", f"{name}: {message}"):
            call(name, *arguments)


# ---- Environment ---------------------------------------------------------------------------------------------------

COUNT = "print(get_int('orGetDeviceCount'))"
CAPACITY = "print(memory_info()[1])"
ALLOWED_COUNT = "a number of devices from 1 to 64"
ALLOWED_MEMORY = "a number of bytes per device from 1M to 16384G, with an optional suffix K, M or G (for example 16G)"
ALLOWED_VISIBLE = (
    "different device indices separated by commas (for example 0,1), or an empty value to hide every device"
)
ALLOWED_EXECUTION = "inline, async or chaos"
ALLOWED_SEED = "an integer from 0 to 18446744073709551615"


def test_there_are_two_devices_of_16_gib_by_default() -> None:
    assert output_of(f"{COUNT};{CAPACITY}").split() == ["2", str(16 << 30)]


@pytest.mark.parametrize("count", ["1", "3", "64"])
def test_device_count_is_configurable(count: str) -> None:
    assert output_of(COUNT, OPENREG_DEVICE_COUNT=count) == count


@pytest.mark.parametrize(
    ("memory", "size"),
    [("16g", 16 << 30), ("1M", MIB), ("2048k", 2 * MIB), ("1234567", 1234567), ("16384G", 1 << 44)],
)
def test_device_memory_is_configurable(memory: str, size: int) -> None:
    assert output_of(CAPACITY, OPENREG_DEVICE_MEMORY=memory, OPENREG_DEVICE_COUNT="1") == str(size)


@pytest.mark.parametrize(
    ("visible", "count"),
    [("", 0), (" ", 0), ("1", 1), ("1,0", 2), (" 0 , 2 ", 2), ("5", 0), ("-1", 0), ("0,5,1", 1), ("2,-1,0,1", 1)],
)
def test_visible_devices_follows_cuda(visible: str, count: int) -> None:
    assert output_of(COUNT, OPENREG_VISIBLE_DEVICES=visible, OPENREG_DEVICE_COUNT="3") == str(count)


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        *(
            ("OPENREG_DEVICE_COUNT", value, ALLOWED_COUNT)
            for value in ("", "0", "65", "-1", "two", "2x", " 2", "9" * 30)
        ),
        *(
            ("OPENREG_DEVICE_MEMORY", value, ALLOWED_MEMORY)
            for value in ("", "abc", "-1", "0", "1K", "G", "1.5G", "16GB", "16 G", "16385G", "9" * 30)
        ),
        *(("OPENREG_VISIBLE_DEVICES", value, ALLOWED_VISIBLE) for value in ("abc", "0,", ",", "0 1", "0,0", "0x1")),
        *(("OPENREG_EXECUTION", value, ALLOWED_EXECUTION) for value in ("", "1", "Inline", "async ", "asynchronous")),
        *(("OPENREG_CHAOS_SEED", value, ALLOWED_SEED) for value in ("", "-1", "0x10", "1.0", str(1 << 64))),
    ],
)
def test_a_bad_variable_fails_every_call_and_says_what_is_allowed(variable: str, value: str, allowed: str) -> None:
    sentence = f'{variable}="{value}" is not valid: expected {allowed}'
    code = "for name, arguments in calls:\n    try: call(name, *arguments)\n    except OpenRegError as e: print(e)"
    calls = "calls = ('orGetDeviceCount', (ctypes.c_int(),)), ('orSetDevice', (0,)), ('orMalloc', (POINTER(), 1))"
    lines = output_of(f"{calls}\n{code}", **{variable: value}).splitlines()
    assert lines == [
        f"orErrorInvalidConfiguration: {name}: {sentence}" for name in ("orGetDeviceCount", "orSetDevice", "orMalloc")
    ]


def test_without_a_visible_device_calls_say_so() -> None:
    assert error_of("malloc(1)", OPENREG_VISIBLE_DEVICES="") == (
        "orErrorNoDevice",
        "orMalloc: no device is visible: OPENREG_VISIBLE_DEVICES hides all 2; unset it to see them",
    )
    assert error_of("call('orSetDevice', 0)", OPENREG_VISIBLE_DEVICES="7")[0] == "orErrorNoDevice"
    assert error_of("get_int('orGetDevice')", OPENREG_VISIBLE_DEVICES="7")[0] == "orErrorNoDevice"


# ---- Devices -------------------------------------------------------------------------------------------------------


def test_the_current_device_belongs_to_the_thread_and_starts_as_0() -> None:
    code = """
        import threading
        call("orSetDevice", 1)
        seen = []
        thread = threading.Thread(target=lambda: seen.append(get_int("orGetDevice")))
        thread.start()
        thread.join()
        print(seen, get_int("orGetDevice"))
    """
    assert output_of(code) == "[0] 1"


@pytest.mark.parametrize("device", [-1, 2, 1 << 30])
def test_a_device_that_does_not_exist_is_an_error(device: int) -> None:
    advice = "OPENREG_DEVICE_COUNT and OPENREG_VISIBLE_DEVICES give the number of devices"
    for function, parameter, code in (
        ("orSetDevice", "device", f"call('orSetDevice', {device})"),
        ("orGetDeviceProperties", "device", f"call('orGetDeviceProperties', ctypes.byref(DeviceProp()), {device})"),
        ("orDeviceCanAccessPeer", "device", f"get_int('orDeviceCanAccessPeer', {device}, 0)"),
        ("orDeviceCanAccessPeer", "peer", f"get_int('orDeviceCanAccessPeer', 0, {device})"),
        ("orDeviceGetDefaultStream", "device", f"get_pointer('orDeviceGetDefaultStream', {device})"),
    ):
        assert error_of(code) == (
            "orErrorInvalidDevice",
            f"{function}: {parameter} is {device}, but must be from 0 to 1; {advice}",
        )


def test_device_properties_describe_the_device() -> None:
    properties = DeviceProp()
    call("orGetDeviceProperties", ctypes.byref(properties), 0)
    assert properties.name == b"OpenReg simulated accelerator"
    assert properties.totalGlobalMem == memory_info()[1]
    # An A100's: CUDA's programming guide, technical specifications for compute capability 8.0.
    assert (properties.major, properties.minor, properties.multiProcessorCount) == (8, 0, 108)
    assert (properties.warpSize, properties.maxThreadsPerBlock) == (32, 1024)
    assert (properties.maxThreadsPerMultiProcessor, properties.regsPerMultiprocessor) == (2048, 65536)
    shared = properties.sharedMemPerBlock, properties.sharedMemPerBlockOptin, properties.sharedMemPerMultiprocessor
    assert shared == (48 << 10, 163 << 10, 164 << 10)
    assert (properties.l2CacheSize, properties.memoryBusWidth) == (40 << 20, 5120)
    assert (properties.clockRate, properties.memoryClockRate) == (1410000, 1215000)
    assert not properties.integrated and not properties.isMultiGpuBoard
    assert (properties.unifiedAddressing, properties.canMapHostMemory) == (True, True)
    assert (properties.asyncEngineCount, properties.concurrentKernels) == (1, False)
    assert properties.streamPrioritiesSupported


def test_two_devices_differ_in_their_uuid_and_their_place_on_the_bus() -> None:
    both = [DeviceProp(), DeviceProp()]
    for device, properties in enumerate(both):
        call("orGetDeviceProperties", ctypes.byref(properties), device)
    maker = b"OpenReg"[:15].ljust(15, b"\x00")
    assert [bytes(properties.uuid) for properties in both] == [maker + b"\x00", maker + b"\x01"]
    assert [(p.pciDomainID, p.pciBusID, p.pciDeviceID) for p in both] == [(0, 1, 0), (0, 2, 0)]


def test_each_device_reaches_every_other_but_not_itself() -> None:
    code = "print([get_int('orDeviceCanAccessPeer', a, b) for a in (0, 1) for b in (0, 1)])"
    assert output_of(code) == "[0, 1, 1, 0]"


def test_asking_for_devices_reserves_no_memory_and_starts_no_thread() -> None:
    code = """
        def address_space():
            return int(open("/proc/self/statm").read().split()[0]) * 4096
        before = address_space()
        get_int("orGetDeviceCount"), get_int("orGetDevice"), call("orSetDevice", 1)
        asked = address_space() - before
        malloc(1)
        started = address_space() - before
        print(asked < 1 << 20, started >= 128 << 30, len(os.listdir("/proc/self/task")))
    """
    assert output_of(code) == "True True 1"


# ---- Memory --------------------------------------------------------------------------------------------------------


def test_allocations_are_aligned_counted_and_given_back() -> None:
    free, total = memory_info()
    small, large = malloc(1), malloc(3 * MIB)
    assert small % PAGE == 0
    assert large % (2 * MIB) == 0
    assert memory_info() == (free - PAGE - 3 * MIB, total)
    call("orFree", small)
    call("orFree", large)
    assert memory_info() == (free, total)


def test_allocating_nothing_gives_null_and_freeing_null_is_fine() -> None:
    assert malloc(0) == 0
    assert get_pointer("orMallocHost", 0) == 0
    call("orFree", None)
    call("orFreeHost", None)


def test_freed_memory_goes_back_to_the_system() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE

    pointer = malloc(64 * MIB)
    before = resident()
    call("orMemset", pointer, 1, 64 * MIB)
    assert resident() - before > 60 * MIB
    call("orFree", pointer)
    assert resident() - before < 4 * MIB


def test_out_of_memory_names_the_figures_and_a_smaller_request_succeeds() -> None:
    code = """
        first = malloc(6 << 20)
        for size in 11 << 20, 5 << 20, (1 << 64) - 1:
            pointer = POINTER(1)
            try:
                call("orMalloc", ctypes.byref(pointer), size)
            except OpenRegError as error:
                print(error.name, error.message, pointer.value)
        second = malloc(4 << 20)
        print(memory_info())
        call("orFree", first), call("orFree", second)
        print(memory_info(), malloc(10 << 20) != 0)
    """
    advice = "or set OPENREG_DEVICE_MEMORY higher None"
    tried = "orErrorMemoryAllocation orMalloc: tried to allocate"
    capacity = "on device 0, which has a capacity of 10.00 MiB"
    assert output_of(code, OPENREG_DEVICE_MEMORY="10M").splitlines() == [
        f"{tried} 11.00 MiB {capacity}. Ask for less, {advice}",
        f"{tried} 5.00 MiB {capacity} of which 4.00 MiB is free. Free memory, {advice}",
        f"{tried} 16777216.00 TiB {capacity}. Ask for less, {advice}",
        f"(0, {10 * MIB})",
        f"({10 * MIB}, {10 * MIB}) True",
    ]


def test_capacity_survives_fragmentation() -> None:
    code = """
        blocks = [malloc(4096) for _ in range(256)]
        for block in blocks[::2]:
            call("orFree", block)
        large = malloc(128 * 4096)  # no hole holds it: the window is larger than the capacity
        print(memory_info()[0], large not in blocks)
    """
    assert output_of(code, OPENREG_DEVICE_MEMORY="1M") == "0 True"


def test_more_holes_than_the_system_allows_mappings_do_no_harm() -> None:
    code = """
        blocks = [malloc(4096) for _ in range(140_000)]  # vm.max_map_count is 65530 by default
        for block in blocks[::2]:
            call("orFree", block)
        again = [malloc(4096) for _ in blocks[::2]]
        for block in again + blocks[1::2]:
            upload(block, b"x")
            call("orFree", block)
        free, total = memory_info()
        print(free == total)
    """
    assert output_of(code) == "True"


def test_what_the_host_cannot_back_is_refused_not_killed_later() -> None:
    variables = {"OPENREG_DEVICE_COUNT": "1", "OPENREG_DEVICE_MEMORY": "16384G"}
    name, message = error_of("malloc(8 << 40)", **variables)
    assert name == "orErrorMemoryAllocation"
    limit = r"(its memory \(MemAvailable in /proc/meminfo\)|the memory cgroup /\S+)"
    assert re.fullmatch(
        rf"orMalloc: the host cannot back 8\.00 TiB more: {limit} has \S+ [GM]iB left, and \S+ \w+ granted earlier may "
        r"still be touched\. Free memory, or set OPENREG_DEVICE_MEMORY to what the host can back",
        message,
    )
    # Not by many requests of which each alone could be backed, either.
    name, _ = error_of("while True: malloc(1 << 30)", **variables)
    assert name == "orErrorMemoryAllocation"
    assert output_of(f"try: malloc(8 << 40)\nexcept OpenRegError: print(malloc({MIB}) != 0)", **variables) == "True"


def test_too_little_address_space_names_the_limit() -> None:
    code = """
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        malloc(1)
    """
    assert error_of(code) == (
        "orErrorMemoryAllocation",
        "orMalloc: cannot reserve 128.00 GiB of address space for 2 device(s) of 16.00 GiB (four times their memory): "
        "Cannot allocate memory; RLIMIT_AS (ulimit -v) is 8.00 GiB. Raise it, or set OPENREG_DEVICE_MEMORY or "
        "OPENREG_DEVICE_COUNT lower",
    )
    assert output_of(code + "\n        print('fits')", OPENREG_DEVICE_MEMORY="512M") == "fits"


def test_too_little_address_space_for_pinned_memory_names_the_limit() -> None:
    code = """
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        get_pointer("orMallocHost", 9 << 30)
    """
    name, message = error_of(code, OPENREG_DEVICE_MEMORY="512M")
    assert name == "orErrorMemoryAllocation"
    assert message == (
        "orMallocHost: cannot allocate 9.00 GiB of host memory: Cannot allocate memory; RLIMIT_AS (ulimit -v) is 8.00 "
        "GiB. Free memory or raise the limit; a lower OPENREG_DEVICE_MEMORY leaves more address space"
    ) or message.startswith("orMallocHost: the host cannot back 9.00 GiB more: ")


def test_freeing_what_was_not_allocated_is_an_error(device_memory: int, pinned_memory: int) -> None:
    middle = "it was freed before, or points into the middle of one"
    with raises(
        "orErrorInvalidValue",
        f"orFree: {device_memory + PAGE:#x} is not the start of an allocation of device 0: {middle}",
    ):
        call("orFree", device_memory + PAGE)
    pointer = malloc(1)
    call("orFree", pointer)
    with raises("orErrorInvalidValue", f"orFree: {pointer:#x} is not the start of an allocation of device 0: {middle}"):
        call("orFree", pointer)
    with raises(
        "orErrorInvalidValue",
        f"orFree: {pinned_memory:#x} is not device memory; pinned host memory is freed by orFreeHost",
    ):
        call("orFree", pinned_memory)
    with raises(
        "orErrorInvalidValue",
        f"orFreeHost: {device_memory:#x} is not the start of an allocation of pinned memory: it was freed before, or "
        "orMallocHost did not return it",
    ):
        call("orFreeHost", device_memory)


def test_kernels_reach_device_memory_through_the_kernel_pointer(device_memory: int) -> None:
    kernel = lib.orGetKernelPointer(device_memory + 5)
    assert kernel != device_memory + 5
    ctypes.memmove(kernel, b"seen", 4)
    assert download(device_memory + 5, 4) == b"seen"
    assert lib.orGetDevicePointer(kernel) == device_memory + 5
    assert lib.orGetKernelPointer(kernel) == kernel
    assert lib.orGetDevicePointer(device_memory) == device_memory


def test_other_pointers_have_no_kernel_pointer_of_their_own(pinned_memory: int) -> None:
    for pointer in (None, 1, ctypes.addressof(ctypes.c_int()), pinned_memory, 2**64 - 1):
        assert lib.orGetKernelPointer(pointer) == pointer
        assert lib.orGetDevicePointer(pointer) == pointer


def test_pointers_come_back_unchanged_before_the_start() -> None:
    code = "print([lib.orGetKernelPointer(p) == lib.orGetDevicePointer(p) == p for p in (None, 1, id(lib), 2**64 - 1)])"
    assert output_of(code) == "[True, True, True, True]"


def test_pointer_attributes_say_what_a_pointer_is(device_memory: int, pinned_memory: int) -> None:
    found = attributes(device_memory + 100)
    assert (found.type, found.device, found.base, found.size) == (DEVICE, 0, device_memory, 2 * PAGE)
    assert (found.devicePointer, found.hostPointer) == (device_memory + 100, None)

    found = attributes(pinned_memory + 100)
    assert (found.type, found.device, found.base, found.size) == (HOST, 0, pinned_memory, 2 * PAGE)
    assert (found.devicePointer, found.hostPointer) == (pinned_memory + 100, pinned_memory + 100)

    ordinary = ctypes.addressof(ctypes.c_int())
    found = attributes(ordinary)
    assert (found.type, found.device, found.base, found.size) == (UNREGISTERED, -1, None, 0)
    assert (found.devicePointer, found.hostPointer) == (None, ordinary)

    freed = malloc(1)
    call("orFree", freed)
    for nowhere in (freed, device_memory + 2 * PAGE, None):
        found = attributes(nowhere)
        assert (found.type, found.device, found.base, found.size) == (UNREGISTERED, -1, None, 0)
        assert (found.devicePointer, found.hostPointer) == (None, None)


def test_attributes_and_free_know_the_device_of_a_pointer() -> None:
    code = """
        pointers = []
        for device in range(3):
            call("orSetDevice", device)
            pointers.append((malloc(100), get_pointer("orMallocHost", 100)))
        call("orSetDevice", 1)
        print([[attributes(p).device for p in pair] for pair in pointers])
        for device, pinned in pointers:
            call("orFree", device), call("orFreeHost", pinned)
        for device in range(3):
            call("orSetDevice", device)
            free, total = memory_info()
            print(free == total)
    """
    assert output_of(code, OPENREG_DEVICE_COUNT="3").split("\n") == ["[[0, 0], [1, 1], [2, 2]]", "True", "True", "True"]


def test_unprotected_memory_is_the_same_memory(device_memory: int) -> None:
    upload(device_memory, b"before")
    call("orMemoryUnprotect", device_memory)
    call("orMemoryUnprotect", device_memory)  # again: nothing changes
    assert attributes(device_memory).hostPointer == device_memory
    assert ctypes.string_at(device_memory, 6) == b"before"
    ctypes.memmove(device_memory + PAGE, b"host", 4)
    assert download(device_memory + PAGE, 4) == b"host"
    upload(device_memory, b"kernel")
    assert ctypes.string_at(device_memory, 6) == b"kernel"
    call("orMemoryProtect", device_memory)
    call("orMemoryProtect", device_memory)
    assert attributes(device_memory).hostPointer is None
    upload(device_memory, b"later!")
    call("orMemoryUnprotect", device_memory)
    assert ctypes.string_at(device_memory, 6) == b"later!"


def test_unprotecting_does_not_commit_what_was_never_touched() -> None:
    def shared_kilobytes() -> int:
        return int(re.findall(r"RssShmem:\s+(\d+) kB", Path("/proc/self/status").read_text())[0])

    pointer = malloc(64 * MIB)
    call("orMemset", pointer, 1, 1)
    before = shared_kilobytes()
    call("orMemoryUnprotect", pointer)
    assert shared_kilobytes() < before + 1024
    open_files = len(os.listdir("/proc/self/fd"))
    call("orFree", pointer)
    assert len(os.listdir("/proc/self/fd")) == open_files - 1
    assert malloc(64 * MIB) == pointer  # the range is usable again, and protected
    assert attributes(pointer).hostPointer is None
    assert download(pointer, 1) == b"\0"
    call("orFree", pointer)


def test_unprotecting_takes_the_start_of_an_allocation(device_memory: int, pinned_memory: int) -> None:
    advice = "pass the pointer that orMalloc returned"
    for name in ("orMemoryUnprotect", "orMemoryProtect"):
        with raises(
            "orErrorInvalidValue",
            f"{name}: {device_memory + 1:#x} is not the start of an allocation of device 0; {advice}",
        ):
            call(name, device_memory + 1)
        with raises("orErrorInvalidValue", f"{name}: {pinned_memory:#x} is not device memory; {advice}"):
            call(name, pinned_memory)


# ---- Copies --------------------------------------------------------------------------------------------------------


@pytest.fixture
def places(device_memory: int, pinned_memory: int) -> Iterator[dict[str, tuple[str, int]]]:
    pageable = ctypes.create_string_buffer(2 * PAGE)
    yield {
        "device": ("device", device_memory),
        "pinned": ("host", pinned_memory),
        "pageable": ("host", ctypes.addressof(pageable)),
    }


KINDS = {
    ("host", "host"): HOST_TO_HOST,
    ("device", "host"): HOST_TO_DEVICE,
    ("host", "device"): DEVICE_TO_HOST,
    ("device", "device"): DEVICE_TO_DEVICE,
}
KIND_NAMES = ("orMemcpyHostToHost", "orMemcpyHostToDevice", "orMemcpyDeviceToHost", "orMemcpyDeviceToDevice")


@pytest.mark.parametrize("asynchronous", [False, True], ids=["orMemcpy", "orMemcpyAsync"])
@pytest.mark.parametrize("source", ["device", "pinned", "pageable"])
@pytest.mark.parametrize("destination", ["device", "pinned", "pageable"])
def test_copies_in_every_direction(
    places: dict[str, tuple[str, int]], stream: int, destination: str, source: str, asynchronous: bool
) -> None:
    to_side, to = places[destination]
    from_side, start = places[source]
    name = "orMemcpyAsync" if asynchronous else "orMemcpy"
    queue = (stream,) if asynchronous else ()
    right = KINDS[to_side, from_side]
    for kind in (right, DEFAULT):
        data = os.urandom(PAGE - 7)
        upload(start + 3, data)
        call(name, to + PAGE + 1, start + 3, len(data), kind, *queue)
        call("orStreamSynchronize", stream)
        assert download(to + PAGE + 1, len(data)) == data
    for kind in range(4):
        if kind != right:
            with raises(
                "orErrorInvalidMemcpyDirection",
                f"{name}: kind is {KIND_NAMES[kind]}, but dst is {to_side} memory and src is {from_side} memory; "
                "orMemcpyDefault takes the direction from the pointers",
            ):
                call(name, to + PAGE + 1, start + 3, 1, kind, *queue)


def test_a_kind_that_does_not_exist_is_an_error(device_memory: int) -> None:
    for kind in (-1, 5):
        with raises("orErrorInvalidMemcpyDirection", f"orMemcpy: kind is {kind}, which is no orMemcpyKind (0 to 4)"):
            call("orMemcpy", device_memory, device_memory, 1, kind)


def test_peer_copies() -> None:
    code = """
        first = malloc(8)
        upload(first, b"peerpeer")
        call("orSetDevice", 1)
        second = malloc(8)
        call("orMemcpy", second, first, 8, DEVICE_TO_DEVICE)
        call("orMemcpyAsync", second, first, 4, DEFAULT, None)
        print(download(second, 8))
    """
    assert output_of(code) == "b'peerpeer'"


@pytest.mark.parametrize("place", ["device", "pinned"])
def test_a_range_that_leaves_its_allocation_is_an_error(places: dict[str, tuple[str, int]], place: str) -> None:
    pointer = places[place][1]
    other = places["pageable"][1]
    for size, offset, left in ((2 * PAGE + 1, 0, 2 * PAGE), (2, 2 * PAGE - 1, 1), (2**64 - 1, 16, 2 * PAGE - 16)):
        problem = f"leave its allocation, which has {2 * PAGE} bytes, {left} of them from there on"
        at = pointer + offset
        with raises("orErrorInvalidValue", f"orMemcpy: {size} bytes at dst ({at:#x}) {problem}"):
            call("orMemcpy", at, other, size, DEFAULT)
        with raises("orErrorInvalidValue", f"orMemcpy: {size} bytes at src ({at:#x}) {problem}"):
            call("orMemcpy", other, at, size, DEFAULT)
        with raises("orErrorInvalidValue", f"orMemset: {size} bytes at devPtr ({at:#x}) {problem}"):
            call("orMemset", at, 0, size)


def test_a_copy_of_freed_memory_is_an_error() -> None:
    pointer = malloc(8)
    call("orFree", pointer)
    with raises(
        "orErrorInvalidValue",
        f"orMemcpy: src ({pointer:#x}) lies in no allocation of device 0: it was freed, or is past the end of one",
    ):
        download(pointer, 8)


def test_copying_nothing_succeeds_and_null_with_a_size_does_not(device_memory: int) -> None:
    call("orMemcpy", None, None, 0, DEFAULT)
    call("orMemset", None, 0, 0)
    with raises("orErrorInvalidValue", "orMemcpy: dst is NULL, but 3 bytes are to be accessed"):
        call("orMemcpy", None, device_memory, 3, DEFAULT)
    with raises("orErrorInvalidValue", "orMemcpy: src is NULL, but 3 bytes are to be accessed"):
        call("orMemcpy", device_memory, None, 3, DEFAULT)
    with raises("orErrorInvalidValue", "orMemset: devPtr is NULL, but 3 bytes are to be accessed"):
        call("orMemset", None, 0, 3)


def test_overlapping_copies_are_right(device_memory: int) -> None:
    upload(device_memory, b"abcdef")
    call("orMemcpy", device_memory + 2, device_memory, 6, DEVICE_TO_DEVICE)
    assert download(device_memory, 8) == b"ababcdef"


def test_memset_fills_device_and_pinned_memory_only(device_memory: int, pinned_memory: int, stream: int) -> None:
    call("orMemset", device_memory, 0x1FF, PAGE)  # of the value only the low byte counts, as in CUDA
    assert download(device_memory, PAGE + 1) == b"\xff" * PAGE + b"\0"
    call("orMemsetAsync", pinned_memory + 1, 7, 3, stream)
    call("orStreamSynchronize", stream)
    assert ctypes.string_at(pinned_memory, 5) == b"\0\7\7\7\0"
    ordinary = ctypes.create_string_buffer(8)
    with raises(
        "orErrorInvalidValue",
        f"orMemset: devPtr ({ctypes.addressof(ordinary):#x}) is ordinary host memory; the device sets its own and "
        "pinned memory",
    ):
        call("orMemset", ctypes.addressof(ordinary), 0, 8)


# ---- Streams and events --------------------------------------------------------------------------------------------


def stream_int(name: str, handle: int | None) -> int:
    value = ctypes.c_int(-99)
    call(name, handle, ctypes.byref(value))
    return value.value


def test_stream_priorities_are_moved_into_the_range() -> None:
    least, greatest = ctypes.c_int(), ctypes.c_int()
    call("orDeviceGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
    assert (least.value, greatest.value) == (0, -3)
    call("orDeviceGetStreamPriorityRange", None, None)
    for asked, given in ((0, 0), (-1, -1), (-3, -3), (-100, -3), (5, 0)):
        handle = get_pointer("orStreamCreateWithPriority", 0, asked)
        assert stream_int("orStreamGetPriority", handle) == given
        call("orStreamDestroy", handle)
    assert stream_int("orStreamGetPriority", None) == 0


def test_a_stream_belongs_to_the_device_it_was_made_on() -> None:
    code = """
        call("orSetDevice", 1)
        stream = get_pointer("orStreamCreate")
        device = ctypes.c_int()
        call("orStreamGetDevice", None, ctypes.byref(device))
        print(device.value)
        call("orSetDevice", 0)
        call("orStreamGetDevice", stream, ctypes.byref(device))
        print(device.value)
        event = get_pointer("orEventCreate")
        call("orStreamGetDevice", get_pointer("orDeviceGetDefaultStream", 1), ctypes.byref(device))
        print(device.value)
        call("orStreamWaitEvent", stream, event, 0)  # of another device: waiting may
        call("orEventRecord", event, stream)  # recording may not
    """
    result = run_python(code)
    assert result.stdout.split() == ["1", "1", "1"]
    assert result.stderr.endswith(
        "OpenRegError: orErrorInvalidResourceHandle: orEventRecord: the event is of device 0, but the stream is of "
        "device 1; create the event while the stream's device is current\n"
    )


def test_a_new_stream_and_a_new_event_are_done(stream: int, event: int) -> None:
    for handle in (stream, None):
        call("orStreamQuery", handle)
        call("orStreamSynchronize", handle)
    call("orEventQuery", event)
    call("orEventSynchronize", event)
    call("orStreamWaitEvent", stream, event, 0)


def test_events_time_what_lies_between_them(stream: int, event: int) -> None:
    end = get_pointer("orEventCreateWithFlags", 1)
    pause = HostFn(lambda _: threading.Event().wait(0.02) and None)
    call("orEventRecord", event, stream)
    call("orLaunchHostFunc", stream, pause, None)
    call("orEventRecord", end, stream)
    call("orEventSynchronize", end)
    milliseconds = ctypes.c_float()
    call("orEventElapsedTime", ctypes.byref(milliseconds), event, end)
    assert 20 <= milliseconds.value < 2000
    call("orEventRecord", event, stream)  # recording again moves the mark
    call("orEventSynchronize", event)
    call("orEventElapsedTime", ctypes.byref(milliseconds), event, end)
    assert milliseconds.value <= 0
    call("orEventDestroy", end)


def test_elapsed_time_needs_two_recorded_events_with_timing(event: int) -> None:
    milliseconds = ctypes.c_float()
    with raises(
        "orErrorInvalidResourceHandle", "orEventElapsedTime: start was never recorded; call orEventRecord first"
    ):
        call("orEventElapsedTime", ctypes.byref(milliseconds), event, event)
    call("orEventRecord", event, None)
    untimed = get_pointer("orEventCreate")
    call("orEventRecord", untimed, None)
    with raises(
        "orErrorInvalidResourceHandle",
        "orEventElapsedTime: end was created without timing; create it with orEventCreateWithFlags(event, "
        "orEventEnableTiming)",
    ):
        call("orEventElapsedTime", ctypes.byref(milliseconds), event, untimed)
    call("orEventDestroy", untimed)


def test_flags_that_do_not_exist_are_errors(stream: int, event: int) -> None:
    handle = ctypes.c_void_p()
    with raises("orErrorInvalidValue", "orStreamCreateWithPriority: flags is 2; pass 0 or orStreamPersistent (1)"):
        call("orStreamCreateWithPriority", ctypes.byref(handle), 2, 0)
    with raises("orErrorInvalidValue", "orStreamWaitEvent: flags is 4; no flag exists, pass 0"):
        call("orStreamWaitEvent", stream, event, 4)
    with raises(
        "orErrorInvalidValue",
        "orLaunch: flags is 4; pass orLaunchDefault (0), orLaunchMayRunInline (1), orLaunchNoWait (2), or both",
    ):
        call("orLaunch", stream, HostFn(lambda _: None), None, 4)
    with raises(
        "orErrorInvalidValue",
        "orEventCreateWithFlags: flags is 2; pass orEventDisableTiming (0) or orEventEnableTiming (1)",
    ):
        call("orEventCreateWithFlags", ctypes.byref(handle), 2)


def test_a_destroyed_handle_is_an_error_everywhere(stream: int, event: int, device_memory: int) -> None:
    gone = get_pointer("orStreamCreate")
    call("orStreamDestroy", gone)
    nothing = HostFn(lambda _: None)
    value = ctypes.c_int()
    for handle in (gone, 1, 0xDEADBEEF000, event):
        for name, arguments in (
            ("orStreamDestroy", (handle,)),
            ("orStreamQuery", (handle,)),
            ("orStreamSynchronize", (handle,)),
            ("orStreamGetPriority", (handle, ctypes.byref(value))),
            ("orStreamGetDevice", (handle, ctypes.byref(value))),
            ("orStreamWaitEvent", (handle, event, 0)),
            ("orEventRecord", (event, handle)),
            ("orLaunchHostFunc", (handle, nothing, None)),
            ("orLaunch", (handle, nothing, None, 0)),
            ("orMemcpyAsync", (device_memory, device_memory, 1, DEFAULT, handle)),
            ("orMemcpyWithStream", (device_memory, device_memory, 1, DEFAULT, handle)),
            ("orMemsetAsync", (device_memory, 0, 1, handle)),
        ):
            with raises(
                "orErrorInvalidResourceHandle",
                f"{name}: stream {handle:#x} does not exist; it was destroyed, or is no stream",
            ):
                call(name, *arguments)

    gone = get_pointer("orEventCreate")
    call("orEventDestroy", gone)
    milliseconds = ctypes.c_float()
    for dead, shown in ((gone, f"{gone:#x}"), (None, "(nil)"), (stream, f"{stream:#x}")):
        for name, event_arguments in (
            ("orEventDestroy", (dead,)),
            ("orEventQuery", (dead,)),
            ("orEventSynchronize", (dead,)),
            ("orEventRecord", (dead, stream)),
            ("orStreamWaitEvent", (stream, dead, 0)),
            ("orEventElapsedTime", (ctypes.byref(milliseconds), dead, event)),
            ("orEventElapsedTime", (ctypes.byref(milliseconds), event, dead)),
        ):
            with raises(
                "orErrorInvalidResourceHandle",
                f"{name}: event {shown} does not exist; it was destroyed, or is no event",
            ):
                call(name, *event_arguments)


def test_the_default_stream_has_a_handle_and_cannot_be_destroyed() -> None:
    handle = get_pointer("orDeviceGetDefaultStream", 0)
    assert handle == get_pointer("orDeviceGetDefaultStream", 0)
    assert (stream_int("orStreamGetDevice", handle), stream_int("orStreamGetPriority", handle)) == (0, 0)
    for default in (None, handle):
        message = "orStreamDestroy: a default or persistent stream cannot be destroyed"
        with raises("orErrorInvalidResourceHandle", message):
            call("orStreamDestroy", default)
    call("orStreamSynchronize", handle)


# ---- Launches ------------------------------------------------------------------------------------------------------


def test_host_functions_run_in_order_with_their_data(stream: int) -> None:
    seen: list[int | None] = []
    append = HostFn(seen.append)
    for data in (1, 2, None, 3):
        call("orLaunchHostFunc", stream, append, data)
    call("orLaunchHostFunc", None, append, 4)
    call("orStreamSynchronize", stream)
    call("orDeviceSynchronize")
    assert [data for data in seen if data != 4] == [1, 2, None, 3]
    assert 4 in seen


@pytest.fixture(scope="module")
def compiler() -> str:
    return cpp_compiler()


def test_the_header_is_plain_c(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler: cc, gcc or clang")
    (tmp_path / "program.c").write_text('#include "openreg.h"\nint main(void) { return orSuccess; }\n')
    flags = ("-std=c11", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}")
    subprocess.run([compiler, *flags, "-fsyntax-only", tmp_path / "program.c"], check=True)


LAUNCHES = r"""
#include "openreg_launch.h"

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thread>

void scale(float* data, size_t count, float factor) {
  auto* values = static_cast<float*>(orGetKernelPointer(data));
  for (size_t i = 0; i < count; ++i) values[i] *= factor;
}

void show(const char* what, orError_t error) {
  std::printf("%s: %s%s%s\n", what, orGetErrorName(error), error ? ": " : "", error ? orGetLastErrorMessage() : "");
}

int main() {
  float values[3] = {1, 2, 3};
  void* data = nullptr;
  orStream_t stream = nullptr, other = nullptr;
  orEvent_t event = nullptr;
  orMalloc(&data, sizeof(values));
  orStreamCreate(&stream);
  orStreamCreate(&other);
  orEventCreate(&event);

  orMemcpyAsync(data, values, sizeof(values), orMemcpyHostToDevice, stream);
  show("launch", orLaunchKernel(stream, scale, static_cast<float*>(data), size_t{3}, 2.0f));
  show("launch", orLaunchKernel(stream, [owned = std::make_unique<int>(3), data](int n) {
    scale(static_cast<float*>(data), n, static_cast<float>(*owned));
  }, 3));
  orMemcpyAsync(values, data, sizeof(values), orMemcpyDeviceToHost, stream);
  show("synchronize", orStreamSynchronize(stream));
  std::printf("%g %g %g\n", values[0], values[1], values[2]);

  auto fail = [](const char* why) { throw std::runtime_error(why); };
  show("launch", orLaunchKernel(stream, fail, "first"));
  show("launch", orLaunchKernel(stream, fail, "second"));
  show("launch", orLaunchKernel(other, [] { throw 1; }));
  show("launch", orLaunchKernel(nullptr, fail, "default"));
  show("stream", orStreamSynchronize(stream));
  show("stream", orStreamSynchronize(stream));
  show("memcpy", orMemcpy(values, data, sizeof(values), orMemcpyDefault));
  show("memcpy", orMemcpy(values, data, sizeof(values), orMemcpyDefault));
  orStreamDestroy(other);
  show("device", orDeviceSynchronize());
  show("device", orDeviceSynchronize());
  orSetDevice(-1); // another failure: what failed before cannot be thrown any more
  orRethrowLaunchFailure();
  orLaunchKernel(stream, fail, "event");
  orEventRecord(event, stream);
  show("event", orEventSynchronize(event));
  show("event", orEventQuery(event));
  orLaunchKernel(stream, fail, "query");
  orEventRecord(event, stream);
  while (orStreamQuery(stream) == orErrorNotReady || orEventQuery(event) == orErrorNotReady) std::this_thread::yield();
  show("query", orStreamQuery(stream));
  show("query", orEventQuery(event));
  show("stream", orStreamSynchronize(stream));
  show("stream", orStreamSynchronize(stream));

  struct Own { int value; };
  orLaunchKernel(stream, [] { throw Own{7}; });
  show("own", orStreamSynchronize(stream));
  for (int i = 0; i < 2; ++i) {
    try {
      orRethrowLaunchFailure();
      std::puts("nothing to throw");
    } catch (const Own& own) {
      std::printf("thrown %d\n", own.value);
    }
  }

  auto counted = std::make_shared<int>(0);
  show("destroyed", orLaunchKernel(other, [counted] { ++*counted; }));
  std::printf("runs %d, references %ld\n", *counted, counted.use_count());
  orStreamDestroy(stream);
  orEventDestroy(event);
  orFree(data);
}
"""


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_kernels_launch_from_cpp_and_their_failures_are_reported_once(compiler: str, tmp_path: Path, mode: str) -> None:
    program = compile_program(compiler, tmp_path, LAUNCHES)
    output = run_program(program, OPENREG_EXECUTION=mode)

    def failure(call_name: str, reason: str) -> str:
        return (
            f"orErrorLaunchFailure: {call_name}: a function launched earlier on a stream of device 0 failed: {reason}. "
            "The device is usable; what the function should have written is not"
        )

    lines = output.splitlines()
    destroyed = lines.pop(-2)
    assert lines == [
        "launch: orSuccess",
        "launch: orSuccess",
        "synchronize: orSuccess",
        "6 12 18",
        *["launch: orSuccess"] * 4,
        "stream: " + failure("orStreamSynchronize", "first"),
        "stream: orSuccess",
        "memcpy: " + failure("orMemcpy", "default"),
        "memcpy: orSuccess",
        "device: " + failure("orDeviceSynchronize", "unknown exception"),
        "device: orSuccess",
        "event: " + failure("orEventSynchronize", "event"),
        "event: orSuccess",
        "query: orSuccess",
        "query: orSuccess",
        "stream: " + failure("orStreamSynchronize", "query"),
        "stream: orSuccess",
        "own: " + failure("orStreamSynchronize", "unknown exception"),
        "thrown 7",
        "nothing to throw",
        "runs 0, references 1",
    ]
    assert re.fullmatch(
        r"destroyed: orErrorInvalidResourceHandle: orLaunch: stream 0x\w+ does not exist; it was destroyed, or "
        r"is no stream",
        destroyed,
    )


# ---- Faults --------------------------------------------------------------------------------------------------------

REMEDY = (
    "Device memory cannot be dereferenced on the host: copy it first, tensor.cpu() in PyTorch, or orMemcpy in C; "
    "kernels use orGetKernelPointer()."
)
TOUCH = "pointer = malloc(4096); print(hex(pointer), flush=True)\n{}\nctypes.string_at(pointer + 16, 1)"
PYTHON_SAYS = "Fatal Python error: Segmentation fault\n"


def explained(result: subprocess.CompletedProcess[str]) -> bool:
    """Whether the process died of SIGSEGV, after saying once what TOUCH touched."""
    pointer = int(result.stdout.split()[0], 16)
    sentence = (
        f"openreg: the host accessed device memory at {pointer + 16:#x} (allocation of 4096 bytes at {pointer:#x} on "
        f"device 0, offset 16). {REMEDY}\n"
    )
    said = result.stderr.count(sentence) == result.stderr.count("openreg: ") == 1
    return said and result.returncode == -signal.SIGSEGV


def test_a_host_access_to_device_memory_is_explained() -> None:
    result = run_python(TOUCH.format(""))
    assert explained(result)
    assert result.stderr.count("\n") == 1


def test_with_faulthandler_enabled_before_both_speak() -> None:
    result = run_python(TOUCH.format(""), "-X", "faulthandler")
    assert explained(result)
    assert PYTHON_SAYS in result.stderr


def test_with_faulthandler_enabled_after_both_speak() -> None:
    result = run_python(TOUCH.format("import faulthandler; faulthandler.enable()"))
    assert explained(result)
    assert PYTHON_SAYS in result.stderr


def test_with_faulthandler_enabled_after_both_speak_in_a_thread() -> None:
    code = """
        import threading, faulthandler
        pointer = malloc(4096)
        print(hex(pointer), flush=True)
        faulthandler.enable()
        thread = threading.Thread(target=ctypes.string_at, args=(pointer + 16, 1))
        thread.start()
        thread.join()
    """
    result = run_python(code)
    assert explained(result)
    assert PYTHON_SAYS in result.stderr


ORDERS = {
    "no_faulthandler": "malloc(1)",
    "faulthandler_before": "import faulthandler; faulthandler.enable(); malloc(1)",
    "faulthandler_after": "malloc(1); import faulthandler; faulthandler.enable()",
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "crash",
    [
        "ctypes.string_at(0)",
        "ctypes.string_at(8)",
        "ctypes.string_at(2**63)",  # not canonical: a fault without an address
        "os.kill(os.getpid(), 11); print('alive')",
        "import signal; signal.raise_signal(11); print('alive')",
    ],
)
def test_every_other_segmentation_fault_keeps_its_handler(order: str, crash: str) -> None:
    result = run_python(f"{ORDERS[order]}\n{crash}")
    assert result.returncode == -signal.SIGSEGV
    assert result.stdout == ""
    assert "openreg: " not in result.stderr
    assert (PYTHON_SAYS in result.stderr) == (order != "no_faulthandler")


def test_a_signal_from_another_process_kills() -> None:
    code = "malloc(1); import subprocess, time; subprocess.run(['kill', '-SEGV', str(os.getpid())]); time.sleep(60)"
    result = run_python(code)
    assert (result.returncode, result.stderr) == (-signal.SIGSEGV, "")


def test_an_ignored_signal_stays_ignored_but_a_fault_kills() -> None:
    ignore = "import signal; signal.signal(signal.SIGSEGV, signal.SIG_IGN)\n"
    result = run_python(ignore + "malloc(1); os.kill(os.getpid(), 11); print('alive')")
    assert (result.returncode, result.stdout, result.stderr) == (0, "alive\n", "")
    assert explained(run_python(ignore + TOUCH.format("")))


RECOVERING = r"""
#include "openreg.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

#include <iterator>

sigjmp_buf back;

int main() {
  void* data = nullptr;
#ifdef PLAIN
  signal(SIGSEGV, [](int number) { siglongjmp(back, number); });
#else
  struct sigaction action{};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int number, siginfo_t* info, void*) {
    printf("%d %p\n", info->si_code, info->si_addr);
    siglongjmp(back, number);
  };
  sigaction(SIGSEGV, &action, nullptr);
#endif
  orMalloc(&data, 1);
  volatile char* addresses[] = {static_cast<char*>(data), static_cast<char*>(data) + 4096, nullptr};
  static size_t i = 0;  // not in a register that siglongjmp restores
  for (; i < std::size(addresses); ++i) {
    int number = sigsetjmp(back, 1);
    if (number == 0) {
      *addresses[i] = 1;
    }
    printf("back with %d\n", number);
  }
  orFree(data);
  if (sigsetjmp(back, 1) == 0) {
    *static_cast<volatile char*>(orGetKernelPointer(data)) = 1;
  }
  fflush(stdout);
}
"""


@pytest.mark.parametrize("kind", ["-DPLAIN", "-DSIGINFO"])
def test_a_handler_that_was_there_before_still_recovers(compiler: str, tmp_path: Path, kind: str) -> None:
    define = f"#define {kind[2:]}\n"
    program = compile_program(compiler, tmp_path, define + RECOVERING)
    result = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0
    assert result.stdout.count("back with 11\n") == 3
    first, second, third = result.stderr.splitlines()
    assert re.fullmatch(
        r"openreg: the host accessed device memory at (0x\w+) \(allocation of 1 bytes at \1 on device 0, offset 0\)\. "
        + re.escape(REMEDY),
        first,
    )
    assert re.fullmatch(
        r"openreg: the host accessed device memory at 0x\w+ \(device 0, in no allocation: freed, or out of bounds\)\. "
        + re.escape(REMEDY),
        second,
    )
    assert re.fullmatch(
        r"openreg: a kernel accessed memory of device 0 at 0x\w+ that is not allocated: it was freed before the kernel "
        r"ran, or an index is out of bounds\.",
        third,
    )


# ---- Forks, threads and exit ---------------------------------------------------------------------------------------

BAD_FORK = (
    "Cannot re-initialize OpenReg in forked subprocess. To use OpenReg with multiprocessing, you must use the 'spawn' "
    "start method"
)
IN_CHILD = """
def in_child(function):
    pid = os.fork()
    if pid == 0:
        try:
            function()
        finally:
            sys.stdout.flush()
            os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if status:
        print("status", status)
import sys
"""


def test_a_child_forked_after_the_start_is_told_to_spawn() -> None:
    code = """
        pointer = malloc(100)
        pinned = get_pointer("orMallocHost", 100)
        ctypes.memmove(pinned, b"kept", 4)
        stream, event = get_pointer("orStreamCreate"), get_pointer("orEventCreate")
        def child():
            print(lib.orIsInBadFork(), get_int("orGetDeviceCount"), get_int("orGetDevice"), ctypes.string_at(pinned, 4))
            call("orSetDevice", 1)
            call("orFree", pointer), call("orFreeHost", pinned)
            call("orStreamDestroy", stream), call("orEventDestroy", event)
            lib.orRethrowLaunchFailure()
            works = ("orGetApiVersion", "orGetDeviceCount", "orGetDevice", "orSetDevice", "orRequestAllocation")
            does_nothing = ("orFree", "orFreeHost", "orIpcCloseMemHandle", "orStreamDestroy", "orEventDestroy")
            does_nothing += ("orActivityUnsubscribe", "orFaultRemove")
            for name, arguments in SIGNATURES.items():
                if name not in works + does_nothing:
                    code = getattr(lib, name)(*[HostFn() if a is HostFn else a() for a in arguments])
                    print(name, lib.orGetErrorName(code), lib.orGetLastErrorMessage(), lib.orGetLastError())
            in_child(lambda: print("grandchild", lib.orIsInBadFork()))
        in_child(child)
        print(lib.orIsInBadFork(), attributes(pointer).size, attributes(pinned).size)
        call("orFree", pointer), call("orFreeHost", pinned)
        call("orStreamDestroy", stream), call("orEventDestroy", event)
    """
    first, *calls, grandchild, last = output_of(IN_CHILD + textwrap.dedent(code)).splitlines()
    assert first == "True 2 0 b'kept'"
    assert len(calls) > 25
    for line in calls:
        name, _, rest = line.partition(" ")
        expected = repr(BAD_FORK.encode())
        assert rest == f"b'orErrorInitializationError' {expected} 3", name
    assert (grandchild, last) == ("grandchild True", "False 100 100")


def test_a_child_forked_before_the_start_has_devices_of_its_own() -> None:
    code = """
        get_int("orGetDeviceCount")
        in_child(lambda: print(lib.orIsInBadFork(), malloc(1) != 0))
        print(malloc(1) != 0)
    """
    assert output_of(IN_CHILD + textwrap.dedent(code)).splitlines() == ["False True", "True"]


def test_forks_while_other_threads_use_the_device_do_not_hang() -> None:
    code = """
        import threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn of just this
        stop = threading.Event()
        def use():
            while not stop.is_set():
                pointer = malloc(4096)
                upload(pointer, b"x" * 4096)
                call("orFree", pointer)
                call("orStreamDestroy", get_pointer("orStreamCreate"))
        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads: thread.start()
        for _ in range(50):
            in_child(lambda: (call("orFree", 1), lib.orMalloc(ctypes.byref(POINTER()), 1), get_int("orGetDeviceCount")))
        stop.set()
        for thread in threads: thread.join()
        print("done")
    """
    assert output_of(IN_CHILD + textwrap.dedent(code)) == "done"


def test_a_child_that_touches_its_parents_memory_is_told_so() -> None:
    code = """
        pointer = malloc(1)
        print(hex(pointer), flush=True)
        for address in pointer, lib.orGetKernelPointer(pointer):
            in_child(lambda: print(lib.orGetKernelPointer(pointer) == pointer, ctypes.string_at(address, 1)))
    """
    result = run_python(IN_CHILD + textwrap.dedent(code))
    pointer, *statuses = result.stdout.splitlines()
    assert statuses == ["status 11", "status 11"] or statuses == ["status 139", "status 139"]
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert re.fullmatch(
            r"openreg: a forked child accessed device memory of its parent at 0x\w+\. A child has no device memory\. "
            r"To use OpenReg with multiprocessing, you must use the 'spawn' start method\.",
            line,
        )
    assert f" {pointer}." in lines[0]


def test_threads_share_the_device() -> None:
    failures: list[BaseException] = []
    free_before, _ = memory_info()

    def work(seed: int) -> None:
        try:
            handle = get_pointer("orStreamCreate")
            mark = get_pointer("orEventCreate")
            for round_number in range(200):
                size = (seed * 7919 + round_number * 104729) % 30000 + 1
                data = bytes([seed]) * size
                first, second = malloc(size), malloc(size)
                call("orMemcpyAsync", first, ctypes.c_char_p(data), size, HOST_TO_DEVICE, handle)
                call("orMemcpyAsync", second, first, size, DEVICE_TO_DEVICE, handle)
                call("orEventRecord", mark, handle)
                call("orEventSynchronize", mark)
                assert download(second, size) == data
                assert attributes(second + size - 1).base == second
                call("orFree", first)
                call("orFree", second)
            call("orEventDestroy", mark)
            call("orStreamDestroy", handle)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert memory_info()[0] == free_before


def test_calls_from_exit_handlers_and_destructors_are_safe(compiler: str, tmp_path: Path) -> None:
    source = r"""
        #include <cstdio>
        #include <cstdlib>
        #include "openreg_launch.h"
        void* data;
        orStream_t stream;
        void use(const char* when) {
          orError_t error = orLaunchKernel(stream, [] {});
          void* more;
          error = error ? error : orMalloc(&more, 8);
          error = error ? error : orFree(more);
          std::printf("%s %d\n", when, error);
        }
        struct AtExit {
          ~AtExit() { use("destructor"); orFree(data); orStreamDestroy(stream); }
        } global;
        int main() {
          std::atexit([] { use("atexit"); });
          orMalloc(&data, 100);
          orStreamCreate(&stream);
        }
    """
    program = compile_program(compiler, tmp_path, source)
    result = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, "atexit 0\ndestructor 0\n", "")


def test_the_library_exports_its_header_and_nothing_else() -> None:
    headers = "".join((INCLUDE / f"openreg{part}.h").read_text() for part in ("", "_activity", "_faults", "_model"))
    declared = set(re.findall(r"^OPENREG_EXPORT [^;(]*?\b(\w+)(?:\(|;)", headers, re.MULTILINE))
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("needs nm (binutils)")
    listing = subprocess.run([nm, "-D", "--defined-only", library_path()], capture_output=True, text=True, check=True)
    exported = {line.split()[-1] for line in listing.stdout.splitlines() if line.split()[-2] in "TDB"}
    assert exported == declared
