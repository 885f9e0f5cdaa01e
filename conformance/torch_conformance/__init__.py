"""A conformance kit for PyTorch backends: ``python -m torch_conformance --device npu``.

The kit knows only one thing about a backend: its device type. It asks PyTorch for everything else. See README.md.
"""
