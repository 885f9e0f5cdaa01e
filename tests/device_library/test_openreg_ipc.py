"""Device memory in several processes (orIpcGetMemHandle): handles are made, opened, closed, and refused if damaged."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import programs
import pytest
from openreg_c import (
    IpcMemHandle,
    attributes,
    call,
    download,
    ipc_handle,
    ipc_open,
    lib,
    malloc,
    memory_info,
    upload,
)
from openreg_process import output_of, peer, raises, run_python
from programs import Peer

MIB = 1 << 20


@pytest.fixture
def shared() -> Iterator[tuple[int, bytes]]:
    """Device memory with "parent" in it, and its handle."""
    pointer = malloc(2 * MIB)
    upload(pointer, b"parent")
    yield pointer, ipc_handle(pointer)
    call("orFree", pointer)


def test_a_handle_is_the_same_each_time(shared: tuple[int, bytes]) -> None:
    pointer, handle = shared
    assert ipc_handle(pointer) == handle
    assert len(handle) == 64


def test_another_process_reads_and_writes_the_same_bytes(shared: tuple[int, bytes]) -> None:
    pointer, handle = shared
    child = f"""
    p = ipc_open({handle!r})
    print(download(p, 6).decode(), attributes(p).type == DEVICE, attributes(p).size, attributes(p).base == p)
    upload(p + 2 * 1024 * 1024 - 5, b"child")
    call("orIpcCloseMemHandle", p)
    """
    assert output_of(child) == f"parent True {2 * MIB} True"
    assert download(pointer + 2 * MIB - 5, 5) == b"child"


def test_memory_is_opened_on_the_current_device(shared: tuple[int, bytes]) -> None:
    child = f"call('orSetDevice', 1); p = ipc_open({shared[1]!r}); print(attributes(p).device, download(p, 6))"
    assert output_of(child) == "1 b'parent'"


def test_the_host_reads_shared_memory_in_both_processes_after_unprotect(shared: tuple[int, bytes]) -> None:
    pointer, handle = shared
    child = f"""
    p = ipc_open({handle!r})
    call("orMemoryUnprotect", p)
    ctypes.memmove(p, b"looked", 6)
    call("orMemoryProtect", p)
    print(download(p, 6).decode())
    """
    assert output_of(child) == "looked"
    call("orMemoryUnprotect", pointer)
    assert ctypes.string_at(pointer, 6) == b"looked"
    call("orMemoryProtect", pointer)


@pytest.mark.parametrize("where", ["parent", "child"])
def test_shared_memory_stays_protected_from_the_host(shared: tuple[int, bytes], where: str) -> None:
    code = "p = malloc(4096); h = ipc_handle(p)" if where == "parent" else f"p = ipc_open({shared[1]!r})"
    result = run_python(f"{code}\nctypes.string_at(p, 1)")
    assert result.returncode == -11
    assert result.stderr.startswith("openreg: the host accessed device memory at 0x")


def test_opened_memory_does_not_count_against_the_capacity(shared: tuple[int, bytes]) -> None:
    child = f"before = memory_info(); p = ipc_open({shared[1]!r}); print(memory_info() == before)"
    assert output_of(child, OPENREG_DEVICE_MEMORY="1M") == "True"


def test_a_handle_that_is_open_gives_the_same_address_until_it_is_closed_as_often(shared: tuple[int, bytes]) -> None:
    child = f"""
    p = ipc_open({shared[1]!r})
    q = ipc_open({shared[1]!r})
    call("orIpcCloseMemHandle", p)
    print(p == q, download(p, 6).decode())
    call("orIpcCloseMemHandle", p)
    print(attributes(p).base)
    try:
        call("orIpcCloseMemHandle", p)
    except OpenRegError as error:
        print(error.name, error.message.replace(hex(p), "P"))
    """
    assert output_of(child).splitlines() == [
        "True parent",
        "None",
        "orErrorInvalidValue orIpcCloseMemHandle: P is not memory of another process; pass the pointer that "
        "orIpcOpenMemHandle returned",
    ]


OWNER = """
import sys
p = malloc(4096)
upload(p, b"owner")
print(ipc_handle(p).hex(), flush=True)
sys.stdin.readline()
call("orFree", p)
print("freed", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def owner() -> Iterator[Peer]:
    """A process that shares memory. It prints the handle, frees at the first line of input, and ends at the second."""
    with peer(OWNER) as process:
        yield process


@pytest.mark.parametrize("ends", [False, True])
def test_open_memory_outlives_its_owner_and_cannot_be_opened_afterwards(owner: Peer, ends: bool) -> None:
    handle = bytes.fromhex(owner.read())
    pointer = ipc_open(handle)
    if ends:
        programs.kill(owner.process)
    else:
        assert owner.ask() == "freed"
    assert download(pointer, 5) == b"owner"
    upload(pointer, b"still")
    assert download(pointer, 5) == b"still"
    message = (
        f"orIpcOpenMemHandle: process {owner.process.pid} has no such memory: it has freed the memory or has ended, or the "
        "handle is damaged. A process must keep what it shares until it is opened"
    )
    call("orIpcCloseMemHandle", pointer)
    with raises("orErrorInvalidResourceHandle", message):
        ipc_open(handle)


def test_bad_arguments_are_refused(shared: tuple[int, bytes]) -> None:
    pointer, handle = shared
    result, opened = IpcMemHandle(), ctypes.c_void_p(1)
    good = IpcMemHandle.from_buffer_copy(handle)
    with raises("orErrorInvalidValue", "orIpcGetMemHandle: handle is NULL; pass the address of an orIpcMemHandle_t"):
        call("orIpcGetMemHandle", None, pointer)
    start = f"{pointer + 8:#x} is not the start of an allocation of device 0; pass the pointer that orMalloc returned"
    with raises("orErrorInvalidValue", f"orIpcGetMemHandle: {start}"):
        call("orIpcGetMemHandle", ctypes.byref(result), pointer + 8)
    with raises(
        "orErrorInvalidValue", "orIpcGetMemHandle: 0x10 is not device memory; pass the pointer that orMalloc returned"
    ):
        call("orIpcGetMemHandle", ctypes.byref(result), 16)
    with raises("orErrorInvalidValue", "orIpcOpenMemHandle: devPtr is NULL; pass the address of a pointer"):
        call("orIpcOpenMemHandle", None, good, 0)
    with raises("orErrorInvalidValue", "orIpcOpenMemHandle: flags is 1; no flag exists, pass 0"):
        call("orIpcOpenMemHandle", ctypes.byref(opened), good, 1)
    with raises(
        "orErrorInvalidResourceHandle", "orIpcOpenMemHandle: the handle is none that orIpcGetMemHandle has filled in"
    ):
        call("orIpcOpenMemHandle", ctypes.byref(opened), IpcMemHandle(), 0)
    with raises(
        "orErrorDeviceUninitialized",
        "orIpcOpenMemHandle: the handle is of this process's own memory; it is for other processes, use the pointer "
        "here",
    ):
        ipc_open(handle)
    with raises(
        "orErrorInvalidValue",
        f"orIpcCloseMemHandle: {pointer:#x} is not memory of another process; pass the pointer that orIpcOpenMemHandle "
        "returned",
    ):
        call("orIpcCloseMemHandle", pointer)
    assert download(pointer, 6) == b"parent"


# The content of a handle: the struct IpcHandle in third_party/openreg/csrc/ipc.h.
HANDLE = struct.Struct("<8siiQQQ")


def handle_of(fd: int, size: int) -> bytes:
    """A forged handle of any descriptor of this process."""
    status = os.fstat(fd)
    return HANDLE.pack(b"ipcMemH", os.getpid(), fd, size, status.st_dev, status.st_ino).ljust(64, b"\0")


def altered(handle: bytes, index: int, value: int) -> bytes:
    fields = list(HANDLE.unpack_from(handle))
    fields[index] = value
    return HANDLE.pack(*fields).ljust(64, b"\0")


def test_a_forged_or_damaged_handle_opens_nothing(shared: tuple[int, bytes], tmp_path: Path) -> None:
    file = tmp_path / "read_only"
    file.write_bytes(b"A" * 4096)
    descriptors = [os.open(file, os.O_RDONLY), os.memfd_create("other"), os.memfd_create("openreg")]
    for descriptor in descriptors[1:]:
        os.ftruncate(descriptor, 4096)
    pipe = os.pipe()
    good = shared[1]
    forged = {
        "a file": handle_of(descriptors[0], 4096),
        "a pipe": handle_of(pipe[0], 4096),
        "a memfd of somebody else's": handle_of(descriptors[1], 4096),
        "a memfd that may shrink": handle_of(descriptors[2], 4096),
        "a descriptor that does not exist": altered(good, 2, 100_000),
        "too many bytes": altered(good, 3, 2 * MIB + 1),
        "too few bytes": altered(good, 3, 4096),
        "no bytes": altered(good, 3, 0),
        "2**64 - 1 bytes": altered(good, 3, 2**64 - 1),
        "another device": altered(good, 4, 10**6),
        "another inode": altered(good, 5, 10**6),
    }
    child = f"""
    for name, handle in {forged!r}.items():
        try:
            upload(ipc_open(handle), b"forged")
        except OpenRegError as error:
            print(name, error.name, error.message, sep=": ")
        else:
            print(name, "was opened")
    print(download(ipc_open({good!r}), 6).decode())
    """
    refused = (
        f"orErrorInvalidResourceHandle: orIpcOpenMemHandle: process {os.getpid()} has no such memory: it has freed the "
        "memory or has ended, or the handle is damaged. A process must keep what it shares until it is opened"
    )
    assert output_of(child).splitlines() == [*(f"{name}: {refused}" for name in forged), "parent"]
    assert file.read_bytes() == b"A" * 4096
    for descriptor in [*descriptors, *pipe]:
        os.close(descriptor)


def test_nobody_can_change_the_size_of_shared_memory(shared: tuple[int, bytes]) -> None:
    """If the file behind mapped memory were made shorter, SIGBUS would end a process that reads the memory."""
    _, process, fd, *_ = HANDLE.unpack_from(shared[1])
    with open(f"/proc/{process}/fd/{fd}", "r+b") as memory:
        for size in (0, 4 * MIB):
            with pytest.raises(PermissionError):
                os.ftruncate(memory.fileno(), size)


def test_memory_of_another_process_is_neither_freed_nor_sent_further(owner: Peer) -> None:
    pointer = ipc_open(bytes.fromhex(owner.read()))
    with raises(
        "orErrorInvalidValue", f"orFree: {pointer:#x} is memory of another process; orIpcCloseMemHandle closes it"
    ):
        call("orFree", pointer)
    with raises(
        "orErrorInvalidValue",
        f"orIpcGetMemHandle: {pointer:#x} is memory of another process. Opened memory cannot be shared again; "
        "share a copy",
    ):
        ipc_handle(pointer)
    call("orIpcCloseMemHandle", pointer)


def test_a_forked_child_can_neither_make_nor_open_a_handle(shared: tuple[int, bytes]) -> None:
    code = f"""
    import os
    p = malloc(4096)
    if os.fork() == 0:
        for attempt in (lambda: ipc_handle(p), lambda: ipc_open({shared[1]!r})):
            try:
                attempt()
            except OpenRegError as error:
                print(error.name, flush=True)
        call("orIpcCloseMemHandle", p)
        os._exit(0)
    os.wait()
    """
    assert output_of(code).splitlines() == ["orErrorInitializationError"] * 2


def test_memory_is_moved_while_other_threads_write_to_it() -> None:
    # A thread that writes during the move gets SIGSEGV, waits in the handler, and writes again. Python's faulthandler,
    # which pytest enables, must not report a crash.
    assert faulthandler.is_enabled()
    size, part = 32 * MIB, 8 * MIB
    pointer = malloc(size)
    kernel = lib.orGetKernelPointer(pointer)
    started, stop = threading.Barrier(4), threading.Event()
    written = [0, 0, 0]

    def write(index: int) -> None:
        started.wait()
        while not stop.is_set():
            written[index] += 1
            ctypes.memset(kernel + index * part, written[index] & 0xFF, part)

    writers = [threading.Thread(target=write, args=(index,)) for index in range(3)]
    for writer in writers:
        writer.start()
    started.wait()
    handle = ipc_handle(pointer)
    before = list(written)
    while any(now < then + 2 for now, then in zip(written, before, strict=True)):
        pass  # until every writer has gone on
    stop.set()
    for writer in writers:
        writer.join()
    for index, count in enumerate(written):
        assert ctypes.string_at(kernel + index * part, part) == bytes([count & 0xFF]) * part
    child = f"p = ipc_open({handle!r}); print(*(download(p + i * {part}, 1)[0] for i in range(3)))"
    assert output_of(child) == " ".join(str(count & 0xFF) for count in written)
    call("orFree", pointer)


def test_the_address_space_of_a_device_holds_as_much_again_from_other_processes() -> None:
    pointers = [malloc(MIB) for _ in range(4)]
    handles = [ipc_handle(pointer) for pointer in pointers]
    child = f"""
    own = malloc(1024 * 1024)
    ipc_open({handles[0]!r})
    try:
        ipc_open({handles[1]!r})
    except OpenRegError as error:
        print(error.name, error.message)
    """
    # The device has addresses for twice its capacity: 1 MiB for the process's own memory, 1 MiB for that of others.
    assert output_of(child, OPENREG_DEVICE_MEMORY="1M") == (
        "orErrorMemoryAllocation orIpcOpenMemHandle: no address space is left on device 0 to map 1.00 MiB of another "
        "process. Call orIpcCloseMemHandle or orFree, or set OPENREG_DEVICE_MEMORY higher"
    )
    for pointer in pointers:
        call("orFree", pointer)


def test_freeing_shared_memory_frees_its_capacity() -> None:
    free = memory_info()[0]
    pointer = malloc(MIB)
    ipc_handle(pointer)
    call("orFree", pointer)
    assert memory_info()[0] == free
    assert attributes(pointer).base is None
