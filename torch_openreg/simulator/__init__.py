"""What only a device without hardware has: faults, device models, the sanitizer, the CPU's kernels compiled for the device.

A vendor deletes this folder. The rest of the package finds it, and does not name it:

  - Submodules of torch.openreg: the folder openreg, and _public_names.py for the names that they give to torch.openreg.
  - Environment variables: _variables.py. Functions of PyTorch that are replaced: _upstream.py.
  - Commands: the folder _cli. Routes of operators: _routes.py. The pytest plugin: _pytest.py.
  - The code generator for torch.compile: _compiler.py.
"""
