"""Level 0: the backend loads with `import torch`, and nothing else changes."""

# The report prints a check as a script. Therefore a check gets the device as a string, and itself imports all modules
# that it needs besides torch.
import torch

from ..kit import (
    NotOffered,
    device_count,
    device_module,
    ends_silently,
    equal,
    in_threads,
    note,
    python,
    raises,
    start_python,
    usable,
)
from ..registry import Topic

autoload = Topic(
    "loads/autoload",
    why="Users install the package and write device=... in their program. Their first bug report is an import that "
    "fails, that prints, or that must come before another import.",
    defined="torch/__init__.py: _import_device_backends; entry points of the group torch.backends",
    chapter="autoload",
    needs=("not_the_host", "autoload"),
    issue="torch-spyre/torch-spyre#2925",
)


@autoload.check()
def import_torch_is_enough(device):
    """After `import torch` alone, a tensor can be made on the device."""
    equal(python(f"import torch; print(torch.ones(2, device={device!r}).sum().item())"), "2.0\n")


@autoload.check()
def import_is_silent(device):
    """`import torch` writes nothing to stdout or stderr."""
    result = start_python("import torch")
    equal((result.returncode, result.stdout, result.stderr), (0, "", ""))


@autoload.check(issue="hw-native-sys/simpler#1950")
def import_leaves_the_device_alone(device):
    """Loading the backend in `import torch` starts no thread."""
    threads = "import os, torch; print(len(os.listdir('/proc/self/task')))"
    equal(int(python(threads)), int(python(threads, TORCH_DEVICE_BACKEND_AUTOLOAD="0")))


@autoload.check(issue="hw-native-sys/simpler#1950")
def the_first_use_starts_the_device(device):
    """torch.TYPE.is_initialized() is false after `import torch`, and true after the first use of the device."""
    asked = f"torch.{torch.device(device).type}.is_initialized()"
    device_module(device).is_initialized  # noqa: B018 (a module without it is not asked)
    found = python(f"import torch; print({asked}); torch.ones(1, device={device!r}); print({asked})").split()
    if found == ["True", "True"]:
        raise NotOffered("torch.TYPE.is_initialized() is true after `import torch`: the device needs no start")
    equal(found, ["False", "True"])


@autoload.check("private_use")
def pytorchs_switch_turns_it_off(device):
    """With TORCH_DEVICE_BACKEND_AUTOLOAD=0, `import torch` loads no backend."""
    code = "import torch; print(torch._C._get_privateuse1_backend_name(), torch.accelerator.is_available())"
    equal(python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0"), "privateuseone False\n")


@autoload.check("private_use")
def the_entry_point_may_be_called_again(device):
    """Calling the package's entry point a second time changes nothing."""
    code = f"""
    import importlib.metadata, torch
    for point in importlib.metadata.entry_points(group="torch.backends"):
        point.load()()
        point.load()()
    print(torch.ones(2, device={device!r}).sum().item())
    """
    equal(python(code), "2.0\n")


@autoload.check("private_use")
def it_may_be_imported_before_torch(device):
    """Importing the backend's own package first, and torch afterwards, gives the same device."""
    code = f"""
    import importlib, importlib.metadata
    for point in importlib.metadata.entry_points(group="torch.backends"):
        importlib.import_module(point.module.split(".")[0])
    import torch
    print(torch.ones(2, device={device!r}).sum().item())
    """
    equal(python(code), "2.0\n")


@autoload.check("private_use")
def it_may_be_imported_without_autoload(device):
    """With autoload switched off, importing the backend's package and calling its entry point gives the device."""
    code = f"""
    import importlib.metadata, torch
    for point in importlib.metadata.entry_points(group="torch.backends"):
        module = point.load()
    packages = {{name for p in importlib.metadata.entry_points(group="torch.backends")
                for name, dists in importlib.metadata.packages_distributions().items() if p.dist.name in dists}}
    for name in sorted(packages, key=len):
        if not torch.accelerator.is_available():
            __import__(name)
    if not torch.accelerator.is_available():  # a package may leave all to the function that PyTorch calls
        module()
    print(torch.ones(2, device={device!r}).sum().item())
    """
    equal(python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0"), "2.0\n")


@autoload.check()
def torch_may_be_imported_in_a_thread(device):
    """`import torch` in a thread that is not the main one loads the device too."""
    code = f"""
    import threading
    def work():
        import torch
        print(torch.ones(2, device={device!r}).sum().item())
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    """
    equal(python(code), "2.0\n")


@autoload.check(why="A data loader's workers, and every process of torchrun, import torch in a child.")
def a_forked_child_may_import_torch(device):
    """A child forked before `import torch` imports torch and uses the device."""
    code = f"""
    import os
    child = os.fork()
    if child == 0:
        import torch
        os._exit(0 if torch.ones(2, device={device!r}).sum().item() == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    """
    python(code)


coexistence = Topic(
    "loads/coexistence",
    why="An environment may have the packages of several backends. If one of them breaks `import torch` beside another "
    "one, nobody can use either.",
    defined="torch/__init__.py: _import_device_backends; torch/utils/backend_registration.py",
    chapter="autoload",
    needs=("not_the_host",),
)


def start_beside(body, code):
    """Runs ``code`` in a process that has one more package in the group torch.backends.

    ``body`` is the body of the function to which the package's entry point refers.
    """
    import os
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        facts = Path(folder) / "another_backend-1.0.dist-info"
        facts.mkdir()
        (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: another_backend\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text("[torch.backends]\nanother_backend = another_backend:load\n")
        (Path(folder) / "another_backend.py").write_text(f"def load():\n    {body}\n")
        path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        return start_python(code, PYTHONPATH=path)


@coexistence.check()
def another_package_may_be_installed(device):
    """With a second package in the group torch.backends, both are loaded, and the device works."""
    code = f"import sys, torch; print('loaded' in vars(sys), torch.ones(2, device={device!r}).sum().item())"
    result = start_beside("import sys; sys.loaded = True", code)
    assert result.returncode == 0, f"exit status {result.returncode}: {result.stderr.strip()[-1500:]}"
    equal(result.stdout, "True 2.0\n")


@coexistence.check("private_use")
def another_owner_of_privateuse1_does_not_break_import_torch(device):
    """If a package that is loaded earlier takes PrivateUse1, `import torch` still works, and the name stays.

    PyTorch gives a backend no way to decline (pytorch/pytorch#180345), so an error of `import torch` is only noted.
    """
    body = "import torch; torch.utils.rename_privateuse1_backend('another')"
    result = start_beside(
        body, "import torch; print(torch._C._get_privateuse1_backend_name(), torch.ones(2).sum().item())"
    )
    if result.returncode == 1:
        note(f"import torch raises: {result.stderr.strip().splitlines()[-1][:300]}")
    else:
        equal((result.returncode, result.stdout), (0, "another 2.0\n"))


exits = Topic(
    "loads/exit",
    why="A crash at exit makes a finished job a failed job. A backend may crash at exit if its static destructors run "
    "before the last tensor is destroyed.",
    defined="c10/core/Allocator.h, c10/core/StorageImpl.h: tensors may outlive the backend's statics",
    chapter="autoload",
    needs=("not_the_host",),
)


@exits.check()
def tensors_may_outlive_the_interpreter(device):
    """A process that ends while its globals hold tensors has the exit status 0, and its end writes nothing to stderr."""
    ends_silently(f"import torch; x = torch.ones(9, device={device!r}); keep = [x, x + 1]")


@exits.check()
def queued_work_does_not_hold_the_process(device):
    """A process that ends while work is queued has the exit status 0, and its end writes nothing to stderr."""
    ends_silently(f"import torch; x = torch.ones(200, 200, device={device!r})\nfor _ in range(50): x = x @ x / 200")


@exits.check("events")
def events_and_streams_may_outlive_the_interpreter(device):
    """A process that ends with a stream, a recorded event and a generator has the status 0, and its end is silent."""
    ends_silently(
        f"import torch; s = torch.Stream(device={device!r}); e = s.record_event(); g = torch.Generator({device!r})"
    )


names = Topic(
    "loads/names",
    why="Device-agnostic programs (accelerate, transformers, PyTorch itself) find a device by these names only.",
    defined="torch/utils/backend_registration.py: rename_privateuse1_backend, generate_methods_for_privateuse1_backend",
    chapter="device",
    needs=("not_the_host",),
    issue="pytorch/pytorch#144955",
)


@names.check()
def the_device_type_is_known(device):
    """torch.device accepts the type with and without an index, and prints it back."""
    type = torch.device(device).type
    equal(str(torch.device(type, 0)), f"{type}:0")
    equal(torch.device(f"{type}:0").index, 0)
    equal(torch.empty(0, device=type).device, torch.device(type, torch.empty(0, device=type).device.index))


@names.check()
def the_module_answers_the_basic_questions(device):
    """torch.TYPE has is_available, device_count and current_device, and the three results agree."""
    module = device_module(device)
    for name in ("is_available", "device_count", "current_device"):
        assert hasattr(module, name), f"the module has no {name}"
    assert module.is_available() is True
    assert 0 <= module.current_device() < module.device_count()


@names.check("accelerator")
def torch_accelerator_is_the_device(device):
    """torch.accelerator gives the device's type, and the same count and current device as torch.TYPE."""
    module = device_module(device)
    equal(torch.accelerator.current_accelerator().type, torch.device(device).type)
    equal(torch.accelerator.device_count(), module.device_count())
    equal(torch.accelerator.current_device_index(), module.current_device())
    assert torch.accelerator.is_available()


@names.check()
def get_device_module_finds_it(device):
    """torch.get_device_module(device) is torch.TYPE."""
    assert torch.get_device_module(torch.device(device).type) is device_module(device)


@names.check("storage")
def tensors_have_the_conversion_method(device):
    """Tensor.TYPE() moves a tensor to the device, and Tensor.is_TYPE says where it is."""
    type = torch.device(device).type
    x = getattr(torch.ones(2), type)()
    equal(x.device.type, type)
    assert getattr(x, f"is_{type}") is True
    assert getattr(torch.ones(2), f"is_{type}") is False


@names.check("storage")
def modules_have_the_conversion_method(device):
    """nn.Module.TYPE() moves the parameters to the device."""
    type = torch.device(device).type
    layer = getattr(torch.nn.Linear(2, 3), type)()
    equal({p.device.type for p in layer.parameters()}, {type})


@names.check(
    "private_use", why="If an environment has two backends, the second one must not rename the device of the first one."
)
def the_name_cannot_be_taken(device):
    """Renaming PrivateUse1 to another name raises, and the device works afterwards."""
    with raises(RuntimeError):
        torch.utils.rename_privateuse1_backend("another_name")
    usable(device)


@names.check("private_use")
def the_module_cannot_be_registered_twice(device):
    """Registering a second device module under the name raises."""
    import types

    with raises(RuntimeError, "already"):
        torch._register_device_module(torch.device(device).type, types.ModuleType("second"))


@names.check()
def an_index_out_of_range_is_an_error(device):
    """A device index that does not exist raises, and the device works afterwards."""
    type = torch.device(device).type
    with raises((RuntimeError, ValueError, AssertionError)):
        torch.empty(1, device=f"{type}:{device_count(device) + 3}").fill_(1)
    usable(device)


@names.check("module", "storage")
def set_device_moves_new_tensors(device):
    """After torch.TYPE.set_device(0), a new tensor of the device TYPE is on device 0, and current_device() is 0."""
    module = device_module(device)
    module.set_device(0)
    equal(module.current_device(), 0)
    equal(torch.empty(1, device=torch.device(device).type).device.index, 0)


@names.check("two_devices", "accelerator")
def the_current_device_follows_set_device_index(device):
    """After set_device_index(1) of torch.accelerator, new tensors are on device 1; after set_device_index(0), on 0."""
    type = torch.device(device).type
    try:
        torch.accelerator.set_device_index(1)
        equal(torch.empty(1, device=type).device.index, 1)
        equal(device_module(device).current_device(), 1)
    finally:
        torch.accelerator.set_device_index(0)
    equal(torch.empty(1, device=type).device.index, 0)


@names.check("two_devices", "accelerator")
def the_device_context_restores(device):
    """`with torch.accelerator.device_index(1)` sets the current device, and restores it if the block raises."""
    try:
        with torch.accelerator.device_index(1):
            equal(torch.accelerator.current_device_index(), 1)
            raise KeyError
    except KeyError:
        pass
    equal(torch.accelerator.current_device_index(), 0)


@names.check("two_devices", "module")
def the_modules_device_context_restores(device):
    """`with torch.TYPE.device(1)` makes device 1 current, and then restores device 0. The index -1 changes nothing."""
    module = device_module(device)
    with module.device(1):
        equal(module.current_device(), 1)
        with module.device(-1):
            equal(module.current_device(), 1)
    equal(module.current_device(), 0)


@names.check("accelerator")
def set_device_index_rejects_what_does_not_exist(device):
    """torch.accelerator.set_device_index raises for an index beyond the last device, and keeps the current device."""
    before = torch.accelerator.current_device_index()
    with raises((RuntimeError, ValueError, AssertionError)):
        torch.accelerator.set_device_index(device_count(device) + 3)
    equal(torch.accelerator.current_device_index(), before)


@names.check(
    "two_devices", why="DataParallel and pipelines call from several threads, each with its own current device."
)
def every_thread_has_its_own_current_device(device):
    """A device that is set in one thread is not the current device of another thread."""
    module = device_module(device)

    def work():
        module.set_device(1)
        return module.current_device()

    equal((in_threads(work), module.current_device()), ([1], 0))


@names.check("two_devices", "storage")
def an_operator_runs_on_its_tensors_device(device):
    """An operator on tensors of device 1 gives a result there, while device 0 is current and stays current."""
    type = torch.device(device).type
    y = torch.ones(3, device=f"{type}:1") * 2
    equal((y.device.index, device_module(device).current_device()), (1, 0))
    equal(y.tolist(), [2.0, 2.0, 2.0])


@names.check("accelerator", "capability")
def capability_lists_dtypes(device):
    """torch.accelerator.get_device_capability names float32 among the supported dtypes."""
    capability = torch.accelerator.get_device_capability(device)
    assert torch.float32 in capability["supported_dtypes"], capability
