"""A conformance kit for PyTorch backends: ``python -m torch_conformance --device npu``.

The kit knows one thing about a backend: its device type. Everything else is asked of PyTorch. See README.md.
"""
