"""What CUDA and MPS lack and the CPU has, from PyTorch's own tables: ``python -m tests.simulator.device_models``."""
