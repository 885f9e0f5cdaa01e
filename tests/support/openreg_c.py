"""The C API of libopenreg.so for the tests, through ctypes. `call("orMalloc", ...)` raises if the function fails."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from pathlib import Path
from typing import Any

SIZE = ctypes.c_size_t
POINTER = ctypes.c_void_p
HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = range(5)
UNREGISTERED, HOST, DEVICE = range(3)
INLINE, ASYNC, CHAOS = range(3)
MAY_RUN_INLINE = 1
NO_WAIT = 2
PERSISTENT = 1
PAGE = 4096
MIB = 1 << 20
HostFn = ctypes.CFUNCTYPE(None, POINTER)
DeferredFn = ctypes.CFUNCTYPE(None, POINTER, POINTER)
BeforeWaitFn = ctypes.CFUNCTYPE(POINTER)
AfterWaitFn = ctypes.CFUNCTYPE(None, POINTER)


class DeviceProp(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 64),
        ("uuid", ctypes.c_ubyte * 16),
        ("totalGlobalMem", SIZE),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("multiProcessorCount", ctypes.c_int),
        ("warpSize", ctypes.c_int),
        ("maxThreadsPerBlock", ctypes.c_int),
        ("maxThreadsPerMultiProcessor", ctypes.c_int),
        ("regsPerMultiprocessor", ctypes.c_int),
        ("sharedMemPerBlock", SIZE),
        ("sharedMemPerBlockOptin", SIZE),
        ("sharedMemPerMultiprocessor", SIZE),
        ("l2CacheSize", ctypes.c_int),
        ("clockRate", ctypes.c_int),
        ("memoryClockRate", ctypes.c_int),
        ("memoryBusWidth", ctypes.c_int),
        ("pciDomainID", ctypes.c_int),
        ("pciBusID", ctypes.c_int),
        ("pciDeviceID", ctypes.c_int),
        ("integrated", ctypes.c_bool),
        ("isMultiGpuBoard", ctypes.c_bool),
        ("asyncEngineCount", ctypes.c_int),
        ("unifiedAddressing", ctypes.c_bool),
        ("canMapHostMemory", ctypes.c_bool),
        ("concurrentKernels", ctypes.c_bool),
        ("streamPrioritiesSupported", ctypes.c_bool),
    )


class PointerAttributes(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("devicePointer", POINTER),
        ("hostPointer", POINTER),
        ("base", POINTER),
        ("size", SIZE),
    )


READ, WRITE = 1, 2


class Operand(ctypes.Structure):
    _fields_ = (
        ("data", POINTER),
        ("itemSize", SIZE),
        ("dims", ctypes.c_int),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("access", ctypes.c_uint),
    )

    def runs(self) -> list[tuple[int, int]]:
        """The contiguous ranges of bytes, as (begin, end)."""
        starts = [self.data or 0]
        run = self.itemSize
        dims = [dim for dim in zip(self.sizes[: self.dims], self.strides[: self.dims], strict=True) if dim[0] != 1]
        while dims and dims[-1][1] == run:
            run *= dims.pop()[0]
        for size, stride in dims:
            starts = [start + i * stride for start in starts for i in range(size)]
        return [(start, start + run) for start in starts]


OperandFn = ctypes.CFUNCTYPE(None, ctypes.POINTER(Operand), POINTER)
OperandsFn = ctypes.CFUNCTYPE(None, POINTER, OperandFn, POINTER)


class Kernel(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("operands", OperandsFn), ("data", POINTER))


class KernelScope(ctypes.Structure):
    _fields_ = (
        ("outer", POINTER),
        ("turn", POINTER),
        ("id", ctypes.c_uint64),
        ("kernel", POINTER),
        ("stream", POINTER),
        ("device", ctypes.c_int),
    )


class Fault(ctypes.Structure):
    _fields_ = (
        ("points", ctypes.c_uint),
        ("device", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("last", ctypes.c_uint64),
        ("minSize", SIZE),
        ("probability", ctypes.c_double),
        ("seed", ctypes.c_uint64),
        ("action", ctypes.c_int),
        ("error", ctypes.c_int),
        ("duration", ctypes.c_int),
        ("amount", ctypes.c_double),
        ("text", ctypes.c_char_p),
    )


KERNEL, COPY, FILL, ALLOCATION, FREE, CALL, SYNCHRONIZATION = (1 << bit for bit in range(7))
ON_THE_DEVICE = KERNEL | COPY | FILL | ALLOCATION | FREE
ALL_ACTIVITIES = ON_THE_DEVICE | CALL | SYNCHRONIZATION
BEGIN, END, POINT = range(3)


class Activity(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int),
        ("phase", ctypes.c_int),
        ("id", ctypes.c_uint64),
        ("device", ctypes.c_int),
        ("stream", POINTER),
        ("name", ctypes.c_char_p),
        ("correlation", ctypes.c_uint64),
        ("failed", ctypes.c_bool),
        ("operands", OperandsFn),
        ("data", POINTER),
    )


ActivityFn = ctypes.CFUNCTYPE(None, ctypes.POINTER(Activity), POINTER)


class GraphNode(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("dependencies", ctypes.POINTER(SIZE)),
        ("dependency_count", SIZE),
    )


class IpcMemHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * 64),)


class IpcEventHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * 64),)


def library_path() -> Path:
    """$OPENREG_LIBRARY, else the library of the installed package `torch_openreg`, which is not imported."""
    if chosen := os.environ.get("OPENREG_LIBRARY"):
        return Path(chosen)
    spec = importlib.util.find_spec("torch_openreg")
    for folder in spec.submodule_search_locations or () if spec else ():
        for name in ("libopenreg.so", "libopenreg_sim.so"):  # cmake/DeviceLibrary.cmake
            if (path := Path(folder, "lib", name)).exists():
                return path
    raise FileNotFoundError("libopenreg.so: install the package, or set OPENREG_LIBRARY to the library's path")


lib = ctypes.CDLL(str(library_path()))

_INT_P = ctypes.POINTER(ctypes.c_int)
_POINTER_P = ctypes.POINTER(POINTER)
_SIZE_P = ctypes.POINTER(SIZE)

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "orGetApiVersion": (_INT_P,),
    "orGetDeviceCount": (_INT_P,),
    "orSetDevice": (ctypes.c_int,),
    "orGetDevice": (_INT_P,),
    "orGetDeviceProperties": (ctypes.POINTER(DeviceProp), ctypes.c_int),
    "orDeviceSynchronize": (),
    "orDeviceGetStreamPriorityRange": (_INT_P, _INT_P),
    "orDeviceCanAccessPeer": (_INT_P, ctypes.c_int, ctypes.c_int),
    "orMalloc": (_POINTER_P, SIZE),
    "orFree": (POINTER,),
    "orSetGuardSize": (ctypes.c_size_t,),
    "orMallocHost": (_POINTER_P, SIZE),
    "orFreeHost": (POINTER,),
    "orHostRegister": (POINTER, SIZE),
    "orHostUnregister": (POINTER,),
    "orMemGetInfo": (_SIZE_P, _SIZE_P),
    "orPointerGetAttributes": (ctypes.POINTER(PointerAttributes), POINTER),
    "orMemoryUnprotect": (POINTER,),
    "orMemoryProtect": (POINTER,),
    "orIpcGetMemHandle": (ctypes.POINTER(IpcMemHandle), POINTER),
    "orIpcOpenMemHandle": (_POINTER_P, IpcMemHandle, ctypes.c_uint),
    "orIpcCloseMemHandle": (POINTER,),
    "orIpcEventCreate": (_POINTER_P, ctypes.c_uint),
    "orIpcGetEventHandle": (ctypes.POINTER(IpcEventHandle), POINTER),
    "orIpcOpenEventHandle": (_POINTER_P, IpcEventHandle),
    "orMemcpy": (POINTER, POINTER, SIZE, ctypes.c_int),
    "orMemset": (POINTER, ctypes.c_int, SIZE),
    "orDeviceGetDefaultStream": (_POINTER_P, ctypes.c_int),
    "orStreamCreate": (_POINTER_P,),
    "orStreamCreateWithPriority": (_POINTER_P, ctypes.c_uint, ctypes.c_int),
    "orStreamGetPriority": (POINTER, _INT_P),
    "orStreamGetDevice": (POINTER, _INT_P),
    "orStreamDestroy": (POINTER,),
    "orStreamQuery": (POINTER,),
    "orStreamSynchronize": (POINTER,),
    "orStreamWaitEvent": (POINTER, POINTER, ctypes.c_uint),
    "orMemcpyAsync": (POINTER, POINTER, SIZE, ctypes.c_int, POINTER),
    "orMemcpyWithStream": (POINTER, POINTER, SIZE, ctypes.c_int, POINTER),
    "orMemsetAsync": (POINTER, ctypes.c_int, SIZE, POINTER),
    "orEventCreate": (_POINTER_P,),
    "orEventCreateWithFlags": (_POINTER_P, ctypes.c_uint),
    "orEventDestroy": (POINTER,),
    "orEventRecord": (POINTER, POINTER),
    "orEventQuery": (POINTER,),
    "orEventSynchronize": (POINTER,),
    "orEventElapsedTime": (ctypes.POINTER(ctypes.c_float), POINTER, POINTER),
    "orLaunchHostFunc": (POINTER, HostFn, POINTER),
    "orLaunch": (POINTER, HostFn, POINTER, ctypes.c_uint),
    "orSetExecutionMode": (ctypes.c_int, ctypes.c_uint64),
    "orGetExecutionMode": (_INT_P, ctypes.POINTER(ctypes.c_uint64)),
    "orFindExecution": (ctypes.c_char_p, _INT_P, ctypes.POINTER(ctypes.c_uint64)),
    "orGetForcedCount": (ctypes.POINTER(ctypes.c_uint64),),
    "orSetIdleCallback": (HostFn, POINTER, ctypes.c_uint),
    "orSetWaitCallbacks": (BeforeWaitFn, AfterWaitFn),
    "orKernelBegin": (ctypes.POINTER(KernelScope), POINTER, ctypes.POINTER(Kernel)),
    "orLaunchDescribed": (POINTER, HostFn, POINTER, ctypes.c_uint, ctypes.POINTER(Kernel)),
    "orStreamAwaitLaunch": (POINTER,),
    "orLaunchDeferred": (POINTER, DeferredFn, POINTER, ctypes.POINTER(Kernel)),
    "orCompletionSignal": (POINTER, POINTER),
    "orStreamBeginCapture": (POINTER, ctypes.c_int),
    "orStreamEndCapture": (POINTER, _POINTER_P),
    "orStreamIsCapturing": (POINTER, _INT_P),
    "orStreamGetCaptureInfo": (POINTER, _INT_P, ctypes.POINTER(ctypes.c_uint64), _POINTER_P),
    "orStreamBeginConditional": (POINTER, POINTER, SIZE),
    "orStreamEndConditional": (POINTER,),
    "orThreadExchangeStreamCaptureMode": (_INT_P,),
    "orEventRecordWithFlags": (POINTER, POINTER, ctypes.c_uint),
    "orGraphGetNodeCount": (POINTER, ctypes.POINTER(SIZE)),
    "orGraphGetNode": (POINTER, SIZE, ctypes.POINTER(GraphNode)),
    "orGraphRetainUserObject": (POINTER, POINTER, HostFn),
    "orGraphDestroy": (POINTER,),
    "orGraphDebugDotPrint": (POINTER, ctypes.c_char_p, ctypes.c_uint),
    "orGraphInstantiate": (_POINTER_P, POINTER, ctypes.c_uint),
    "orGraphLaunch": (POINTER, POINTER),
    "orGraphExecDestroy": (POINTER,),
    "orActivitySubscribe": (_POINTER_P, ActivityFn, POINTER, ctypes.c_uint),
    "orActivityUnsubscribe": (POINTER,),
}
# A library without the folder csrc/simulator has neither faults nor the mode chaos.
HAS_SIMULATOR = hasattr(lib, "orFaultInject")
if HAS_SIMULATOR:
    SIGNATURES |= {
        "orFaultInject": (_POINTER_P, ctypes.POINTER(Fault)),
        "orFaultCount": (POINTER, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64)),
        "orFaultRemove": (POINTER,),
        "orRequestAllocation": (ctypes.c_int, SIZE),
        "orRequestStream": (ctypes.c_int,),
    }
for _name, _arguments in SIGNATURES.items():
    getattr(lib, _name).argtypes = _arguments
for _name, _arguments, _result in (
    ("orGetErrorName", (ctypes.c_int,), ctypes.c_char_p),
    ("orGetErrorString", (ctypes.c_int,), ctypes.c_char_p),
    ("orGetLastError", (), ctypes.c_int),
    ("orPeekAtLastError", (), ctypes.c_int),
    ("orGetLastErrorMessage", (), ctypes.c_char_p),
    ("orGetKernelPointer", (POINTER,), POINTER),
    ("orGetDevicePointer", (POINTER,), POINTER),
    ("orIsInBadFork", (), ctypes.c_bool),
    ("orIpcIsShared", (POINTER,), ctypes.c_bool),
    ("orExecutesInline", (), ctypes.c_bool),
    ("orGetExecutionModeName", (ctypes.c_int,), ctypes.c_char_p),
    ("orRethrowLaunchFailure", (), None),
    ("orKernelEnd", (ctypes.POINTER(KernelScope), ctypes.c_bool), None),
    ("orNoteAllocation", (POINTER, SIZE, POINTER), None),
    ("orNoteFree", (POINTER, SIZE, POINTER), None),
):
    getattr(lib, _name).argtypes = _arguments
    getattr(lib, _name).restype = _result


class OpenRegError(Exception):
    """A function's failure: `name` of the code and `message` of the library."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message


def call(name: str, *arguments: Any) -> None:
    if code := getattr(lib, name)(*arguments):
        raise OpenRegError(lib.orGetErrorName(code).decode(), lib.orGetLastErrorMessage().decode())


def get_int(name: str, *arguments: Any) -> int:
    """The int that a function writes through its first parameter."""
    value = ctypes.c_int(-1)
    call(name, ctypes.byref(value), *arguments)
    return value.value


def get_pointer(name: str, *arguments: Any) -> int:
    """The pointer or handle that a function writes through its first parameter; 0 for NULL."""
    value = POINTER(0xBAD)
    call(name, ctypes.byref(value), *arguments)
    return value.value or 0


def malloc(size: int) -> int:
    return get_pointer("orMalloc", size)


def memory_info() -> tuple[int, int]:
    """Free and total bytes of the current device."""
    free, total = SIZE(), SIZE()
    call("orMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def attributes(pointer: int | None) -> PointerAttributes:
    result = PointerAttributes()
    call("orPointerGetAttributes", ctypes.byref(result), pointer)
    return result


def upload(pointer: int, data: bytes) -> None:
    call("orMemcpy", pointer, ctypes.c_char_p(data), len(data), DEFAULT)


def download(pointer: int, size: int) -> bytes:
    data = ctypes.create_string_buffer(size)
    call("orMemcpy", data, pointer, size, DEFAULT)
    return data.raw


def ipc_handle(pointer: int) -> bytes:
    handle = IpcMemHandle()
    call("orIpcGetMemHandle", ctypes.byref(handle), pointer)
    return bytes(handle)


def ipc_open(handle: bytes) -> int:
    return get_pointer("orIpcOpenMemHandle", IpcMemHandle.from_buffer_copy(handle), 0)


def ipc_event() -> int:
    """An event that other processes can open."""
    return get_pointer("orIpcEventCreate", 0)


def ipc_event_handle(event: int) -> bytes:
    handle = IpcEventHandle()
    call("orIpcGetEventHandle", ctypes.byref(handle), event)
    return bytes(handle)


def ipc_event_open(handle: bytes) -> int:
    return get_pointer("orIpcOpenEventHandle", IpcEventHandle.from_buffer_copy(handle))


class Observer:
    """A context manager that collects the activities in their order. `events` has a tuple for each: (kind, phase, id,
    device, stream, name, failed, [(begin, end, access), ...]). `correlations` has the correlation of each."""

    def __init__(self, kinds: int = ON_THE_DEVICE) -> None:
        self.kinds = kinds
        self.events: list[tuple[Any, ...]] = []
        self.correlations: list[int] = []
        self._tell = ActivityFn(self._told)

    def __enter__(self) -> Observer:
        self.handle = get_pointer("orActivitySubscribe", self._tell, None, self.kinds)
        return self

    def __exit__(self, *exc_info: object) -> None:
        call("orActivityUnsubscribe", self.handle)

    def _told(self, pointer: Any, _: int | None) -> None:
        activity = pointer.contents
        ranges: list[tuple[int, int, int]] = []

        def visit(operand: Any, _: int | None) -> None:
            ranges.extend((begin, end, operand.contents.access) for begin, end in operand.contents.runs())

        if activity.operands:
            activity.operands(activity.data, OperandFn(visit), None)
        self.correlations.append(activity.correlation)
        self.events.append(
            (
                activity.kind,
                activity.phase,
                activity.id,
                activity.device,
                activity.stream,
                activity.name.decode() if activity.name else None,
                activity.failed,
                ranges,
            )
        )
