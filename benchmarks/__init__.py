"""The benchmark: `python -m benchmarks` (or `make bench`) compares the device with the CPU device that it borrows its
kernels from. It measures and never judges: a missed target is marked, and the exit status stays 0."""
