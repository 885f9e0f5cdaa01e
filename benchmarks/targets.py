"""The targets of the benchmark, in one table, so that a tighter target is one changed number.

A target is the largest value that meets it. Most targets are ratios: the device's time divided by the reference's time.
The name of any other target ends with its unit.
"""

OPERATOR_MEDIAN = {"16": {"elementwise": 0.92, "all": 1.0}, "1M": {"all": 1.02}}
OPERATOR_WORST = {"16": 1.2, "1M": 1.25}
OPTIMIZER = 1.0
ITEM = 2.0
# At least 0.95 of memcpy's bandwidth. A copy of 4 KB is mostly the call of an operator, so it has an operator's target.
COPY = {"4 KB": OPERATOR_WORST["16"], "1 MB": 1 / 0.95, "256 MB": 1 / 0.95}
# Allocating and freeing at any size, against the CPU's time for 1 KB.
ALLOCATION = 1.0
ALLOCATE_FILL_FREE = 0.12
COLD_FILL = 1.0
EVENT_RECORD_US = 1.0
# How much longer the host takes to queue a kernel of 16 elements on a stream than to run the kernel itself.
LAUNCH_US = 3.0
SYNCHRONIZE_US = 1.0
# What the profile of a kernel of 16 elements adds to the profile of its operator, by mode of execution.
PROFILED_KERNEL_US = {"inline": 1.0, "async": 1.5}
IMPORT_MS = 15.0
# The device with the type cuda, against the device by its own name.
CUDA_IMPORT_MS = 20.0
CUDA_OPERATORS = 1.03
TRAINING = {
    "MLP": 0.97,
    "transformer": 0.98,
    "tiny MLP": 1.3,
    "MLP, 64 MB activations": 0.85,
    "convolution, 64 MB activations": 0.33,
}
CPU_AFTER_TRAINING = 1.05
IDLE_THREADS = 0.0
# A thread that polls at 10 Hz costs more than this.
IDLE_CPU_MS = 0.5

# torch.compile, with the names of benchmarks.compiled.
COMPILED = {
    "cold compilation of the MLP": 1.1,
    "MLP": 1.03,
    "transformer": 1.03,
    "tiny MLP": 1.15,
    "convolution, 64 MB activations": 1.03,
}
COMPILED_CALL = "call of a kernel, 16 elements"
COMPILED_CALL_NS = 50.0
