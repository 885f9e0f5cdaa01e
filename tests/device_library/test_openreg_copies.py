"""Copies and fills of openreg.h: what each may touch, and what it waits for in each execution mode."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import pytest
from openreg_c import (
    DEFAULT,
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    HOST_TO_HOST,
    MIB,
    PAGE,
    OpenRegError,
    call,
    download,
    malloc,
    upload,
)
from openreg_process import output_of, raises
from openreg_work import FAILS, FAILURE, Gate, Waiter, copy_async, synchronize

pytestmark = pytest.mark.usefixtures("clean_device")


# ---- What a copy may touch -------------------------------------------------------------------------------------------


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
        problem = (
            f"reach past the end of the allocation, which has {2 * PAGE} bytes, {left} of them from that address on"
        )
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
        f"orMemcpy: src ({pointer:#x}) lies in no allocation of device 0: the memory was freed, or the address is past "
        "the end of one",
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
    call("orMemset", device_memory, 0x1FF, PAGE)  # only the low byte of the value counts, as in CUDA
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


# ---- What a copy waits for -------------------------------------------------------------------------------------------


def test_a_copy_from_pageable_memory_has_read_its_source_when_the_call_returns(
    mode: str, stream: int, device_memory: int
) -> None:
    source = ctypes.create_string_buffer(b"first")
    copy_async(device_memory, source, 5, stream)
    source.raw = b"second"
    synchronize(stream)
    assert download(device_memory, 5) == b"first"
    with Gate(stream):
        copy_async(device_memory + 8, source, 6, stream)
        source.raw = b"third!"
    synchronize(stream)
    assert download(device_memory + 8, 6) == b"second"


def test_a_copy_from_pageable_memory_waits_when_64_mib_are_queued(mode: str, stream: int) -> None:
    pointer = malloc(64 * MIB)
    source = ctypes.create_string_buffer(64 * MIB)
    with Gate(stream):
        copy_async(pointer, source, 63 * MIB, stream)
        source[0] = b"x"
        waiter = Waiter("orMemcpyAsync", pointer, source, 2 * MIB, DEFAULT, stream)
        assert waiter.waits()
    waiter.result()
    assert download(pointer, 2) == b"x\0"
    with Gate(stream):  # the earlier copies have run, and no longer count towards the 64 MiB
        copy_async(pointer, source, 64 * MIB, stream)
    synchronize(stream)
    call("orFree", pointer)


def test_a_copy_from_pageable_memory_waits_when_the_host_has_no_memory() -> None:
    """Such a copy does not count towards the 64 MiB: later ones are queued again."""
    code = """
        import resource
        from openreg_work import Gate, copy_async, synchronize
        pointer, stream = malloc(64 * MIB), get_pointer("orStreamCreate")
        source = ctypes.create_string_buffer(b"first", 64 * MIB)
        copy_async(pointer, source, 5, stream), synchronize(stream)  # starts the threads of the device
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MIB, resource.RLIM_INFINITY))
        source[:6] = b"second"
        copy_async(pointer, source, 64 * MIB, stream)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(download(pointer, 6))
        with Gate(stream):
            source[:6] = b"third!"
            copy_async(pointer, source, 64 * MIB, stream)
            source[:6] = b"fourth"
        synchronize(stream)
        print(download(pointer, 6))
    """
    # In the mode chaos, no copy runs within the call, even if the stream is idle.
    assert output_of(code, OPENREG_EXECUTION="chaos") == "b'second'\nb'third!'"


def test_a_copy_from_pinned_memory_reads_its_source_later(
    mode: str, stream: int, device_memory: int, pinned_memory: int
) -> None:
    ctypes.memmove(pinned_memory, b"first", 5)
    with Gate(stream):
        copy_async(device_memory, pinned_memory, 5, stream)
        ctypes.memmove(pinned_memory, b"later", 5)
    synchronize(stream)
    assert download(device_memory, 5) == b"later"


def test_a_copy_to_pageable_memory_has_written_it_when_the_call_returns(
    mode: str, stream: int, device_memory: int
) -> None:
    destination = ctypes.create_string_buffer(4)
    with Gate(stream):
        call("orMemsetAsync", device_memory, 7, 4, stream)
        waiter = Waiter("orMemcpyAsync", destination, device_memory, 4, DEFAULT, stream)
        assert waiter.waits()
    waiter.result()
    assert destination.raw == b"\7\7\7\7"


def test_a_copy_to_pinned_memory_is_not_finished_when_the_call_returns(
    mode: str, stream: int, device_memory: int, pinned_memory: int
) -> None:
    upload(device_memory, b"data")
    ctypes.memset(pinned_memory, 0, 4)
    with Gate(stream):
        copy_async(pinned_memory, device_memory, 4, stream)
        assert ctypes.string_at(pinned_memory, 4) == b"\0\0\0\0"
    synchronize(stream)
    assert ctypes.string_at(pinned_memory, 4) == b"data"


def test_copies_between_devices_are_queued(mode: str, stream: int, device_memory: int) -> None:
    call("orSetDevice", 1)
    peer = malloc(4)
    call("orSetDevice", 0)
    upload(device_memory, b"peer")
    with Gate(stream):
        call("orMemcpyAsync", peer, device_memory, 4, DEVICE_TO_DEVICE, stream)
        call("orMemsetAsync", device_memory, 0, 4, stream)
    synchronize(stream)
    assert download(peer, 4) == b"peer"
    call("orFree", peer)


@pytest.mark.parametrize("name", ["orMemcpy", "orMemset"])
def test_a_synchronous_copy_waits_for_the_default_stream_and_no_other(
    mode: str, stream: int, device_memory: int, name: str
) -> None:
    arguments = (device_memory, device_memory + 8, 4, DEFAULT) if name == "orMemcpy" else (device_memory, 1, 4)
    with Gate(stream):
        call(name, *arguments)
    with Gate(None):
        waiter = Waiter(name, *arguments)
        assert waiter.waits()
    waiter.result()


def test_a_blocking_copy_on_a_stream_waits_for_that_stream_and_reports_its_failure(
    mode: str, stream: int, other: int, device_memory: int, pinned_memory: int
) -> None:
    arguments = (pinned_memory, device_memory, 4, DEFAULT, stream)
    with Gate(other):
        call("orMemcpyWithStream", *arguments)
    with Gate(stream):
        call("orMemsetAsync", device_memory, 9, 4, stream)
        waiter = Waiter("orMemcpyWithStream", *arguments)
        assert waiter.waits()
    waiter.result()
    assert ctypes.string_at(pinned_memory, 4) == b"\x09\x09\x09\x09"
    call("orLaunch", stream, FAILS, None, 0)
    with raises("orErrorLaunchFailure", f"orMemcpyWithStream: {FAILURE.format(0)}"):
        call("orMemcpyWithStream", *arguments)


def test_a_bad_copy_fails_at_the_call(mode: str, stream: int, device_memory: int) -> None:
    with Gate(stream), pytest.raises(OpenRegError, match="reach past the end of the allocation"):
        copy_async(device_memory, device_memory + PAGE, 2 * PAGE, stream)
    synchronize(stream)
