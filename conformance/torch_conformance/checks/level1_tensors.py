"""Level 1: tensors can be made, copied, viewed, printed and saved, and an error leaves the device usable."""

import torch

from ..kit import NotOffered, accepted, equal, raises, read_if_lazy, same, usable, wording
from ..registry import Topic

factories = Topic(
    "tensors/factories",
    why="Every program begins with a factory, which calls the allocator, the guard and the first kernels.",
    defined="aten::empty.memory_format, aten::empty_strided, aten::fill_.Scalar in native_functions.yaml",
    chapter="operators",
)


@factories.check()
def empty_has_shape_dtype_and_device(device):
    """torch.empty gives a tensor with the shape, the dtype and the device of its arguments."""
    x = torch.empty(2, 3, dtype=torch.int32, device=device)
    equal((tuple(x.shape), x.dtype, x.device.type), ((2, 3), torch.int32, torch.device(device).type))


@factories.check()
def constants_have_their_values(device):
    """zeros, ones and full give tensors of zeros, of ones and of the given value."""
    same(torch.zeros(3, 2, device=device), torch.zeros(3, 2))
    same(torch.ones(3, 2, device=device), torch.ones(3, 2))
    same(torch.full((3,), 2.5, device=device), torch.full((3,), 2.5))


@factories.check()
def ranges_have_their_values(device):
    """arange, linspace and eye give the CPU's values."""
    same(torch.arange(2, 11, 3, device=device), torch.arange(2, 11, 3))
    same(torch.linspace(0, 1, 7, device=device), torch.linspace(0, 1, 7))
    same(torch.eye(3, 4, device=device), torch.eye(3, 4))


@factories.check()
def data_from_python(device):
    """torch.tensor(data, device=...) has the values and the dtype of nested lists, of numbers and of bools."""
    same(torch.tensor([[1, 2], [3, 4]], device=device), torch.tensor([[1, 2], [3, 4]]))
    same(torch.tensor(2.5, device=device), torch.tensor(2.5))
    same(torch.tensor([True, False], device=device), torch.tensor([True, False]))


@factories.check()
def like_factories_stay_on_the_device(device):
    """The results of zeros_like, ones_like, empty_like, new_full and new_tensor have the tensor's device and dtype."""
    x = torch.ones(2, 3, dtype=torch.float32, device=device)
    for y in (torch.zeros_like(x), torch.ones_like(x), torch.empty_like(x), x.new_full((2, 3), 4), x.new_tensor([1.0])):
        equal((y.device, y.dtype), (x.device, x.dtype))
    same(x.new_full((2, 3), 4), torch.full((2, 3), 4.0))


@factories.check("strides")
def strides_are_kept(device):
    """empty_strided has the given strides, empty_like has its argument's strides, empty has the given memory format."""
    x = torch.empty_strided((2, 3), (1, 2), device=device)
    equal(x.stride(), (1, 2))
    equal(torch.empty_like(x).stride(), (1, 2))
    y = torch.empty(2, 3, 4, 5, device=device, memory_format=torch.channels_last)
    assert y.is_contiguous(memory_format=torch.channels_last)


@factories.check()
def no_elements(device):
    """Tensors without elements can be made, computed with, copied and reduced."""
    x = torch.empty(0, 3, device=device)
    same(x + 1, torch.empty(0, 3))
    same(x.sum(0), torch.zeros(3))
    equal(x.cpu().shape, (0, 3))


@factories.check()
def the_default_device_is_used(device):
    """Inside `with torch.device(device)`, factories without a device argument make tensors on that device."""
    with torch.device(device):
        equal(torch.ones(2).device.type, torch.device(device).type)
        equal(torch.tensor([1.0]).device.type, torch.device(device).type)
    equal(torch.ones(2).device.type, "cpu")


@factories.check()
def fresh_memory_does_not_alias(device):
    """Two live tensors never share memory: a write to one does not change the other."""
    many = [torch.full((n,), float(n), device=device) for n in (1, 7, 100, 1000, 65536)]
    for x in many:
        equal((x.min().item(), x.max().item()), (float(x.numel()), float(x.numel())))


@factories.check("not_the_host", "storage")
def each_dtype_can_be_stored(device):
    """A tensor of each dtype that the device accepts comes back unchanged. The device accepts at least four dtypes."""
    held = 0
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
                  torch.float32, torch.float64, torch.bool, torch.complex64, torch.complex128):  # fmt: skip
        values = torch.tensor([0, 1, 1, 0]).to(dtype)
        try:
            there = values.to(device)
        except (TypeError, NotImplementedError, RuntimeError):
            continue  # the device lacks the dtype, and says so
        same(there.cpu(), values)
        held += 1
    assert held >= 4, f"only {held} dtypes can be stored"


@factories.check("storage", why="Kernels compute with these addresses: vector instructions need alignment.")
def data_pointers_are_distinct_and_aligned(device):
    """data_ptr() is not null, differs between live tensors and is aligned to 16 bytes."""
    x, y = torch.ones(100, device=device), torch.ones(100, device=device)
    assert x.data_ptr() and x.data_ptr() != y.data_ptr()
    equal((x.data_ptr() % 16, y.data_ptr() % 16), (0, 0))


copies = Topic(
    "tensors/copies",
    why="A copy that is wrong for one layout, dtype or direction spoils results without an error.",
    defined="aten::copy_, aten::_copy_from, aten::_to_copy in native_functions.yaml",
    chapter="memory",
)


@copies.check()
def there_and_back(device):
    """A tensor copied to the device and back is unchanged."""
    x = torch.randn(5, 7)
    same(x.to(device).cpu(), x, rtol=0, atol=0)


@copies.check()
def of_large_tensors(device):
    """Eight megabytes go to the device and back unchanged."""
    x = torch.arange(2 * 1024 * 1024, dtype=torch.int32)
    assert torch.equal(x.to(device).cpu(), x)


@copies.check()
def of_strided_sources(device):
    """A transposed, a sliced and an expanded CPU tensor arrive with their values."""
    x = torch.arange(24.0).reshape(4, 6)
    for source in (x.t(), x[:, ::2], x[1:3, 2:], x[:1].expand(4, 6)):
        same(source.to(device), source)


@copies.check()
def into_strided_targets(device):
    """copy_ into a sliced or transposed tensor, from the CPU and from the device, writes only that part."""
    base = torch.zeros(4, 6).to(device)
    base[:, ::2].copy_(torch.ones(4, 3))
    base.t()[1:2].copy_(torch.full((1, 4), 5.0).to(device))
    expected = torch.zeros(4, 6)
    expected[:, ::2] = 1
    expected[:, 1] = 5
    same(base, expected)


@copies.check()
def back_from_strided_sources(device):
    """A transposed and a sliced tensor of the device come back with their values."""
    x = torch.arange(24.0).reshape(4, 6)
    y = x.to(device)
    same(y.t().cpu(), x.t())
    same(y[:, 1::2].cpu(), x[:, 1::2])


@copies.check()
def that_convert(device):
    """A copy that changes dtype and device at once converts as the CPU does."""
    x = torch.tensor([-1.5, 0.0, 2.75, 100.25])
    same(x.to(device, torch.int32), x.to(torch.int32))
    same(x.to(device).to("cpu", torch.int32), x.to(torch.int32))


@copies.check()
def that_broadcast(device):
    """copy_ broadcasts its source."""
    x = torch.zeros(3, 4).to(device)
    x.copy_(torch.arange(4.0))
    same(x, torch.arange(4.0).expand(3, 4))


@copies.check()
def to_the_same_device_is_the_tensor(device):
    """x.to(x.device) is x. x.to(x.device, copy=True) is another tensor with its own memory."""
    x = torch.ones(3).to(device)
    assert x.to(x.device) is x
    y = x.to(x.device, copy=True)
    y.zero_()
    same(x, torch.ones(3))


@copies.check()
def clone_has_its_own_memory(device):
    """A write to a clone does not change the original."""
    x = torch.ones(3).to(device)
    y = x.clone()
    y.add_(1)
    same(x, torch.ones(3))
    same(y, torch.full((3,), 2.0))


@copies.check(
    "private_use",
    "storage",
    why="copy_ calls torch._copy_from for devices outside PyTorch. PyTorch's fallback to the CPU calls "
    "torch._copy_from_and_resize to copy results back to out= and in-place operands.",
)
def the_operators_of_the_fallback(device):
    """torch._copy_from copies in each direction, and torch._copy_from_and_resize also resizes its target."""
    x = torch.arange(6.0).reshape(2, 3)
    there, back = torch.zeros(2, 3).to(device), torch.zeros(2, 3)
    try:
        torch._copy_from(x, there)
        torch._copy_from(there * 2, back)
        resized = torch.empty(0, device=device)
        torch._copy_from_and_resize(x, resized)
    except NotImplementedError as error:
        raise NotOffered(str(error)) from error
    same(there, x)
    same(back, 2 * x)
    same(resized, x)


@copies.check("two_devices", "storage")
def between_devices(device):
    """Contiguous and strided tensors go from device 0 to device 1 and back with their values."""
    type = torch.device(device).type
    x = torch.arange(24.0).reshape(4, 6)
    y = x.to(f"{type}:0").to(f"{type}:1")
    equal(y.device.index, 1)
    same(y, x)
    same(y.t().to(f"{type}:0"), x.t())
    z = torch.zeros(6, 4, device=f"{type}:0")
    z.copy_(y.t())
    same(z, x.t())


@copies.check()
def item_reads_one_element(device):
    """item(), bool(), int() and float() of one element give its value; item() of two elements raises."""
    x = torch.tensor([3.0, 4.0]).to(device)
    equal((x[1].item(), int(x[0]), float(x[0]), bool(x[0])), (4.0, 3, 3.0, True))
    with raises(RuntimeError, "Boolean value of Tensor with more than one value is ambiguous|cannot be converted"):
        x.item()


@copies.check("not_the_host")
def numpy_is_refused(device):
    """numpy() of a tensor of the device raises TypeError or RuntimeError."""
    with raises((TypeError, RuntimeError)):
        torch.ones(2).to(device).numpy()


views = Topic(
    "tensors/views",
    why="A view that copies breaks in-place programs; a view with a wrong offset reads other elements.",
    defined="aten::as_strided, aten::view, aten::_reshape_alias in native_functions.yaml",
    chapter="storage",
)


@views.check()
def a_slice_shares_memory(device):
    """Writing through a slice, a row and a transposed view changes the base."""
    x = torch.zeros(3, 4).to(device)
    x[1] = 1
    x[:, 2].fill_(2)
    x.t()[0, 0] = 3
    expected = torch.zeros(3, 4)
    expected[1] = 1
    expected[:, 2] = 2
    expected[0, 0] = 3
    same(x, expected)


@views.check()
def reshaping_reads_the_same_elements(device):
    """view, reshape, permute, unsqueeze, squeeze, flatten, expand and narrow read what the CPU reads."""
    x = torch.arange(24.0).reshape(2, 3, 4)
    y = x.to(device)
    for form in (lambda t: t.view(6, 4), lambda t: t.permute(2, 0, 1), lambda t: t.transpose(0, 2).reshape(4, 6),
                 lambda t: t.unsqueeze(1).squeeze(1), lambda t: t.flatten(1), lambda t: t[:1].expand(5, 3, 4),
                 lambda t: t.narrow(2, 1, 2), lambda t: t.unfold(2, 2, 1), lambda t: t.diagonal(0, 0, 1)):  # fmt: skip
        same(form(y), form(x))


@views.check()
def contiguous_copies_only_if_needed(device):
    """contiguous() returns the tensor itself if it is contiguous, and otherwise a contiguous copy."""
    x = torch.arange(6.0).to(device).reshape(2, 3)
    assert x.contiguous() is x
    y = x.t().contiguous()
    equal(y.stride(), (2, 1))
    same(y, torch.arange(6.0).reshape(2, 3).t())


@views.check()
def a_dtype_view_reads_the_bytes(device):
    """view(dtype) reads the bytes of the tensor as numbers of the other dtype, as on the CPU."""
    x = torch.tensor([1.0, -2.0])
    same(x.to(device).view(torch.int32), x.view(torch.int32))


@views.check()
def views_know_their_base(device):
    """A view's _base is the tensor that was viewed. A write to the base increases the view's version counter."""
    x = torch.zeros(4).to(device)
    y = x[1:3]
    assert y._is_view() and y._base is x
    before = y._version
    x.add_(1)
    assert y._version == before + 1


@views.check("complex64")
def complex_views_share_memory(device):
    """view_as_real, view_as_complex, imag and conj read the tensor's memory, and imag writes it."""
    x = torch.tensor([1 + 2j, 3 - 4j]).to(device)
    same(torch.view_as_real(x), torch.tensor([[1.0, 2.0], [3.0, -4.0]]))
    same(torch.view_as_complex(torch.view_as_real(x)), torch.tensor([1 + 2j, 3 - 4j]))
    x.imag.fill_(7)
    same(x, torch.tensor([1 + 7j, 3 + 7j]))
    same(x.conj().resolve_conj(), torch.tensor([1 - 7j, 3 - 7j]))


@views.check("storage")
def views_of_one_storage(device):
    """Views have the base's storage, and their data_ptr() is shifted by their offset."""
    x = torch.arange(8.0).to(device)
    y = x[3:]
    equal(y.data_ptr() - x.data_ptr(), 12)
    equal(y.storage_offset(), 3)
    equal(y.untyped_storage().data_ptr(), x.untyped_storage().data_ptr())


@views.check(
    "private_use",
    "storage",
    why="A backend may describe its memory layouts in c10::BackendMeta. A view without it is read in the wrong layout.",
    defined="c10/core/TensorImpl.h: BackendMeta; torch/csrc/jit/serialization/pickler_helper.h; torch/_utils.py",
)
def views_keep_what_the_backend_knows(device):
    """If a backend attached metadata (c10::BackendMeta) to a tensor, the views of the tensor have the same metadata."""
    from torch._utils import get_tensor_metadata, set_tensor_metadata

    x = torch.zeros(4, 6).to(device)
    known = {}
    for name in ("version_number", "format_number"):  # the names in PyTorch's own test
        try:
            set_tensor_metadata(x, {name: True})
            known = get_tensor_metadata(x)
        except RuntimeError:
            continue
    if not known:
        raise NotOffered("the backend attaches no metadata that torch.save keeps")
    for view in (x.as_strided((2, 2), (1, 1)), x.view(24), x.view(torch.int32), torch.ops.aten._reshape_alias(x, (24,), (1,)),
                 x.unfold(1, 2, 2), torch.ops.aten.alias(x), x[1], x.t(), torch.empty(0, device=device).set_(x)):  # fmt: skip
        equal(get_tensor_metadata(view), known)


storages = Topic(
    "tensors/storage",
    why="set_, resize_ and UntypedStorage reach the hooks and the allocator in other ways than the factories do.",
    defined="at::PrivateUse1HooksInterface::resizePrivateUse1Bytes, aten::set_, c10::StorageImpl",
    chapter="storage",
    needs=("storage",),
)


@storages.check()
def resize_grows_and_keeps_the_data(device):
    """resize_ to more elements keeps the old elements, and makes the storage larger."""
    x = torch.arange(4.0).to(device)
    x.resize_(100)
    equal(x.untyped_storage().nbytes(), 400)
    same(x[:4], torch.arange(4.0))
    x.fill_(2)
    equal(x.sum().item(), 200.0)


@storages.check()
def a_storage_can_be_resized(device):
    """UntypedStorage.resize_ makes a storage larger, keeping its bytes, and can make it empty."""
    x = torch.arange(4.0).to(device)
    storage = x.untyped_storage()
    storage.resize_(1 << 16)
    equal(storage.nbytes(), 1 << 16)
    same(x, torch.arange(4.0))
    storage.resize_(0)
    equal(storage.nbytes(), 0)


@storages.check()
def set_takes_another_storage(device):
    """set_ gives a tensor the storage of another tensor, with an offset, sizes and strides."""
    x, y = torch.arange(6.0).to(device), torch.empty(0, device=device)
    y.set_(x.untyped_storage(), 1, (2, 2), (2, 1))
    same(y, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    y.zero_()
    equal(x.tolist(), [0.0, 0.0, 0.0, 0.0, 0.0, 5.0])


@storages.check()
def set_takes_a_tensor_or_nothing(device):
    """set_(x) takes the memory and the shape of x. set_() makes a tensor without elements and without memory."""
    x, y = torch.arange(6.0).to(device), torch.empty(0, device=device)
    y.set_(x[2:].view(2, 2))
    same(y, torch.tensor([[2.0, 3.0], [4.0, 5.0]]))
    y.zero_()
    equal(x.tolist(), [0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    y.set_()
    equal((tuple(y.shape), y.untyped_storage().nbytes(), y.device), ((0,), 0, x.device))


@storages.check()
def a_storage_can_be_made(device):
    """torch.UntypedStorage(n, device=...) has n bytes on the device, and can be copied to the CPU."""
    storage = torch.UntypedStorage(64, device=device)
    equal((storage.nbytes(), storage.device.type), (64, torch.device(device).type))
    storage.fill_(3)
    equal(storage.cpu().tolist(), [3] * 64)


@storages.check("two_devices")
def a_storage_is_made_on_its_device(device):
    """torch.UntypedStorage(n, device="TYPE:1") lies on device 1, and a tensor with this storage computes there."""
    type = torch.device(device).type
    storage = torch.UntypedStorage(64, device=f"{type}:1")
    x = torch.empty(0, device=f"{type}:1").set_(storage)
    equal((storage.device.index, x.device.index, (x.fill_(2) + 1).device.index), (1, 1, 1))
    equal(x.sum().item(), 32.0)


@storages.check()
def a_lazy_clone_is_copied_when_written(device):
    """After a write to a torch._lazy_clone, the original and the clone have values of their own."""
    x = torch.arange(5.0).to(device)
    y = torch._lazy_clone(x)
    y.add_(1)
    same(x, torch.arange(5.0))
    same(y, torch.arange(5.0) + 1)


@storages.check()
def as_strided_beyond_the_storage_is_an_error(device):
    """as_strided beyond the end of the storage raises, and the device works afterwards."""
    with raises(RuntimeError, "out of bounds|setStorage|storage of size"):
        torch.ones(4).to(device).as_strided((10,), (1,)).sum().item()
    usable(device)


@storages.check("not_the_host")
def deepcopy_has_its_own_memory(device):
    """copy.deepcopy of a tensor and of a parameter gives a copy with its own memory. A parameter stays a parameter."""
    import copy

    x = torch.ones(3).to(device)
    p = torch.nn.Parameter(torch.ones(3).to(device))
    y, q = copy.deepcopy(x), copy.deepcopy(p)
    y.zero_()
    same(x, torch.ones(3))
    assert isinstance(q, torch.nn.Parameter) and q.data_ptr() != p.data_ptr() and q.device == p.device


prints = Topic(
    "tensors/printing",
    why="Printing is the first thing that users do with a tensor. It needs masks, reductions and reads of elements.",
    defined="torch/_tensor_str.py",
    chapter="operators",
)


@prints.check("not_the_host")
def a_tensor_prints_its_values_and_device(device):
    """repr() shows the values and the device."""
    x = torch.tensor([1.5, 2.5]).to(device)
    assert "1.5" in repr(x) and f"device='{x.device}'" in repr(x), repr(x)


@prints.check()
def every_kind_of_value_prints(device):
    """repr() works for bools, integers, nan and inf, for large tensors, and for tensors without elements."""
    for x in (torch.tensor([True, False]), torch.arange(3), torch.zeros(2000), torch.empty(0),
              torch.tensor([float("nan"), float("inf"), -1.0])):  # fmt: skip
        shown = repr(x.to(device))
        if not shown.startswith("tensor("):
            wording(f"repr() is {shown}")


@prints.check()
def lists_and_formats(device):
    """tolist(), format() and iteration give the elements."""
    x = torch.arange(3.0).to(device)
    equal(x.tolist(), [0.0, 1.0, 2.0])
    equal([float(y) for y in x], [0.0, 1.0, 2.0])
    equal(f"{x[1]:.2f}", "1.00")


files = Topic(
    "tensors/serialization",
    why="A checkpoint that loads only on the device that wrote it is of no use anywhere else.",
    defined="torch/serialization.py: register_package, _get_privateuse1_backend_name; torch/_tensor.py: __reduce_ex__",
    chapter="storage",
    issue="Lightning-AI/pytorch-lightning#600",
)


@files.check()
def a_tensor_is_saved_and_loaded(device):
    """torch.save and torch.load give the tensor back on its device, with and without weights_only."""
    import io

    x = torch.arange(6.0).to(device).reshape(2, 3)
    file = io.BytesIO()
    torch.save(x, file)
    for weights_only in (True, False):
        file.seek(0)
        y = torch.load(file, weights_only=weights_only)
        equal(y.device.type, x.device.type)
        same(y, x.cpu())


@files.check()
def map_location_moves(device):
    """With map_location, a checkpoint of the device is loaded on the CPU, and a checkpoint of the CPU on the device."""
    import io

    there, here = io.BytesIO(), io.BytesIO()
    torch.save(torch.ones(3).to(device), there)
    torch.save(torch.ones(3), here)
    there.seek(0), here.seek(0)
    equal(torch.load(there, map_location="cpu").device.type, "cpu")
    here.seek(0)
    y = torch.load(here, map_location=device)
    equal(y.device.type, torch.device(device).type)
    same(y, torch.ones(3))


@files.check("storage")
def sharing_survives_a_file(device):
    """If two tensors share a storage, the tensors that torch.load makes from their file share one too."""
    import io

    x = torch.zeros(4).to(device)
    file = io.BytesIO()
    torch.save([x, x[1:3]], file)
    file.seek(0)
    base, view = torch.load(file)
    view.fill_(1)
    equal(base.tolist(), [0.0, 1.0, 1.0, 0.0])


@files.check("storage")
def quantized_tensors_are_copied_and_saved(device):
    """A quantized tensor is moved, copied deeply, and saved and loaded on the device, with its scale and values."""
    import copy
    import io

    host = torch.quantize_per_tensor(torch.tensor([0.0, 1.0, 2.0]), 0.5, 0, torch.quint8)
    try:
        q = torch.quantize_per_tensor(torch.tensor([0.0, 1.0, 2.0]).to(device), 0.5, 0, torch.quint8)
    except (NotImplementedError, RuntimeError) as error:
        raise NotOffered(str(error)) from error
    file = io.BytesIO()
    torch.save(q, file)
    file.seek(0)
    deep, loaded, moved = copy.deepcopy(q), torch.load(file), host.to(device)
    for copied in (deep, loaded, moved, torch.empty_like(q).copy_(q)):
        equal((copied.device.type, copied.q_scale()), (q.device.type, 0.5))
        same(copied.dequantize(), torch.tensor([0.0, 1.0, 2.0]))
    assert deep.data_ptr() != q.data_ptr(), "copy.deepcopy gives a tensor that shares the memory"
    equal(q.cpu().int_repr().tolist(), [0, 2, 4])


@files.check()
def a_state_dict_is_saved_and_loaded(device):
    """A module's state dict, saved on the device, loads into a module on the device and on the CPU."""
    import io

    model = torch.nn.Linear(3, 2).to(device)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    for where in (device, "cpu"):
        file.seek(0)
        other = torch.nn.Linear(3, 2).to(where)
        other.load_state_dict(torch.load(file, map_location=where))
        same(other.weight, model.weight.cpu())


@files.check("not_the_host")
def pickle_keeps_the_device(device):
    """pickle gives a tensor back on its device."""
    import pickle

    x = torch.arange(3.0).to(device)
    y = pickle.loads(pickle.dumps(x))
    equal(y.device, x.device)
    same(y, x.cpu())


errors = Topic(
    "tensors/errors",
    why="An operator that gets a CPU tensor by mistake must raise at once. If an error makes the device unusable, the "
    "whole job is lost.",
    defined="torchgen/dest/register_dispatch_key.py: gen_device_check; native_functions.yaml: device_check",
    chapter="operators",
    needs=("not_the_host",),
)


@errors.check()
def operands_on_two_devices_raise(device):
    """An operator with a tensor of the CPU and a tensor of the device raises an error about the devices."""
    x, y = torch.ones(3).to(device), torch.ones(3)
    for call in (lambda: x + y, lambda: y + x, lambda: torch.mm(x.view(3, 1), y.view(1, 3)), lambda: x.add_(y)):
        with raises(RuntimeError, "(?i)device"):
            read_if_lazy(call())
    usable(device)


@errors.check()
def a_number_on_the_cpu_is_taken(device):
    """A 0-dim tensor of the CPU may be mixed with tensors of the device, as on CUDA."""
    x = torch.ones(3).to(device)
    accepted(lambda: x + torch.tensor(2.0), torch.full((3,), 3.0))


@errors.check()
def wrong_shapes_raise_and_leave_it_usable(device):
    """Shapes that do not fit raise RuntimeError, and the device works afterwards."""
    with raises(RuntimeError, "size|shape"):
        read_if_lazy(torch.ones(3).to(device) + torch.ones(4).to(device))
    with raises(RuntimeError, "size|shape"):
        read_if_lazy(torch.ones(3, 4).to(device) @ torch.ones(3, 4).to(device))
    usable(device)


@errors.check()
def an_index_beyond_the_end_raises(device):
    """x[n] beyond the end raises IndexError."""
    with raises(IndexError):
        torch.ones(3).to(device)[5]
    usable(device)


@errors.check(may_lose_the_device=True)
def a_bad_index_tensor_is_reported(device):
    """index_select with an index beyond the end raises, at the latest when the device is synchronised."""
    x = torch.ones(3).to(device)
    with raises((RuntimeError, IndexError)):
        x.index_select(0, torch.tensor([7]).to(device)).cpu()


@errors.check("two_devices", "storage")
def operands_on_two_devices_of_the_type_raise(device):
    """An operator with tensors of device 0 and device 1 raises."""
    type = torch.device(device).type
    with raises(RuntimeError, "(?i)device"):
        torch.ones(3, device=f"{type}:0") + torch.ones(3, device=f"{type}:1")
    usable(device)


@errors.check()
def an_allocation_that_cannot_be_raises(device):
    """A tensor of an exabyte raises torch.OutOfMemoryError, another RuntimeError or MemoryError. The device works.

    A device that allocates lazily raises when the tensor is read, or gives the right element.
    """
    try:
        x = torch.empty(1 << 60, dtype=torch.uint8, device=device)
        equal(x.fill_(3)[:1].cpu().tolist(), [3])
    except (RuntimeError, MemoryError):
        pass
    usable(device)


@errors.check()
def an_unknown_operator_says_so(device):
    """An operator that few devices have, to_mkldnn, computes or raises RuntimeError. The device works afterwards."""
    try:
        torch.ones(3, 3).to(device).to_mkldnn()
    except (NotImplementedError, RuntimeError):
        pass
    usable(device)


exchange = Topic(
    "tensors/dlpack",
    why="Other libraries get tensors through DLPack without a copy. If it names a wrong device, they read wrong "
    "memory.",
    defined="torch/utils/dlpack.py, ATen/DLConvertor.cpp; Tensor.__dlpack_device__",
    chapter="storage",
    needs=("storage",),
)


@exchange.check("not_the_host", "dlpack")
def the_exchange_shares_memory(device):
    """torch.from_dlpack(x) is on the device of x and shares the memory of x."""
    x = torch.arange(4.0).to(device)
    y = torch.from_dlpack(x)
    equal((y.device, y.data_ptr()), (x.device, x.data_ptr()))
    y.zero_()
    same(x, torch.zeros(4))


@exchange.check("not_the_host", "dlpack")
def the_exchange_names_the_device(device):
    """__dlpack_device__ gives a device type other than the CPU's, and the index of the tensor's device."""
    kind, index = torch.ones(1).to(device).__dlpack_device__()
    assert int(kind) != 1 and index == torch.ones(1).to(device).device.index, (kind, index)
