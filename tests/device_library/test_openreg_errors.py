"""Version and errors of openreg.h, and what its headers declare."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path

import programs
import pytest
from openreg_c import HostFn, call, get_int, lib, library_path
from openreg_process import INCLUDE, LIBRARY_SOURCES, raises


def test_the_header_is_plain_c(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler: cc, gcc or clang")
    (tmp_path / "program.c").write_text('#include "openreg.h"\nint main(void) { return orSuccess; }\n')
    flags = ("-std=c11", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}")
    programs.run(compiler, *flags, "-fsyntax-only", tmp_path / "program.c", status=0)


def test_the_library_exports_its_header_and_nothing_else() -> None:
    headers = "".join(header.read_text() for header in LIBRARY_SOURCES.glob("**/include/*.h"))
    declared = set(re.findall(r"^(?:[^#\n]+ )?OPENREG_EXPORT [^;(]*?\b(\w+)(?:\(|;)", headers, re.MULTILINE))
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("needs nm (binutils)")
    listing = programs.run(nm, "-D", "--defined-only", library_path(), status=0)
    symbols = {line.split()[-1] for line in listing.stdout.splitlines() if line.split()[-2] in "TDB"}
    space = "occl"  # the namespace of the collectives, whose headers are C++
    mangled = {symbol: re.fullmatch(rf"_ZN{len(space)}{space}(\d+)(\w+)", symbol) for symbol in symbols}
    assert {match[2][: int(match[1])] if match else symbol for symbol, match in mangled.items()} == declared


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
        401: ("orErrorIllegalState", "the operation cannot be performed in the present state"),
        600: ("orErrorNotReady", "device not ready"),
        700: ("orErrorIllegalAddress", "an illegal memory access was encountered"),
        710: ("orErrorAssert", "device-side assert triggered"),
        712: (
            "orErrorHostMemoryAlreadyRegistered",
            "part or all of the requested memory range is already mapped",
        ),
        713: ("orErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"),
        719: ("orErrorLaunchFailure", "unspecified launch failure"),
        800: ("orErrorNotPermitted", "operation not permitted"),
        801: ("orErrorNotSupported", "operation not supported"),
        900: ("orErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"),
        901: ("orErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"),
        902: ("orErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"),
        903: ("orErrorStreamCaptureUnmatched", "capture was not ended in the same stream as it began"),
        904: ("orErrorStreamCaptureUnjoined", "capturing stream has unjoined work"),
        905: ("orErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"),
        906: (
            "orErrorStreamCaptureImplicit",
            "operation would make the legacy stream depend on a capturing blocking stream",
        ),
        907: ("orErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"),
        908: (
            "orErrorStreamCaptureWrongThread",
            "attempt to terminate a thread-local capture sequence from another thread",
        ),
        -1: ("unrecognized error code", "unrecognized error code"),
        12345: ("unrecognized error code", "unrecognized error code"),
    }
    for code, texts in expected.items():
        assert (lib.orGetErrorName(code).decode(), lib.orGetErrorString(code).decode()) == texts


def test_the_last_error_stays_until_it_is_got() -> None:
    assert lib.orSetDevice(-1) == 101
    assert get_int("orGetDevice") == 0  # a call that succeeds keeps the last error
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
