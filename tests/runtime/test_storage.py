"""Storages of the device: made from Python, resized, copied, shared between tensors, set into tensors."""

from __future__ import annotations

import copy
import gc
import io
import pickle

import pytest
import torch
from comparison import DEVICE, DEVICE_0, assert_same

MODULE = torch.get_device_module(DEVICE)


def storage_of(*values: int) -> torch.UntypedStorage:
    return torch.tensor(values, dtype=torch.uint8, device=DEVICE).untyped_storage()


def as_list(storage: torch.UntypedStorage) -> list[int]:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage).tolist()


@pytest.mark.parametrize("size", [0, 4, 1 << 20])
def test_an_untyped_storage_is_made_on_the_device(size: int) -> None:
    storage = torch.UntypedStorage(size, device=DEVICE)
    assert storage.nbytes() == len(storage) == size
    assert storage.device == torch.device(DEVICE_0)
    assert storage.fill_(7) is storage
    assert as_list(storage) == [7] * size


def test_the_memory_of_a_storage_goes_with_its_last_tensor() -> None:
    gc.collect()
    before = torch.accelerator.memory_allocated()
    a = torch.zeros(1 << 18, device=DEVICE)
    view, storage = a[5:], a.untyped_storage()
    assert torch.accelerator.memory_allocated() >= before + (1 << 20)
    del a, view
    assert torch.accelerator.memory_allocated() >= before + (1 << 20)
    del storage
    assert torch.accelerator.memory_allocated() == before


@pytest.mark.parametrize("size", [0, 2, 4, 9, 1 << 16])
def test_resize_keeps_the_bytes_that_fit(size: int) -> None:
    storage = storage_of(1, 2, 3, 4)
    storage.resize_(size)
    assert storage.nbytes() == size
    kept = min(size, 4)
    assert as_list(storage)[:kept] == [1, 2, 3, 4][:kept]


def test_a_tensor_sees_its_storage_resized_to_nothing_and_back() -> None:
    # FSDP does this between layers.
    a = torch.arange(4.0, device=DEVICE)
    a.untyped_storage().resize_(0)
    assert a.untyped_storage().nbytes() == 0
    a.untyped_storage().resize_(16)
    a.copy_(torch.arange(4.0))
    assert_same(a * 2, torch.arange(4.0) * 2)


def test_a_bad_size_and_a_part_of_a_storage_are_refused() -> None:
    with pytest.raises(RuntimeError, match="^resize_ expects an int, but got str$"):
        storage_of(1).resize_("1")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="^Trying to resize storage that is not resizable$"):
        storage_of(1, 2)[:1].resize_(1)


@pytest.mark.parametrize(("source", "to"), [("cpu", DEVICE), (DEVICE, "cpu"), (DEVICE, DEVICE)])
def test_copy_between_storages(source: str, to: str) -> None:
    a = torch.tensor([1, 2, 3], dtype=torch.uint8, device=source).untyped_storage()
    b = torch.UntypedStorage(3, device=to)
    b.copy_(a)
    assert as_list(b) == [1, 2, 3]


def test_clone_cpu_and_deepcopy_share_nothing() -> None:
    a = storage_of(1, 2, 3)
    clones = [a.clone(), a.cpu(), copy.deepcopy(a)]
    a.fill_(0)
    assert [as_list(clone) for clone in clones] == [[1, 2, 3]] * 3
    assert [clone.device.type for clone in clones] == [DEVICE, "cpu", DEVICE]


def test_a_storage_moves_to_the_device() -> None:
    a = torch.tensor([1, 2, 3], dtype=torch.uint8).untyped_storage()
    b = a.to(device=DEVICE)
    assert b.device == torch.device(DEVICE_0)
    assert as_list(b) == [1, 2, 3]


def test_reading_and_writing_single_bytes() -> None:
    a = storage_of(1, 2, 3)
    assert [a[0], a[2]] == [1, 3]
    a[1] = 9
    assert as_list(a) == [1, 9, 3]
    assert a.tolist() == [1, 9, 3]


def test_set_makes_tensors_of_one_storage() -> None:
    storage = torch.arange(12.0, device=DEVICE).untyped_storage()
    a = torch.empty(0, device=DEVICE).set_(storage)
    b = torch.empty(0, device=DEVICE).set_(storage, 2, (2, 3), (5, 1))
    c = torch.empty(0, device=DEVICE).set_(b)
    d = torch.ones(3, device=DEVICE).set_()
    base = torch.arange(12.0)
    assert_same(
        (a, b, c, d), (base, base.as_strided((2, 3), (5, 1), 2), base.as_strided((2, 3), (5, 1), 2), torch.empty(0))
    )
    assert {t.untyped_storage()._cdata for t in (a, b, c)} == {storage._cdata}
    b.fill_(0)
    base.as_strided((2, 3), (5, 1), 2).fill_(0)
    assert_same(a, base)


def test_set_grows_a_storage_that_is_too_small() -> None:
    storage = storage_of(1, 2)
    a = torch.empty(0, dtype=torch.uint8, device=DEVICE).set_(storage, 0, (5,))
    assert storage.nbytes() == 5
    assert a[:2].tolist() == [1, 2]


def test_typed_storage() -> None:
    a = torch.arange(4.0, device=DEVICE)
    typed = a._typed_storage()
    assert typed.dtype is torch.float32
    assert typed.size() == 4
    assert typed.device == torch.device(DEVICE_0)
    assert copy.deepcopy(a).tolist() == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_legacy_storage_types() -> None:
    storage = MODULE.FloatStorage([1.0, 2.0])
    assert (storage.dtype, storage.device, storage.tolist()) == (torch.float32, torch.device(DEVICE_0), [1.0, 2.0])
    assert isinstance(storage, MODULE.FloatStorage)
    assert not isinstance(storage, MODULE.DoubleStorage)
    assert not isinstance(storage.cpu(), MODULE.FloatStorage)
    assert storage.type() == f"torch.{DEVICE}.FloatStorage"
    assert MODULE.LongStorage(3).size() == 3
    for name in ("Bool", "Byte", "Char", "ComplexFloat", "ComplexDouble", "Half", "BFloat16", "Int", "Short"):
        tensor = torch.ones(2, device=DEVICE).to(getattr(MODULE, f"{name}Storage")._dtype)
        assert tensor.storage().type() == f"torch.{DEVICE}.{name}Storage"


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_a_legacy_storage_type_makes_no_storage_over_host_memory() -> None:
    """PyTorch's from_buffer() would return a storage of the CPU."""
    for make in (MODULE.FloatStorage.from_buffer, MODULE.FloatStorage._new_with_weak_ptr):
        with pytest.raises(RuntimeError, match=f"^{make.__name__}: Not available for {DEVICE.upper()} storage$"):
            make(b"\0" * 8, "little")
    with pytest.raises(RuntimeError, match=f"^_new_shared_filename: Not available for {DEVICE.upper()} storage$"):
        MODULE.FloatStorage._new_shared_filename(b"", b"", 0)


def test_a_slice_shares_the_memory_and_keeps_it() -> None:
    storage = storage_of(1, 2, 3, 4)
    part = storage[1:3]
    assert (part.device, len(part), part.data_ptr()) == (storage.device, 2, storage.data_ptr() + 1)
    storage[2] = 9
    storage[0:2] = 7
    assert part.tolist() == [7, 9]
    del storage
    gc.collect()
    assert as_list(part) == [7, 9]
    with pytest.raises(IndexError, match="^index 2 out of range for storage of size 2$"):
        part[2]


def test_copying_between_storages_of_different_sizes_is_refused() -> None:
    with pytest.raises(RuntimeError, match="^size does not match, self was 2 bytes but src was 3 bytes$"):
        storage_of(1, 2).copy_(storage_of(1, 2, 3))


@pytest.mark.parametrize("weights_only", [True, False])
def test_a_storage_is_saved_and_loaded(weights_only: bool) -> None:
    buffer = io.BytesIO()
    torch.save(storage_of(1, 2, 3), buffer)
    buffer.seek(0)
    result = torch.load(buffer, weights_only=weights_only)
    assert (result.device, as_list(result)) == (torch.device(DEVICE_0), [1, 2, 3])


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_a_typed_storage_is_pickled() -> None:
    result = pickle.loads(pickle.dumps(torch.arange(3.0, device=DEVICE).storage()))
    assert (result.device, result.tolist()) == (torch.device(DEVICE_0), [0, 1, 2])


def test_a_deep_copy_keeps_what_shares_a_storage_sharing_one() -> None:
    base = torch.arange(6.0, device=DEVICE)
    storage, a, b = copy.deepcopy((base.untyped_storage(), base, base[2:]))
    assert {a.untyped_storage()._cdata, b.untyped_storage()._cdata} == {storage._cdata}
    base.zero_()
    assert_same(b, torch.arange(6.0)[2:])


def test_the_data_pointer_is_the_devices_own() -> None:
    a = torch.zeros(8, device=DEVICE)
    assert a.data_ptr() != 0
    assert a.untyped_storage().data_ptr() == a.data_ptr()
    assert a[2:].data_ptr() == a.data_ptr() + 8
    assert torch.empty(0, device=DEVICE).data_ptr() == 0


def test_pickle_keeps_values_and_sharing() -> None:
    base = torch.arange(6.0, device=DEVICE)
    a, b = pickle.loads(pickle.dumps((base, base[2:])))
    assert_same((a, b), (torch.arange(6.0), torch.arange(6.0)[2:]))


def test_is_shared_says_what_cuda_says() -> None:
    # Device memory can always be shared by handle; only CPU memory must be moved first.
    assert torch.zeros(2, device=DEVICE).is_shared()
    a = torch.zeros(2, device=DEVICE)
    assert a.share_memory_() is a
