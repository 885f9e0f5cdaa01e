// Storages, the legacy tensor types and DLPack: the parts for CUDA that a CPU build of PyTorch does not compile.
#include "Storage.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/dlpack.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/tensor/python_tensor.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/tensor_new.h>

#include "runtime/OpenRegStorage.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"

namespace py = pybind11;
namespace openreg = c10::openreg;
using torch::wrap_pybind_function;

namespace {

// ---- torch.cuda.FloatTensor and similar types

// The tp_new of these types. PyTorch's own (Tensor_new in torch/csrc/tensor/python_tensor.cpp) refuses in a CPU build.
PyObject* new_tensor(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  HANDLE_TH_ERRORS
  TORCH_WARN_ONCE(
      "The torch.cuda.*DtypeTensor constructors are no longer recommended. It's best to use methods such as "
      "torch.tensor(data, dtype=*, device='cuda') to create tensors.");
  const py::handle self(reinterpret_cast<PyObject*>(type));
  const auto key = self.attr("is_sparse").cast<bool>() ? c10::DispatchKey::SparseCUDA : c10::DispatchKey::CUDA;
  const py::object dtype = self.attr("dtype");
  const auto scalar_type = reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
  return THPVariable_Wrap(torch::utils::legacy_tensor_ctor(key, scalar_type, arguments, keywords));
  END_HANDLE_TH_ERRORS
}

void enable_constructor(py::handle type) {
  reinterpret_cast<PyTypeObject*>(type.ptr())->tp_new = &new_tensor;
  PyType_Modified(reinterpret_cast<PyTypeObject*>(type.ptr()));
}

// The beginning of PyTensorType in torch/csrc/tensor/python_tensor.cpp, which no header declares.
struct PyTensorType {
  PyTypeObject type;
  PyObject* dtype;
  PyObject* layout;
  bool is_cuda;
};

// Only PyTorch's py_set_default_tensor_type() can set the default type. In a CPU build it refuses a type with the flag
// is_cuda. So the flag is cleared while PyTorch's function runs.
void set_default_tensor_type(py::handle type) {
  auto* const tensor_type = reinterpret_cast<PyTensorType*>(type.ptr());
  const bool is_known = PyType_Check(type.ptr()) && tensor_type->type.tp_new == &new_tensor &&
                        tensor_type->dtype == type.attr("dtype").ptr() &&
                        tensor_type->layout == type.attr("layout").ptr() && tensor_type->is_cuda;
  const auto restore = c10::make_scope_exit([&] { tensor_type->is_cuda |= is_known; });
  if (is_known) {
    tensor_type->is_cuda = false;
  }
  torch::tensors::py_set_default_tensor_type(type.ptr());
}

// ---- DLPack

// Capsules of this device's tensors name a device that no other library has, so that no other library uses their
// addresses as addresses of a GPU. open_capsule() restores the device before PyTorch reads a capsule.
constexpr int32_t kSimulated = 1 << 24; // added to the index

// The device in a capsule; null if `capsule` is no capsule, or was used already.
DLDevice* device_in(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    return &static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"))->dl_tensor.device;
  }
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    auto* tensor = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    return &tensor->dl_tensor.device;
  }
  return nullptr;
}

py::object close_capsule(py::object capsule) {
  DLDevice* device = device_in(capsule.ptr());
  if (device && device->device_type == kDLCUDA) {
    *device = {kDLExtDev, device->device_id + kSimulated};
  }
  return capsule;
}

py::object open_capsule(py::object capsule) {
  DLDevice* device = device_in(capsule.ptr());
  if (device && device->device_type == kDLExtDev && device->device_id >= kSimulated) {
    *device = {kDLCUDA, device->device_id - kSimulated};
  } else {
    TORCH_CHECK_WITH(
        BufferError,
        !device || (device->device_type != kDLCUDA && device->device_type != kDLCUDAManaged),
        "The capsule holds memory of a real CUDA device, which the simulated devices of torch_openreg cannot use. Copy "
        "it to the host first.");
  }
  return capsule;
}

} // namespace

void add_storage(py::module_& module) {
  // The values for the argument `allocator=` of torch.UntypedStorage: device memory, and pinned memory.
  module.def("_allocator_address", [] { return reinterpret_cast<intptr_t>(openreg::device_allocator()); });
  module.def("_host_allocator_address", [] {
    return reinterpret_cast<intptr_t>(static_cast<c10::Allocator*>(at::getHostAllocator(c10::DeviceType::CUDA)));
  });
  module.def("_resize_storage", wrap_pybind_function([](const c10::Storage& storage, size_t size) {
               openreg::resize_storage(storage.unsafeGetStorageImpl(), size);
             }));
  module.def("_enable_constructor", &enable_constructor);
  module.def("_set_default_tensor_type", wrap_pybind_function(&set_default_tensor_type));
  module.def("_close_capsule", &close_capsule);
  module.def("_open_capsule", wrap_pybind_function(&open_capsule));
}
