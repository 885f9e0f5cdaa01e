"""The variables that openreg.h names among its rules: OPENREG_DEVICE_COUNT, OPENREG_DEVICE_MEMORY and the others."""

from __future__ import annotations

import pytest
from openreg_c import MIB
from openreg_process import error_of, output_of

COUNT = "print(get_int('orGetDeviceCount'))"
CAPACITY = "print(memory_info()[1])"
ALLOWED_COUNT = "a number of devices from 1 to 64"
ALLOWED_MEMORY = "a number of bytes per device from 1M to 16384G, with an optional suffix K, M or G (for example 16G)"
ALLOWED_VISIBLE = (
    "different device indices separated by commas (for example 0,1), or an empty value to hide every device"
)
ALLOWED_EXECUTION = "inline, async, chaos, early, late or random:SEED with a SEED from 1 to 18446744073709551615"
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


def test_a_client_adds_a_variable_that_selects_devices_and_gives_texts_of_errors() -> None:
    code = """
    class Identity(ctypes.Structure):
        Select = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, POINTER, ctypes.c_int, ctypes.POINTER(ctypes.c_int))
        Text = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)
        _fields_ = (("variable", ctypes.c_char_p), ("select", Select), ("text", Text))

    def last_one(value, uuids, count, selected):
        print(value, count, ctypes.string_at(uuids + 16 * (count - 1), 7))
        selected[0] = count - 1
        return 1

    no_client = ctypes.create_string_buffer(b"no client")  # the text stays valid
    text = Identity.Text(lambda code: ctypes.addressof(no_client) if code == 100 else None)
    identity = Identity(b"CLIENT_DEVICES", Identity.Select(last_one), text)
    lib.orSetDeviceIdentity(ctypes.byref(identity))
    try:
        print(get_int("orGetDeviceCount"))
    except OpenRegError as error:
        print(error.message)
    print(lib.orGetErrorString(100), lib.orGetErrorString(2))
    """
    lines = output_of(code, OPENREG_DEVICE_COUNT="3", CLIENT_DEVICES="last").splitlines()
    assert lines == ["b'last' 3 b'OpenReg'", "1", "b'no client' b'out of memory'"]
    lines = output_of(code, OPENREG_DEVICE_COUNT="3", CLIENT_DEVICES="last", OPENREG_VISIBLE_DEVICES="0").splitlines()
    assert (
        lines[1]
        == 'orGetDeviceCount: CLIENT_DEVICES="last" and OPENREG_VISIBLE_DEVICES="0" select different devices: unset one of them'
    )


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        *(("OPENREG_DEVICE_COUNT", value, ALLOWED_COUNT) for value in ("0", "65", "-1", "two", "2x", " 2", "9" * 30)),
        *(
            ("OPENREG_DEVICE_MEMORY", value, ALLOWED_MEMORY)
            for value in ("abc", "-1", "0", "1K", "G", "1.5G", "16GB", "16 G", "16385G", "9" * 30)
        ),
        *(("OPENREG_VISIBLE_DEVICES", value, ALLOWED_VISIBLE) for value in ("abc", "0,", ",", "0 1", "0,0", "0x1")),
        *(("OPENREG_EXECUTION", value, ALLOWED_EXECUTION) for value in ("1", "Inline", "async ", "random", "random:0")),
        *(("OPENREG_CHAOS_SEED", value, ALLOWED_SEED) for value in ("-1", "0x10", "1.0", str(1 << 64))),
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


def test_an_empty_value_means_unset() -> None:
    names = ("OPENREG_DEVICE_COUNT", "OPENREG_DEVICE_MEMORY", "OPENREG_EXECUTION", "OPENREG_CHAOS_SEED")
    seed = "seed = ctypes.c_uint64(); print(get_int('orGetExecutionMode', ctypes.byref(seed)), seed.value)"
    output = output_of(f"{COUNT};{CAPACITY};{seed}", **dict.fromkeys(names, ""))
    assert output.split() == ["2", str(16 << 30), "0", "0"]


def test_without_a_visible_device_calls_return_orErrorNoDevice() -> None:
    assert error_of("malloc(1)", OPENREG_VISIBLE_DEVICES="") == (
        "orErrorNoDevice",
        "orMalloc: no device is visible: OPENREG_VISIBLE_DEVICES hides all 2; unset it to see them",
    )
    assert error_of("call('orSetDevice', 0)", OPENREG_VISIBLE_DEVICES="7")[0] == "orErrorNoDevice"
    assert error_of("get_int('orGetDevice')", OPENREG_VISIBLE_DEVICES="7")[0] == "orErrorNoDevice"
