"""The files of a new backend, and what differs in them from the files of this project.

Whole files and folders are listed here. In a file, lines between ``LEFT OUT OF A NEW BACKEND START: why`` and
``LEFT OUT OF A NEW BACKEND END`` (comments of the file's language) are left out. EDITS has the texts that differ.
Lines with the book's ``LITERALINCLUDE`` marks are removed, because a new backend has no book. If a changed source no
longer has a text of EDITS, tests/package/test_new_backend.py fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

# Everything that can be part of a new backend. Symbolic links are kept as links.
FILES = (
    ".ci/run",
    ".clang-format",
    ".editorconfig",
    ".gitignore",
    ".pre-commit-config.yaml",
    "CMakeLists.txt",
    "LICENSE",
    "Makefile",
    "cmake",
    "csrc",
    "examples/custom_operators.py",
    "examples/distributed",
    "examples/train_digits.py",
    "pyproject.toml",
    "tests",
    "third_party",
    "torch_openreg",
    "torch_openreg_autoload.py",
)
# The parts of FILES that only this project has: the device type cuda, the book, the fuzzer, benchmarks, other people's
# programs, and the ways to choose simulated devices for programs that are tested without hardware.
LEFT_OUT = (
    "cmake/rename.py",
    "tests/book",
    "tests/cuda",
    "tests/integrations",
    "tests/package/build_new_backend.py",
    "tests/package/test_new_backend.py",
    "tests/package/test_wheels.py",
    "tests/simulator/test_under_faults.py",
    "tests/support/cuda_builds.py",
    "tests/support/libraries.py",
    "tests/tools/clients",
    "tests/tools/fuzz",
    "tests/tools/mutants",
    "tests/tools/test_benchmark_smoke.py",
    "tests/tools/test_clients.py",
    "tests/tools/test_conformance.py",
    "tests/tools/test_fuzz.py",
    "tests/tools/test_pytest_options.py",
    "tests/tools/test_pytest_plugin.py",
    "torch_openreg/_cli/new.py",
    "torch_openreg/_cli/run.py",
    "torch_openreg/_cuda",
    "torch_openreg/_testing",
)
# Files in which no name is replaced: the licence names the author of this project.
VERBATIM = ("LICENSE",)

DEVICE_TYPE = '''asked_face = os.environ.get("TORCH_OPENREG_AS", "")
device_type = "cuda" if asked_face == "cuda" else "openreg"
"""The type of this process's devices, "openreg" or "cuda": the face, which TORCH_OPENREG_AS chooses at the start."""
'''
EXTRA_MODULES = ', "torch_openreg_options.py", "torch_openreg_pytest.py"'
TAGLINE = "A complete PyTorch accelerator that needs no hardware"

# File -> pairs: the text in this project, and the text in a new backend.
EDITS: dict[str, tuple[tuple[str, str], ...]] = {
    "csrc/runtime/TorchVersion.h": ((" docs/wheels.md lists these differences.", ""),),
    "csrc/simulator/borrowed/Stub.h": (("// docs/stub-operators.md lists all stubs by this rule.\n", ""),),
    "pyproject.toml": (
        (TAGLINE, "A PyTorch backend for openreg devices"),
        (EXTRA_MODULES, ""),
        (EXTRA_MODULES, ""),
        (
            """# pytest wants to rewrite every module of a distribution with a plugin, and an editable install has one that Python itself
# has imported by then. A regular install has none.
filterwarnings = ["ignore:Module already imported so cannot be rewritten; _editable_skbc:pytest.PytestAssertRewriteWarning"]
""",
            "",
        ),
    ),
    "torch_openreg/__init__.py": (
        (
            'a complete PyTorch accelerator that needs no hardware, as device ``"openreg"``.',
            'a PyTorch backend, for the device ``"openreg"``.',
        ),
        (
            "_autoload = _loader.load  # PyTorch's own backend torch_openreg gives its load function this name",
            "_autoload = _loader.load  # the name that PyTorch's documentation gives it",
        ),
    ),
    "torch_openreg/_loader.py": (
        ("import warnings\n", ""),
        ("for each version (release/wheels.py), because pip", "for each version, because pip"),
        (
            "from importlib.machinery import ExtensionFileLoader, ModuleSpec",
            "from importlib.machinery import ModuleSpec",
        ),
        ("_environment import asked_face, device_type", "_environment import device_type"),
        (
            '    if device_type != "cuda":  # dynamo knows torch.cuda\n        _WhenImported("torch._dynamo", make_traceable)\n',
            '    _WhenImported("torch._dynamo", make_traceable)\n',
        ),
    ),
    "torch_openreg/_environment.py": (
        (
            DEVICE_TYPE,
            'device_type = "openreg"\n"""The type of the devices, which programs write in ``torch.device``."""\n',
        ),
    ),
    "torch_openreg/_failure.py": (
        (
            '    # The word distinguishes this device from a real GPU, which also has the type "cuda".\n'
            '    simulated = "simulated " if device_type == "cuda" else ""\n',
            "",
        ),
        ('\n    If the device type is "cuda", the function only returns the module.\n', ""),
        ("f'The {simulated}device", "f'The device"),
    ),
    "torch_openreg/_cli/__init__.py": (
        ("Tools of torch_openreg, the PyTorch accelerator that needs no hardware.", "Tools of torch_openreg."),
        ('("doctor", "memory", "models", "new", "run", "trace")', '("doctor", "memory", "models", "trace")'),
    ),
    "torch_openreg/_cli/doctor.py": (("from torch_openreg import _loader\n", ""),),
    "torch_openreg/_cli/models.py": (
        (", torch.openreg.device_model(NAME) or pytest --openreg-model=NAME.", " or torch.openreg.device_model(NAME)."),
    ),
    "torch_openreg/openreg/sanitizer.py": (
        ("process, and ``pytest --openreg-sanitize=race,init`` for\neach test. Findings", "process.\nFindings"),
    ),
    "torch_openreg/_inductor/_differences.py": (
        ("import inspect\n", ""),
        ("    codecache,\n    config,\n", "    codecache,\n"),
        ("import b2b_gemm, fuse_attention, replace_random\n", "import b2b_gemm\n"),
    ),
    "torch_openreg/_cli/_probe.py": (
        (
            """            modules = [getattr(torch, name) for name in sorted(set(vars(torch)) - before[2])]
            # With the device "cuda", torch_openreg's function adds no module to torch, but returns one.
            for module in modules if result is None or result in modules else [*modules, result]:
                self.probe.ask(module)
""",
            """            for name in sorted(set(vars(torch)) - before[2]):
                self.probe.ask(getattr(torch, name))
""",
        ),
    ),
    "torch_openreg/_inductor/_codegen.py": (
        (
            'LIBRARY = "libtorch_openreg_cuda.so" if device_type == "cuda" else "libtorch_openreg.so"',
            'LIBRARY = "libtorch_openreg.so"',
        ),
        (
            '    # This call registers PyTorch\'s overrides, also for the type "cuda". Our registration afterwards replaces '
            "these.\n",
            "",
        ),
    ),
    "torch_openreg/_inductor/_device.py": (
        (
            "    interfaces.get_registered_device_interfaces()  # registers PyTorch's, of which one may have our type "
            '("cuda")\n',
            "",
        ),
        (
            '    if device_type != "cuda":  # PyTorch has registered "cuda"\n        register_rng_state()\n',
            "    register_rng_state()\n",
        ),
    ),
    "torch_openreg/_inductor/__init__.py": (
        (
            "The type of the device is ``torch_openreg._environment.device_type``. This package does not repeat its name.\n",
            "",
        ),
    ),
    "torch_openreg/_models.py": (
        ("from torch_openreg._environment import device_type\n", ""),
        ('    own = "CUDA" if device_type == "cuda" else "PrivateUse1"\n', ""),
        ("not has_kernel_for(operator, own)", 'not has_kernel_for(operator, "PrivateUse1")'),
    ),
    "torch_openreg/distributed.py": (("With ``TORCH_OPENREG_AS=cuda`` the name of the backend is ``nccl``. ", ""),),
    "torch_openreg/openreg/faults.py": (
        ("outside of this package and its pytest plugin.", "outside of this package."),
    ),
    "torch_openreg/openreg/models.py": (
        ("_environment import FORK_SERVER, device_type", "_environment import device_type"),
        ('    if device_type == "cuda":\n        torch.cuda._cached_device_count = None\n', ""),
        ("_C._refuse(_name_of(operator), refusals)", "_C._refuse(operator, refusals)"),
        ("_C._round_to_tf32(_name_of(operator), list", "_C._round_to_tf32(operator, list"),
        ("def _choose(model: _models.Model | None, restrict: bool = True)", "def _choose(model: _models.Model | None)"),
        ("    if restrict and model != _restricting:", "    if model != _restricting:"),
        ("def _obey_environment(restrict: bool = True)", "def _obey_environment()"),
        (" Called at import. The pytest plugin calls it in each forked child.", " Called at import."),
        ("_choose(_models.find_for_this_torch(name), restrict)", "_choose(_models.find_for_this_torch(name))"),
        (
            """    # The pytest plugin's fork server (_testing.processes) refuses nothing: a test's marker may choose another model in
    # its child, and restrictions cannot be removed.
    _obey_environment(restrict=FORK_SERVER not in os.environ)
""",
            "    _obey_environment()\n",
        ),
    ),
    "torch_openreg/openreg/_reductions.py": (
        (
            """    if device_type == "openreg":  # PyTorch knows how CUDA tensors travel: torch_openreg/_cuda/_storage.py
        # Tensors of every layout, parameters and typed storages contain untyped storages, and PyTorch reduces the rest.
        ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
""",
            """    # Tensors of every layout, parameters and typed storages contain untyped storages, and PyTorch reduces the rest.
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
""",
        ),
    ),
    "torch_openreg/openreg/_tensor_types.py": (
        (
            "\nWith TORCH_OPENREG_AS=cuda PyTorch has these types too: a tensor or storage is an instance of both types.\n",
            "",
        ),
        ("As in ``torch.cuda``.\n", "As in ``torch.cuda``."),
    ),
    "torch_openreg/openreg/_utils.py": (
        (
            """            expected = "a cuda" if device_type == "cuda" else "an openreg"
            raise ValueError(f"Expected {expected} device, but got: {device}")
""",
            """            raise ValueError(f"Expected an openreg device, but got: {device}")
""",
        ),
    ),
}


def files(root: Path, wanted: tuple[str, ...] = FILES, left_out: tuple[str, ...] = LEFT_OUT) -> Iterator[str]:
    """The paths of a new backend's files in the sources at ``root``, not yet renamed. Leaves out what was built."""
    for part in wanted:
        paths = [root / part] if not (root / part).is_dir() else sorted((root / part).rglob("*"))
        for path in paths:
            name = path.relative_to(root).as_posix()
            built = (
                {"__pycache__", "build"} & {*name.split("/")} or path.suffix in (".pyc", ".so") or ".egg-info" in name
            )
            if built or any(name == each or name.startswith(f"{each}/") for each in left_out):
                continue
            if path.is_file() or path.is_symlink():
                yield name
