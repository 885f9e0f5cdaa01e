"""Prepares a build of PyTorch with CUDA for simulated devices of type cuda, before torch is imported.

Python imports this package at each start, because torch_openreg_cuda.pth tells it so. Therefore this file imports only
what Python has imported already. It puts one finder in place, which does nothing until a program imports torch with
TORCH_OPENREG_AS=cuda.

PYTEST_DONT_REWRITE: pytest would warn that this module of a distribution with a plugin is imported already.
"""

import os
import sys

TYPE = "cuda"


class _BeforeTorch:
    """Finder that lets _without_cuda act right before torch is executed, and leaves the search to other finders."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or os.environ.get("TORCH_OPENREG_AS") != TYPE:
            return None
        others = [each for each in sys.meta_path if each is not self and hasattr(each, "find_spec")]
        found = (each.find_spec(name, path, target) for each in others)
        spec = next(filter(None, found), None)
        if spec is not None and spec.submodule_search_locations and hasattr(spec.loader, "exec_module"):
            execute = spec.loader.exec_module

            def prepare_and_execute(module):
                from torch_openreg_cuda import _without_cuda

                _without_cuda.prepare(spec.submodule_search_locations[0])
                execute(module)

            spec.loader.exec_module = prepare_and_execute
        return spec


def launch():
    """Runs the program in ``sys.argv[1:]`` as Python itself does: a file, or a module after "-m".

    ``torch-openreg run`` uses this function where Python reads no .pth file.
    """
    import runpy

    del sys.argv[0]
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        if not getattr(sys.flags, "safe_path", sys.flags.isolated):
            sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")


sys.meta_path.insert(0, _BeforeTorch())
