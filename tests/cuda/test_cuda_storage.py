"""The type "cuda": storages, sharing, DLPack and several devices. A CPU build of PyTorch lacks CUDA's code for these.

Each program runs in a process of its own. It must do what PyTorch's source says for CUDA.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from cuda_builds import AS_CUDA
from programs import Done, Run

pytestmark = AS_CUDA


PREAMBLE = """
import copy, io, pickle, re
import torch

def error_of(function, *args, **options):
    try:
        function(*args, **options)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("no error")

def saved(thing, **options):
    file = io.BytesIO()
    torch.save(thing, file, **options)
    file.seek(0)
    return file
"""


@pytest.fixture
def succeeds(run_python: Run) -> Callable[..., None]:
    """A function that runs code on the type cuda, in a main module. It may spawn processes and must print nothing."""

    def run(code: str, **environment: str) -> None:
        body = textwrap.indent(textwrap.dedent(code), "    ")
        run_python(
            f"{PREAMBLE}\nif __name__ == '__main__':\n{body}",
            **{"TORCH_OPENREG_AS": "cuda", **environment},
            status=0,
            output="",
            errors="",
        )

    return run


# ---- Storages --------------------------------------------------------------------------------------------------------


def test_an_untyped_storage_is_made_on_the_device(succeeds: Callable[..., None]) -> None:
    # torch/csrc/Storage.cpp, THPStorage_pynew
    succeeds("""
        for size in (0, 4, 1 << 20):
            storage = torch.UntypedStorage(size, device="cuda")
            assert (len(storage), storage.nbytes(), storage.device) == (size, size, torch.device("cuda:0"))
            assert storage.is_cuda and not storage.is_pinned() and storage.resizable()
            storage.fill_(7)
            assert torch.empty(0, dtype=torch.uint8, device="cuda").set_(storage).eq(7).all()
        assert torch.accelerator.memory_allocated(0) >= 1 << 20
        del storage
        assert torch.accelerator.memory_allocated(0) == 0
        assert torch.UntypedStorage([1, 2, 3], device="cuda:1").tolist() == [1, 2, 3]
        assert torch.UntypedStorage(2, device=torch.device("cuda", 1)).device == torch.device("cuda:1")
        with torch.cuda.device(1):
            assert torch.UntypedStorage(2, device="cuda").device == torch.device("cuda:1")
            assert torch.UntypedStorage(2, device="cuda:0").device == torch.device("cuda:0")
        assert torch.cuda.current_device() == 0
        assert torch.UntypedStorage(3).device == torch.UntypedStorage(3, device="cpu").device == torch.device("cpu")
        assert torch.UntypedStorage(3, device="meta").device.type == "meta"
        assert error_of(torch.UntypedStorage, 3, device="cuda", allocator=1) == (
            "RuntimeError: torch.UntypedStorage(): only one or neither of 'allocator' or 'device' can be given, but "
            "not both")
        assert error_of(torch.UntypedStorage, ["x"], device="cuda") == (
            "RuntimeError: torch.UntypedStorage(): tried to construct a storage from a sequence (list), but one of the "
            "items was of type str instead of int")
    """)


def test_storages_are_copied_moved_and_pinned(succeeds: Callable[..., None]) -> None:
    succeeds("""
        a = torch.tensor([1, 2, 3], dtype=torch.uint8).untyped_storage()
        copies = (a.cuda(), a.to(device="cuda:0"), copy.deepcopy(a.cuda()), a.cuda().clone())
        for b in (*copies, a.cuda(0, non_blocking=True)):
            assert (b.device, b.tolist(), b.cpu().tolist()) == (torch.device("cuda:0"), [1, 2, 3], [1, 2, 3])
        assert a.cuda(1).device == torch.device("cuda:1")
        pinned = a.pin_memory()
        assert pinned.is_pinned() and pinned.is_pinned("cuda") and not a.is_pinned() and pinned.tolist() == [1, 2, 3]
        assert error_of(a.cuda().pin_memory) == (
            "TypeError: cannot pin 'torch.storage.UntypedStorage' only CPU memory can be pinned")
        c = torch.UntypedStorage(3, device="cuda")
        c.copy_(pinned, non_blocking=True)
        c[1] = 9
        assert (c.tolist(), c[2], c[:2].tolist()) == ([1, 9, 3], 3, [1, 9])
        assert torch.empty(0, dtype=torch.uint8, device="cuda").set_(c, 1, (2,), (1,)).tolist() == [9, 3]
    """)


@pytest.mark.parametrize("mode", ["async", "chaos"])
def test_a_storage_made_from_python_serves_queued_kernels(succeeds: Callable[..., None], mode: str) -> None:
    succeeds(
        """
        for _ in range(50):
            a = torch.empty(0, device="cuda").set_(torch.UntypedStorage(1 << 16, device="cuda"))
            b = a.fill_(1).add_(1) * 2
            a.untyped_storage().resize_(1 << 17)
            del a
            assert b.eq(4).all()
        """,
        OPENREG_EXECUTION=mode,
    )


# ---- Files -----------------------------------------------------------------------------------------------------------


def test_tensors_are_saved_loaded_pickled_and_copied(succeeds: Callable[..., None]) -> None:
    succeeds("""
        a = torch.arange(6.0, device="cuda").view(2, 3)
        for weights_only in (True, False):
            for zip_format in (True, False):
                for location, device in [(None, "cuda:0"), ("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:1", "cuda:1"),
                                         (torch.device("cuda", 1), "cuda:1"), ({"cuda:0": "cuda:1"}, "cuda:1"),
                                         (lambda storage, where: storage.cuda(1), "cuda:1")]:
                    file = saved({"a": a, "row": a[1]}, _use_new_zipfile_serialization=zip_format)
                    result = torch.load(file, map_location=location, weights_only=weights_only)
                    assert str(result["a"].device) == device and result["a"].tolist() == a.tolist(), (location, device)
                    assert result["a"].untyped_storage()._cdata == result["row"].untyped_storage()._cdata
        assert str(torch.load(saved(a.to("cuda:1"))).device) == "cuda:1"
        assert str(torch.load(saved(a.cpu()), map_location="cuda").device) == "cuda:0"
        for b in (pickle.loads(pickle.dumps(a)), copy.deepcopy(a), copy.copy(a)):
            assert (b.device, b.tolist()) == (a.device, a.tolist())
        assert copy.deepcopy(a).data_ptr() != a.data_ptr()
        model = torch.nn.Linear(2, 2).cuda(1)
        assert {p.device for p in copy.deepcopy(model).parameters()} == {torch.device("cuda:1")}
        assert {p.device for p in pickle.loads(pickle.dumps(model)).parameters()} == {torch.device("cuda:1")}
        assert error_of(torch.load, saved(a), map_location="cuda:7") == (
            "RuntimeError: Attempting to deserialize object on CUDA device 7 but torch.cuda.device_count() is 2. "
            "Please use torch.load with map_location to map your storages to an existing device.")
    """)


def test_a_file_mapped_into_memory_goes_to_the_device(succeeds: Callable[..., None], tmp_path: Path) -> None:
    succeeds(f"""
        path = {str(tmp_path / "checkpoint.pt")!r}
        torch.save({{"w": torch.arange(5.0)}}, path)
        assert torch.load(path, mmap=True, map_location="cuda")["w"].mul(2).tolist() == [0, 2, 4, 6, 8]
        torch.save({{"w": torch.arange(5.0, device="cuda")}}, path)
        assert torch.load(path, mmap=True, map_location="cpu")["w"].tolist() == [0, 1, 2, 3, 4]
        assert torch.load(path, mmap=True)["w"].is_cuda
    """)


def test_a_checkpoint_travels_between_a_gpu_and_a_machine_without_one(run_python: Run, tmp_path: Path) -> None:
    # A checkpoint names the device of each storage, here "cuda:0". This one therefore equals a checkpoint from a GPU.
    path = str(tmp_path / "checkpoint.pt")
    write = f"import torch; torch.save(torch.arange(3.0, device='cuda:0'), {path!r})"
    assert run_python(write, TORCH_OPENREG_AS="cuda").returncode == 0
    read = f"import torch; print(torch.load({path!r}, map_location='cpu'))"
    assert run_python(read, TORCH_OPENREG_AUTOLOAD="0").stdout == "tensor([0., 1., 2.])\n"
    result = run_python(f"import torch; torch.load({path!r})", TORCH_OPENREG_AUTOLOAD="0")
    assert "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False" in result.stderr
    result = run_python(f"import torch; print(torch.load({path!r}))", TORCH_OPENREG_AS="cuda")
    assert result.stdout == "tensor([0., 1., 2.], device='cuda:0')\n"


# ---- Legacy types ----------------------------------------------------------------------------------------------------


def test_legacy_tensor_types(succeeds: Callable[..., None]) -> None:
    # torch/csrc/tensor/python_tensor.cpp, Tensor_new and py_set_default_tensor_type
    succeeds("""
        import warnings
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            a = torch.cuda.FloatTensor([1, 2])
            torch.cuda.HalfTensor(2)
        assert [str(w.message).partition(" (Triggered")[0] for w in heard] == [
            "The torch.cuda.*DtypeTensor constructors are no longer recommended. It's best to use methods such as "
            "torch.tensor(data, dtype=*, device='cuda') to create tensors."]
        assert (a.tolist(), a.dtype, a.device) == ([1, 2], torch.float32, torch.device("cuda:0"))
        assert torch.cuda.LongTensor(2, 3).shape == (2, 3) and torch.cuda.BoolTensor([True]).dtype is torch.bool
        with torch.cuda.device(1):
            assert torch.cuda.DoubleTensor(1).device == torch.device("cuda:1")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's own warning that SparseTensor(shape) is deprecated
            assert torch.cuda.sparse.FloatTensor(2, 2).layout is torch.sparse_coo
        assert torch.cuda.FloatTensor(a).data_ptr() == a.data_ptr()
        assert isinstance(a, torch.cuda.FloatTensor) and not isinstance(a, torch.cuda.HalfTensor)
        assert not isinstance(a.cpu(), torch.cuda.FloatTensor) and not isinstance(a, torch.FloatTensor)
        assert a.type() == "torch.cuda.FloatTensor"
        for cast in (a.type("torch.cuda.HalfTensor"), a.cpu().type(torch.cuda.HalfTensor)):
            assert (cast.dtype, cast.device.type) == (torch.half, "cuda")
        assert (torch.cuda.FloatTensor.is_cuda, torch.cuda.FloatTensor.dtype) == (True, torch.float32)
        from torch_openreg import openreg
        assert isinstance(a, openreg.FloatTensor) and not isinstance(a, openreg.HalfTensor)
        assert openreg.HalfTensor([1.0]).type() == "torch.cuda.HalfTensor"
    """)


def test_the_default_tensor_type_and_device(succeeds: Callable[..., None]) -> None:
    succeeds("""
        import warnings
        warnings.simplefilter("ignore")  # PyTorch warns that the function is deprecated
        for tensor_type in (torch.cuda.HalfTensor, "torch.cuda.HalfTensor"):
            torch.set_default_tensor_type(tensor_type)
            made = [torch.ones(2), torch.tensor([1.0]), torch.empty(0), torch.nn.Linear(1, 1).weight, torch.Tensor([1])]
            assert {(str(t.device), t.dtype) for t in made} == {("cuda:0", torch.half)}, made
            assert torch.cuda.HalfTensor.is_cuda
            torch.set_default_tensor_type(torch.FloatTensor)
            assert (torch.ones(2).device.type, torch.ones(2).dtype) == ("cpu", torch.float32)
        assert error_of(torch.set_default_tensor_type, int) == (
            "TypeError: invalid type object: only floating-point types are supported as the default type")
        assert error_of(torch.set_default_tensor_type, torch.cuda.LongTensor) == (
            "TypeError: only floating-point types are supported as the default type")
        assert torch.cuda.LongTensor.is_cuda and torch.ones(2).device.type == "cpu"
        torch.set_default_device("cuda:1")
        assert torch.ones(2).device == torch.nn.Linear(1, 1).weight.device == torch.device("cuda:1")
        torch.set_default_device(None)
        assert torch.ones(2).device.type == "cpu"
    """)


def test_legacy_storage_types(succeeds: Callable[..., None]) -> None:
    succeeds("""
        import warnings
        warnings.simplefilter("ignore")
        from torch_openreg import openreg
        storage = torch.cuda.FloatStorage([1.0, 2.0])
        assert (storage.dtype, str(storage.device), storage.tolist()) == (torch.float32, "cuda:0", [1.0, 2.0])
        assert storage.is_cuda and storage.type() == "torch.cuda.FloatStorage"
        for types in (torch.cuda, openreg):
            assert isinstance(storage, types.FloatStorage) and not isinstance(storage, types.DoubleStorage)
            assert not isinstance(storage.cpu(), types.FloatStorage)
            assert types.LongStorage(3).size() == 3 and types.LongStorage(3).is_cuda
        assert torch.FloatStorage([1.0]).cuda().tolist() == [1.0]
        assert copy.deepcopy(storage).tolist() == storage.clone().tolist() == [1.0, 2.0]
        assert torch.load(saved(storage), weights_only=False).tolist() == [1.0, 2.0]
        typed = torch.ones(2, device="cuda:1").storage()
        typed.resize_(0)
        assert typed.size() == 0 and typed.pickle_storage_type() == "FloatStorage"
    """)


# ---- Other processes -------------------------------------------------------------------------------------------------

WORKER = """
from multiprocessing.reduction import ForkingPickler
import torch

def work(requests, replies):
    kept = []
    for thing in iter(requests.get, None):
        if isinstance(thing, torch.Tensor):
            kept.append(thing)
            with torch.no_grad():
                thing.add_(1)
            replies.put((type(thing).__name__, str(thing.device), thing.requires_grad, thing.untyped_storage()._cdata))
        else:
            try:
                ForkingPickler.dumps(kept[-1])
            except RuntimeError as error:
                replies.put(str(error))
    replies.put(torch.arange(3.0, device="cuda:1"))
    requests.get()
"""


def run_with_worker(run_python: Run, folder: Path, worker: str, program: str, **variables: str) -> Done:
    """Runs ``program`` beside a spawned process that runs ``work(requests, replies)`` of ``worker``."""
    start = """
        import torch, worker

        if __name__ == "__main__":
            mp = torch.multiprocessing.get_context("spawn")
            requests, replies = mp.Queue(), mp.Queue()
            process = mp.Process(target=worker.work, args=(requests, replies))
            process.start()
"""
    (folder / "worker.py").write_text(worker)
    (folder / "program.py").write_text(textwrap.dedent(start + program.lstrip("\n")))
    code = "import runpy; runpy.run_path('program.py', run_name='__main__')"
    return run_python(code, TORCH_OPENREG_AS="cuda", **variables)


@pytest.mark.slow
def test_tensors_travel_between_processes(run_python: Run, tmp_path: Path) -> None:
    # torch/multiprocessing/reductions.py, reduce_tensor and rebuild_cuda_tensor; torch/csrc/StorageSharing.cpp
    program = """
            a, b = torch.zeros(4, device="cuda"), torch.zeros(3, device="cuda:1")
            w = torch.nn.Parameter(torch.zeros(2, device="cuda"))
            answers = []
            for thing in (a, a[1:], b, w, torch.zeros(0, device="cuda")):
                requests.put(thing)
                answers.append(replies.get(timeout=600))
            assert [answer[:3] for answer in answers] == [
                ("Tensor", "cuda:0", False), ("Tensor", "cuda:0", False), ("Tensor", "cuda:1", False),
                ("Parameter", "cuda:0", True), ("Tensor", "cuda:0", False)], answers
            assert answers[0][3] == answers[1][3]  # in the worker, too, a and a[1:] share one storage
            assert (a.tolist(), b.tolist(), w.tolist()) == ([1, 2, 2, 2], [1, 1, 1], [1, 1])
            requests.put(torch.ones(2, device="cuda"))
            replies.get(timeout=600)
            requests.put("send on")
            assert replies.get(timeout=600) == (
                "Attempted to send CUDA tensor received from another process; this is not currently supported. "
                "Consider cloning before sending.")
            requests.put(None)
            received = replies.get(timeout=600)
            assert (str(received.device), received.tolist()) == ("cuda:1", [0, 1, 2])
            del received
            requests.put(None)
            process.join(600)
            assert process.exitcode == 0
            del a, b, w, thing
            torch.cuda.ipc_collect()
            assert torch.accelerator.memory_allocated(0) == torch.accelerator.memory_allocated(1) == 0
    """
    result = run_with_worker(run_python, tmp_path, WORKER, program)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


EVENT_WORKER = """
import torch

def work(requests, replies):
    torch.cuda.set_device(1)  # record() uses the current stream, which must belong to the event's device
    for data, event in iter(requests.get, None):
        event.wait()  # torch/csrc/cuda/Event.cpp: the current stream waits
        doubled = data * 2
        event.record()
        replies.put(event.device)
        del data
    event.synchronize()
    replies.put((event.query(), doubled.sum().item()))
"""


@pytest.mark.slow
def test_an_event_travels_between_processes(run_python: Run, tmp_path: Path) -> None:
    # torch/multiprocessing/reductions.py, reduce_event and rebuild_event
    program = """
            data = torch.zeros(1000, device="cuda:1")
            torch.cuda.synchronize(1)
            event = torch.cuda.Event(interprocess=True)
            with torch.cuda.device(1):
                event.record()
            requests.put((data, event))
            assert replies.get(timeout=600) == torch.device("cuda:1")
            event.synchronize()  # waits for the record() of the other process
            assert event.query()
            with torch.cuda.device(1):
                torch.cuda._sleep(141_000_000)  # 100 ms
                data.fill_(3)
                event.record()
            requests.put((data, event))
            replies.get(timeout=600)
            event.synchronize()
            requests.put(None)
            print(replies.get(timeout=600))
            process.join(600)
    """
    result = run_with_worker(run_python, tmp_path, EVENT_WORKER, program, OPENREG_EXECUTION="chaos")
    assert (result.returncode, result.stdout, result.stderr) == (0, "(True, 6000.0)\n", "")


def test_handles_of_events_are_checked(succeeds: Callable[..., None]) -> None:
    succeeds("""
        event = torch.cuda.Event(interprocess=True)
        handle = event.ipc_handle()  # makes the event, on the current device: c10/cuda/CUDAEvent.h
        assert (type(handle), len(handle), event.device, event.query()) == (bytes, 64, torch.device("cuda:0"), True)
        assert event.ipc_handle() == handle and event.cuda_event
        assert error_of(event.record, torch.cuda.current_stream(1)) == (
            "RuntimeError: Event device 0 does not match recording stream's device 1.")
        event.record()
        load = torch.cuda.Event.from_ipc_handle
        recorded = torch.cuda.Event()
        recorded.record()
        for call, arguments, code, words in (
            # cudaIpcGetEventHandle needs the flag cudaEventInterprocess, which an event with timing cannot have
            (recorded.ipc_handle, (), 400, "invalid resource handle\\nThe event is for this process only"),
            (torch.cuda.Event().ipc_handle, (), 400, "make it with torch.cuda.Event(interprocess=True)"),
            (torch.cuda.Event(interprocess=True, enable_timing=True).ipc_handle, (), 1, "has no timing"),
            (load, (torch.device("cuda:0"), handle), 201, "the handle is of this process's own event"),
            (load, (torch.device("cuda:0"), bytes(64)), 400, "the handle is none that orIpcGetEventHandle"),
        ):
            try:
                call(*arguments)
            except torch.AcceleratorError as error:
                assert error.error_code == code and words in str(error), error
            else:
                raise AssertionError(words)
        # torch/csrc/cuda/Event.cpp, THCPEvent_from_ipc_handle
        assert error_of(load, torch.device("cuda:0"), b"short") == (
            "RuntimeError: cudaIpcEventHandle_t expects byte-like object of size 64, but got 5")
        assert error_of(load, torch.device("cpu"), handle) == error_of(load, "cpu", handle) == (
            "RuntimeError: Event can only be created on CUDA devices, but got device type cpu")
        assert error_of(load, 0, b"short") == error_of(load, torch.device("cuda:0"), b"short")
        assert error_of(load, None, handle) == (
            "TypeError: from_ipc_handle(): argument 'device' (position 1) must be torch.device, not NoneType")
        assert error_of(load, 0, 64) == (
            "TypeError: from_ipc_handle(): argument 'ipc_handle' (position 2) must be str, not int")
    """)


def test_what_a_program_shares_by_hand(succeeds: Callable[..., None]) -> None:
    # torch/csrc/StorageSharing.cpp, THPStorage_shareCuda: eight values, which _new_shared_cuda takes in another process
    succeeds("""
        a = torch.arange(3.0, device="cuda:1")
        device, handle, size, offset, counter, counter_offset, event, must_wait = a.untyped_storage()._share_cuda_()
        assert (device, size, type(handle), type(counter), type(event)) == (1, 12, bytes, bytes, bytes)
        assert isinstance(offset, int) and isinstance(counter_offset, int) and must_wait is False
        assert torch.zeros(0, device="cuda").untyped_storage()._share_cuda_()[1] is None
        from multiprocessing.reduction import ForkingPickler
        assert error_of(ForkingPickler.dumps, a.untyped_storage()) == (
            "RuntimeError: Cannot pickle CUDA storage; try pickling a CUDA tensor instead")
    """)


# ---- DLPack ----------------------------------------------------------------------------------------------------------

NOT_FOR_OTHERS = (
    "The memory of a simulated CUDA device can only be used by PyTorch: there is no GPU that another library could "
    "read it from. Copy the tensor to host memory first: tensor.cpu()."
)


def test_dlpack_between_tensors(succeeds: Callable[..., None]) -> None:
    succeeds("""
        from torch.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack
        a = torch.arange(6.0, device="cuda").view(2, 3)
        exchanges = [torch.from_dlpack, from_dlpack, lambda t: from_dlpack(to_dlpack(t)),
                     lambda t: torch.from_dlpack(torch.to_dlpack(t)), lambda t: torch.from_dlpack(t.__dlpack__()),
                     lambda t: torch.from_dlpack(t.__dlpack__(max_version=(1, 0)))]
        for exchange in exchanges:
            for view in (a, a.t(), a[1:], a[:0]):
                b = exchange(view)
                assert (b.device, b.stride(), b.tolist()) == (view.device, view.stride(), view.tolist())
                assert b.data_ptr() == view.data_ptr() and torch.equal(b + 1, view + 1)
        assert a.__dlpack_device__() == (DLDeviceType.kDLCUDA, 0)
        assert torch.from_dlpack(a, device="cpu").tolist() == a.tolist()
        assert torch.from_dlpack(torch.ones(2), device="cuda:1").device == torch.device("cuda:1")
        assert error_of(torch.from_dlpack, a.to("cuda:1")) == (
            "BufferError: Can't export tensors on a different CUDA device index. Expected: 1. Current device: 0.")
        with torch.cuda.device(1):
            assert torch.from_dlpack(a.to("cuda:1")).device == torch.device("cuda:1")
        c = torch.arange(3.0)
        assert torch.from_dlpack(c).data_ptr() == c.data_ptr() and torch.from_dlpack(c.pin_memory()).is_pinned()
        used = to_dlpack(a)
        from_dlpack(used)
        assert "from_dlpack received an invalid capsule" in error_of(from_dlpack, used)
        before = torch.accelerator.memory_allocated()
        capsule = to_dlpack(torch.ones(1 << 18, device="cuda"))
        del capsule  # never imported
        assert torch.accelerator.memory_allocated() == before
    """)


def test_no_other_library_gets_an_address(succeeds: Callable[..., None]) -> None:
    succeeds(f"""
        import ctypes
        import numpy as np
        sentence = {NOT_FOR_OTHERS!r}
        a = torch.ones(3, device="cuda")

        class Tensor(ctypes.Structure):  # the beginning of a DLTensor
            _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]

        def device_in(capsule):
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            return Tensor.from_address(get(capsule, b"dltensor")).device_type

        # Libraries that use a GPU, such as jax and cupy, pass the consumer's stream to __dlpack__.
        assert error_of(a.__dlpack__, stream=1) == "BufferError: " + sentence
        assert error_of(a.__dlpack__, stream=1, max_version=(1, 0)) == "BufferError: " + sentence
        # A capsule that is handed on names a kind of device that these libraries do not know (kDLExtDev).
        for capsule in (a.__dlpack__(), torch.utils.dlpack.to_dlpack(a)):
            assert device_in(capsule) == 12
        assert device_in(torch.utils.dlpack.to_dlpack(torch.ones(1))) == 1
        assert "Unsupported device in DLTensor." in error_of(np.from_dlpack, a)

        # The C interface of DLPack would give the address. Libraries that do not find it call __dlpack__().
        assert not hasattr(torch.Tensor, "__dlpack_c_exchange_api__") and not hasattr(a, "__dlpack_c_exchange_api__")

        # torch/_tensor.py, __cuda_array_interface__: AttributeError, so that hasattr() is False
        assert not hasattr(a, "__cuda_array_interface__") and not hasattr(a.cpu(), "__cuda_array_interface__")
        assert error_of(lambda: a.__cuda_array_interface__) == "AttributeError: " + sentence
        assert error_of(lambda: a.cpu().__cuda_array_interface__) == (
            "AttributeError: Can't get __cuda_array_interface__ on non-CUDA tensor type: torch.FloatTensor "
            "If CUDA data is required use tensor.cuda() to copy tensor to device memory.")

        # The other direction: a capsule with memory of a real GPU is refused.
        capsule = torch.utils.dlpack.to_dlpack(torch.ones(2))
        get = ctypes.pythonapi.PyCapsule_GetPointer
        Tensor.from_address(get(capsule, b"dltensor")).device_type = 2
        assert error_of(torch.from_dlpack, capsule) == (
            "BufferError: The capsule holds memory of a real CUDA device, which the simulated devices of torch_openreg "
            "cannot use. Copy it to the host first.")
        Tensor.from_address(get(capsule, b"dltensor")).device_type = 1
    """)


# ---- Several devices -------------------------------------------------------------------------------------------------


def test_tensors_are_sent_to_several_devices_and_back(succeeds: Callable[..., None]) -> None:
    succeeds("""
        from torch.nn.parallel import comm
        def described(tensors):
            return [(str(t.device), t.tolist()) for t in tensors]
        a = torch.arange(6.0)
        for source in (a, a.cuda(), a.cuda(1)):
            assert described(comm.broadcast(source, [0, 1])) == [("cuda:0", a.tolist()), ("cuda:1", a.tolist())]
            assert described(comm.scatter(source, [0, 1])) == [("cuda:0", [0, 1, 2]), ("cuda:1", [3, 4, 5])]
            uneven = comm.scatter(source, [1, 0], chunk_sizes=[2, 4])
            assert described(uneven) == [("cuda:1", [0, 1]), ("cuda:0", [2, 3, 4, 5])]
            out = [torch.empty(2, device="cuda"), torch.empty(4, device="cuda:1")]
            assert comm.scatter(source, out=out)[1].tolist() == [2, 3, 4, 5] and out[0].tolist() == [0, 1]
            out = [torch.empty(6, device="cuda"), torch.empty(6, device="cuda:1")]
            assert [t.tolist() for t in comm.broadcast(source, out=out)] == [a.tolist()] * 2
        parts = comm.scatter(a, [0, 1])
        for destination in ("cpu", 0, 1, None):
            gathered = comm.gather(parts, destination=destination)
            expected = "cpu" if destination == "cpu" else f"cuda:{destination or 0}"
            assert (str(gathered.device), gathered.tolist()) == (expected, a.tolist())
        assert comm.gather(parts, out=torch.empty(6)).tolist() == a.tolist()
        nhwc = [torch.ones(1, 2, 2, 2, device=f"cuda:{i}").to(memory_format=torch.channels_last) for i in (0, 1)]
        assert comm.gather(nhwc, destination=0).is_contiguous(memory_format=torch.channels_last)
        assert comm.gather([nhwc[0], torch.ones(1, 2, 2, 2, device="cuda:1")], destination=0).is_contiguous()
        assert comm.reduce_add(comm.broadcast(a.cuda(), [0, 1]), 1).tolist() == (a * 2).tolist()
        sparse = torch.eye(2).to_sparse()
        tensors = [a.cuda(), a.double().cuda(), torch.ones(2, 2, device="cuda"), sparse.cuda(), a.cuda() + 1]
        for size in (1, 10485760):
            first, second = comm.broadcast_coalesced(tensors, [0, 1], size)
            assert all(x is y for x, y in zip(first, tensors))
            for x, y in zip(second, tensors):
                assert x.device == torch.device("cuda:1") and x.dtype == y.dtype
                assert torch.equal(x.cpu().to_dense(), y.cpu().to_dense())
            second[0].add_(1)
            assert second[2]._version == 0
            sums = comm.reduce_add_coalesced([first, second], 0)
            assert [t.to_dense().sum().item() for t in sums] == [36, 30, 8, 4, 42]
    """)


def test_what_cannot_be_sent_is_refused_in_pytorchs_words(succeeds: Callable[..., None]) -> None:
    # torch/csrc/cuda/comm.cpp
    succeeds("""
        from torch.nn.parallel import comm
        a, g = torch.ones(4), torch.ones(2, 2, device="cuda")
        refused = [
            (lambda: torch._C._broadcast(a, [-1]), "Expected non-negative device index, but got -1"),
            (lambda: comm.broadcast(a, out=[torch.ones(4)]),
             "Expected all output tensors to be CUDA tensors, but output tensor at index 0 has device 'cpu'"),
            (lambda: comm.broadcast(a, out=[g]), "Expected all output tensors to have same shape as the source tensor "
             "[4], but output tensor at index 0 has shape [2, 2]"),
            (lambda: comm.broadcast_coalesced([g.to("cuda:1")], [0, 1]), "All tensors must be on devices[0]: 0"),
            (lambda: comm.scatter(a, []), "Expected at least one device to scatter to"),
            (lambda: comm.scatter(a, [0, 1], [4]), "Expected devices and chunk_sizes to be of same length, but got "
             "len(devices) = 2 and len(chunk_sizes) = 1"),
            (lambda: comm.scatter(a, [0, 1], streams=[torch.cuda.Stream(1), None]),
             "Expected the device associated with the stream at index 0 (was 1) "
             "to match the device supplied at that index (expected 0)"),
            (lambda: comm.scatter(a, [0], streams=[1]),
             "Unknown data type found in stream list. Need torch.cuda.Stream or None"),
            (lambda: comm.scatter(a, out=[]), "Expected at least one output tensor to scatter to"),
            (lambda: comm.scatter(a, out=[g]), "Output tensor at index 0 has incorrect shape: [2, 2]. Expected same "
             "shape except for scatter dim 0 as the source tensor: [4]"),
            (lambda: comm.scatter(a, out=[g[0]]), "Total size for output tensors along scatter dim 0 does not match "
             "the source tensor size at dim 0. Expected 4, but got total size 2"),
            (lambda: comm.gather([]), "Expected at least one tensor to gather from"),
            (lambda: comm.gather([a]),
             "Expected all input tensors to be CUDA tensors, but tensor at index 0 has device cpu"),
            (lambda: comm.gather([g, a.cuda()]), "Expected all input tensors to have the same number of dimensions, "
             "but tensor at index 1has 1 dimensions, (expected 2)"),
            (lambda: comm.gather([g, torch.ones(2, 3, device="cuda")]),
             "Input tensor at index 1 has invalid shape [2, 3], but expected [2, 2]"),
            (lambda: comm.gather([g, g], out=torch.ones(3)), "Expected out tensor to have shape [4, 2], but got [3]"),
        ]
        for call, message in refused:
            assert error_of(call) == "RuntimeError: " + message
        assert error_of(comm.scatter, a, [0, 1], dim=3).startswith("IndexError: Dimension out of range")
    """)


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_streams_order_what_is_scattered(succeeds: Callable[..., None], mode: str) -> None:
    succeeds(
        """
        from torch.nn.parallel import comm
        pinned = torch.arange(1 << 16).pin_memory()
        streams = [torch.cuda.Stream(i) for i in (0, 1)]
        for _ in range(20):
            parts = comm.scatter(pinned, [0, 1], streams=streams)
            for i, (stream, part) in enumerate(zip(streams, parts)):
                with torch.cuda.device(i):
                    torch.cuda.current_stream().wait_stream(stream)
                    part.record_stream(torch.cuda.current_stream())
                    part.add_(1)
            assert torch.equal(comm.gather(parts, destination="cpu"), pinned + 1)
        assert torch.cuda.current_device() == 0 and torch.cuda.current_stream() == torch.cuda.default_stream()
        """,
        OPENREG_EXECUTION=mode,
    )
