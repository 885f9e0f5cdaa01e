"""What CUDA and MPS lack and the CPU has, extracted from PyTorch's own tables: ``python -m tests.device_models``."""
