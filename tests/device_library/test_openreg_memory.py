"""Memory of openreg.h: allocations, the two addresses of their bytes, and what orPointerGetAttributes says."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

import pytest
from openreg_c import (
    DEVICE,
    HOST,
    MIB,
    PAGE,
    UNREGISTERED,
    attributes,
    call,
    download,
    get_pointer,
    lib,
    malloc,
    memory_info,
    upload,
)
from openreg_process import error_of, output_of, raises
from programs import resident

pytestmark = pytest.mark.usefixtures("clean_device")


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
        large = malloc(128 * 4096)  # no hole is large enough, but the device window is larger than the capacity
        print(memory_info()[0], large not in blocks)
    """
    assert output_of(code, OPENREG_DEVICE_MEMORY="1M") == "0 True"


@pytest.mark.slow
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
    # Many requests together are refused too, although the host could back each of them alone.
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
    middle = "the memory was already freed, or the pointer is inside an allocation"
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


def test_memory_of_the_program_is_pinned_from_its_registration_to_its_end(device_memory: int) -> None:
    memory = ctypes.create_string_buffer(3 * PAGE)
    begin = ctypes.addressof(memory)
    call("orHostRegister", begin, 2 * PAGE)
    found = attributes(begin + 100)
    assert (found.type, found.base, found.size) == (HOST, begin, 2 * PAGE)
    assert attributes(begin + 2 * PAGE).type == UNREGISTERED
    with raises(
        "orErrorHostMemoryAlreadyRegistered",
        f"orHostRegister: the {PAGE} bytes at {begin + PAGE:#x} overlap pinned memory: {2 * PAGE} bytes at {begin:#x}",
    ):
        call("orHostRegister", begin + PAGE, PAGE)
    with raises(
        "orErrorInvalidValue",
        f"orFreeHost: {begin:#x} is not the start of an allocation of pinned memory: it was freed before, or "
        "orMallocHost did not return it",
    ):
        call("orFreeHost", begin)
    call("orHostUnregister", begin)
    assert attributes(begin).type == UNREGISTERED
    for address in (begin, get_pointer("orMallocHost", 8)):
        with raises(
            "orErrorHostMemoryNotRegistered", f"orHostUnregister: {address:#x} is not the start of registered memory"
        ):
            call("orHostUnregister", address)
    call("orFreeHost", address)
    with raises(
        "orErrorInvalidValue",
        f"orHostRegister: {device_memory:#x} is device memory; only memory of the host can be registered",
    ):
        call("orHostRegister", device_memory, PAGE)
    for address, size in ((0, 8), (begin, 0)):
        name = f"{address:#x}" if address else "(nil)"
        with raises("orErrorInvalidValue", f"orHostRegister: {name} with {size} bytes is no range of memory"):
            call("orHostRegister", address, size)


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
