"""The environment variable that only a device of the type cuda has: a row for torch_openreg._environment."""

VARIABLES = (
    (
        "CUDA_VISIBLE_DEVICES",
        "list",
        "all",
        "the devices that the process may use, for devices of the type cuda",
        "torch_openreg/_cuda/csrc/DeviceLibrary.cpp",
    ),
)
