"""A host access to device memory is explained on stderr, and other segmentation faults reach their handlers."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import programs
import pytest
from openreg_process import compile_program, cpp_compiler, run_python
from programs import Done

REMEDY = (
    "Device memory cannot be dereferenced on the host: copy it first, tensor.cpu() in PyTorch, or orMemcpy in C; "
    "kernels use orGetKernelPointer()."
)
TOUCH = "pointer = malloc(4096); print(hex(pointer), flush=True)\n{}\nctypes.string_at(pointer + 16, 1)"
PYTHON_SAYS = "Fatal Python error: Segmentation fault\n"


def explained(result: Done) -> bool:
    """Whether the process said once which address TOUCH accessed, and then died of SIGSEGV."""
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


def test_faulthandler_enabled_before_the_start_also_reports_a_host_access() -> None:
    result = run_python(TOUCH.format(""), "-X", "faulthandler")
    assert explained(result)
    assert PYTHON_SAYS in result.stderr


def test_faulthandler_enabled_after_the_start_also_reports_a_host_access() -> None:
    result = run_python(TOUCH.format("import faulthandler; faulthandler.enable()"))
    assert explained(result)
    assert PYTHON_SAYS in result.stderr


def test_faulthandler_also_reports_a_host_access_of_another_thread() -> None:
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


def test_a_sigsegv_from_another_process_ends_the_process_without_an_explanation() -> None:
    code = "malloc(1); import subprocess, time; subprocess.run(['kill', '-SEGV', str(os.getpid())]); time.sleep(60)"
    result = run_python(code)
    assert (result.returncode, result.stderr) == (-signal.SIGSEGV, "")


def test_an_ignored_signal_stays_ignored_but_a_fault_kills() -> None:
    ignore = "import signal; signal.signal(signal.SIGSEGV, signal.SIG_IGN)\n"
    run_python(ignore + "malloc(1); os.kill(os.getpid(), 11); print('alive')", status=0, output="alive\n", errors="")
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
def test_a_handler_that_was_there_before_still_recovers(tmp_path: Path, kind: str) -> None:
    define = f"#define {kind[2:]}\n"
    program = compile_program(cpp_compiler(), tmp_path, define + RECOVERING)
    result = programs.run(program, status=0)
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


GUARDED = """
from openreg_c import lib, memory_info
free, _ = memory_info()
call("orSetGuardSize", 1)
first, second = malloc(5000), malloc(5000)
call("orSetGuardSize", 0)
third = malloc(5000)
print(free - memory_info()[0], flush=True)  # guards are not memory
window = lib.orGetKernelPointer
window.restype, window.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for pointer in (first, second, third):
    ctypes.memset(window(pointer), 1, 8192)
    ctypes.string_at(window(pointer), 8192)
print(hex(first), flush=True)
ctypes.memset(window({}) + 8192 + 100, 1, 1)
"""


@pytest.mark.parametrize("pointer", ["first", "second"])
def test_a_kernel_that_goes_past_the_end_faults_in_the_guard(pointer: str) -> None:
    result = run_python(GUARDED.format(pointer))
    assert result.stdout.startswith("24576\n0x")
    assert re.fullmatch(
        r"openreg: a kernel accessed memory of device 0 at 0x\w+, 3292 bytes past the end of an allocation of 5000 "
        r"bytes: an index is out of bounds\.\n",
        result.stderr,
    )
    assert result.returncode == -signal.SIGSEGV
