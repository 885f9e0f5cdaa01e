"""Devices of openreg.h: the current device, its properties, and its peers."""

from __future__ import annotations

import ctypes

import pytest
from openreg_c import DeviceProp, call, memory_info
from openreg_process import error_of, output_of

pytestmark = pytest.mark.usefixtures("clean_device")


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
    # The numbers of an A100: CUDA's programming guide, technical specifications for compute capability 8.0.
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
