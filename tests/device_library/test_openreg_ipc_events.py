"""Events that several processes share (openreg_ipc.h): made, opened, recorded by each process, and refused."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import programs
import pytest
from openreg_c import call, get_pointer, ipc_event, ipc_event_handle, ipc_event_open
from openreg_process import output_of, peer, raises
from openreg_work import Waiter
from programs import Peer

COMMON = """
def status(name, *arguments):
    try:
        call(name, *arguments)
    except OpenRegError as error:
        return error.name
    return "orSuccess"

def stream():
    return get_pointer("orStreamCreate")
"""

# A process that queues work and then records its event at each line "begin". At the line "end" the work ends.
RECORDER = """
import sys, threading
event, s = ipc_event(), stream()
print(ipc_event_handle(event).hex(), flush=True)
for line in sys.stdin:
    if line == "begin\\n":
        done = threading.Event()
        wait = HostFn(lambda _: done.wait() and None)
        call("orLaunchHostFunc", s, wait, None)
        call("orEventRecord", event, s)
        print("recorded", flush=True)
    elif line == "end\\n":
        done.set()
        call("orStreamSynchronize", s)
        print("reached", flush=True)
"""


class Recorder:
    def __init__(self, other: Peer) -> None:
        self.process, self.ask = other.process, other.ask
        self.handle = bytes.fromhex(other.read())


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with peer(COMMON + RECORDER, OPENREG_EXECUTION="async") as process:
        yield Recorder(process)


WAITER = """
import sys, time
event, s = ipc_event_open({handle!r}), stream()
print("query", status("orEventQuery", event))
call("orStreamWaitEvent", s, event, 0)
print("stream", status("orStreamQuery", s))
sys.stdout.flush()
sys.stdin.readline()
call("orStreamSynchronize", s)
call("orEventSynchronize", event)
print("query", status("orEventQuery", event), status("orStreamQuery", s))
"""


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_a_stream_waits_for_the_record_of_another_process(recorder: Recorder, mode: str) -> None:
    assert output_of(COMMON + f"print(status('orEventQuery', ipc_event_open({recorder.handle!r})))") == "orSuccess"
    assert recorder.ask("begin") == "recorded"
    with peer(COMMON + WAITER.format(handle=recorder.handle), OPENREG_EXECUTION=mode) as waiter:
        assert [waiter.read(), waiter.read()] == ["query orErrorNotReady", "stream orErrorNotReady"]
        assert recorder.ask("end") == "reached"
        assert waiter.ask() == "query orSuccess orSuccess"
        assert waiter.process.wait(programs.LIMIT) == 0


def test_a_wait_for_a_process_that_ends_is_a_failure(recorder: Recorder) -> None:
    assert recorder.ask("begin") == "recorded"
    code = f"""
    import os, signal
    event, s = ipc_event_open({recorder.handle!r}), stream()
    call("orStreamWaitEvent", s, event, 0)
    os.kill({recorder.process.pid}, signal.SIGKILL)
    call("orStreamSynchronize", s)
    try:
        call("orEventSynchronize", event)
    except OpenRegError as error:
        print(error.name, error.message)
    call("orDeviceSynchronize")
    """
    assert output_of(COMMON + textwrap.dedent(code)) == (
        "orErrorLaunchFailure orEventSynchronize: a function launched earlier on a stream of device 0 failed: the "
        "process that recorded an event ended before its device reached the record. The device is usable; what the "
        "function should have written is not"
    )


def test_the_last_record_counts_whichever_process_made_it(recorder: Recorder) -> None:
    code = f"""
    event, s = ipc_event_open({recorder.handle!r}), stream()
    call("orEventRecord", event, s)
    call("orEventSynchronize", event)
    print(status("orEventQuery", event))
    """
    assert recorder.ask("begin") == "recorded"
    assert output_of(COMMON + textwrap.dedent(code)) == "orSuccess"
    assert recorder.ask("end") == "reached"
    for _ in range(200):  # more records than the event's shared page holds
        assert recorder.ask("begin") == "recorded" and recorder.ask("end") == "reached"
    assert output_of(COMMON + textwrap.dedent(code)) == "orSuccess"


# A process that records the event twice. Its second record has read the number of the last record and is about to write
# to the event's page when the process prints "paused". It goes on after a line.
PAUSED_RECORDER = """
import mmap, re, signal, sys
event, s = ipc_event_open({handle!r}), stream()
call("orEventRecord", event, s)
call("orStreamSynchronize", s)
(page,) = re.findall(r"(\\w+)-.*memfd:openreg", open("/proc/self/maps").read())
libc = ctypes.CDLL(None)

def protect(access):
    assert libc.mprotect(POINTER(int(page, 16)), SIZE(PAGE), access) == 0

@ctypes.CFUNCTYPE(None, ctypes.c_int)
def pause(_):
    print("paused", flush=True)
    sys.stdin.readline()
    protect(mmap.PROT_READ | mmap.PROT_WRITE)  # the write is repeated

libc.signal(signal.SIGSEGV, pause)
protect(mmap.PROT_READ)
call("orEventRecord", event, s)
print("recorded", flush=True)
sys.stdin.readline()
"""


# With 127 records in between, the record that is waited for has the same place in the page as the event's first record.
@pytest.mark.parametrize("between", [0, 127])
def test_a_record_keeps_its_process_if_another_process_records_at_the_same_time(
    recorder: Recorder, stream: int, other: int, between: int
) -> None:
    event = ipc_event_open(recorder.handle)
    with peer(COMMON + PAUSED_RECORDER.format(handle=recorder.handle), OPENREG_EXECUTION="async") as paused:
        assert paused.read() == "paused"
        for _ in range(between):
            assert recorder.ask("begin") == "recorded" and recorder.ask("end") == "reached"
        assert recorder.ask("begin") == "recorded"
        call("orStreamWaitEvent", stream, event, 0)
        call("orEventRecord", event, other)
        assert paused.ask("go on") == "recorded"
        recorder.process.kill()
        waiter = Waiter("orDeviceSynchronize")
        with raises(
            "orErrorLaunchFailure",
            "orDeviceSynchronize: a function launched earlier on a stream of device 0 failed: the process that "
            "recorded an event ended before its device reached the record. The device is usable; what the function "
            "should have written is not",
        ):
            waiter.result()
    call("orEventDestroy", event)


def test_what_is_no_event_of_another_process_is_refused(recorder: Recorder) -> None:
    event = ipc_event()
    handle = ipc_event_handle(event)
    assert len(handle) == 64 and ipc_event_handle(event) == handle
    with raises(
        "orErrorDeviceUninitialized",
        "orIpcOpenEventHandle: the handle is of this process's own event; it is for other processes, "
        "use the event here",
    ):
        ipc_event_open(handle)
    with raises(
        "orErrorInvalidResourceHandle",
        "orIpcOpenEventHandle: the handle is none that orIpcGetEventHandle has filled in",
    ):
        ipc_event_open(bytes(64))
    with raises(
        "orErrorInvalidResourceHandle",
        "orIpcGetEventHandle: the event is for this process only; make it with orIpcEventCreate",
    ):
        ipc_event_handle(get_pointer("orEventCreate"))
    with raises(
        "orErrorInvalidValue",
        "orIpcEventCreate: flags is 1; an event for other processes has no timing, pass orEventDisableTiming (0)",
    ):
        get_pointer("orIpcEventCreate", 1)
    call("orEventDestroy", event)
    recorder.process.kill()
    recorder.process.wait()
    with raises(
        "orErrorInvalidResourceHandle",
        f"orIpcOpenEventHandle: process {recorder.process.pid} has no such event: it has freed the event or has ended, "
        "or the handle is damaged. A process must keep what it shares until it is opened",
    ):
        ipc_event_open(recorder.handle)
