// Graph trees of torch.compile(mode="reduce-overhead"): the functions of torch/csrc/cuda/Module.cpp that
// torch/_inductor/cudagraph_trees.py calls, and that a CPU build of PyTorch does not compile.
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/utils/pybind.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "Graph.h"
#include "runtime/OpenRegStorage.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"

namespace py = pybind11;
using c10::MempoolId_t;
using c10::StorageImpl;
using c10::openreg::device_allocator;
using c10::openreg::OpenRegDeviceAllocator;
using c10::openreg::PrivatePoolState;
using torch::wrap_pybind_function;

namespace {

// PyTorch passes a storage as the number from UntypedStorage._weak_ref(), and only while the storage lives.
StorageImpl* storage_of(size_t number) {
  return reinterpret_cast<StorageImpl*>(number);
}

bool has_standard_deleter(size_t storage) {
  const c10::DataPtr& data = storage_of(storage)->data_ptr();
  return data.get_deleter() == OpenRegDeviceAllocator::own(nullptr, data.device().index()).get_deleter();
}

// Lets the storage keep its address, but no memory. Returns the owner of the memory.
c10::DataPtr take_memory(StorageImpl* storage) {
  const c10::DataPtr& data = storage->data_ptr();
  c10::DataPtr address(data.get(), data.device());
  return storage->set_data_ptr(std::move(address));
}

void free_and_remove_deleter(size_t storage) {
  TORCH_CHECK(has_standard_deleter(storage), "Expected standard deleter");
  take_memory(storage_of(storage)).clear();
}

PrivatePoolState get_checkpoint_state(c10::DeviceIndex device, MempoolId_t pool) {
  return device_allocator()->getCheckpointState(device, pool);
}

// The storages `stale` lose their memory. Those of `living` get the memory at their addresses that is allocated again.
void set_checkpoint_pool_state(
    c10::DeviceIndex device,
    const PrivatePoolState& state,
    const std::vector<size_t>& stale,
    const std::vector<size_t>& living) {
  for (const size_t storage : stale) {
    take_memory(storage_of(storage)).release_context();
  }
  std::map<const void*, StorageImpl*> storages;
  for (const size_t number : living) {
    StorageImpl* const storage = storage_of(number);
    TORCH_CHECK(storage->data_ptr().get_context() == nullptr, "Not expecting deleter function");
    storages.emplace(storage->data_ptr().get(), storage);
  }
  for (void* address : device_allocator()->setCheckpointPoolState(device, state)) {
    if (const auto found = storages.find(address); found != storages.end()) {
      found->second->set_data_ptr_noswap(OpenRegDeviceAllocator::own(address, device));
    }
  }
}

bool check_pool_live_allocations(c10::DeviceIndex device, MempoolId_t pool, const std::set<uintptr_t>& expected) {
  std::set<void*> addresses;
  for (const uintptr_t address : expected) {
    addresses.insert(reinterpret_cast<void*>(address));
  }
  return device_allocator()->checkPoolLiveAllocations(device, pool, addresses);
}

// A storage over memory that others own: of the device's class, which a capture needs (storage_over()).
c10::Storage construct_storage(uintptr_t address, const c10::Device& device, size_t size) {
  return c10::Storage(c10::openreg::storage_over(size, {reinterpret_cast<void*>(address), device}));
}

// A tensor as `metadata` describes it: the keys dtype, size, stride and storage_offset.
at::Tensor construct_tensor(const py::dict& metadata, c10::Storage storage) {
  const py::object dtype = metadata["dtype"];
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage),
      c10::DispatchKeySet(c10::DispatchKey::CUDA),
      c10::scalarTypeToTypeMeta(reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
      metadata["size"].cast<std::vector<int64_t>>(), metadata["stride"].cast<std::vector<int64_t>>());
  tensor.unsafeGetTensorImpl()->set_storage_offset(metadata["storage_offset"].cast<int64_t>());
  return tensor;
}

// Whether each of the tensors at `indices` begins at the address that `addresses` has at its index.
bool have_addresses(const py::list& tensors, const py::list& addresses, const std::vector<size_t>& indices) {
  for (const size_t index : indices) {
    const auto tensor = tensors[index].cast<at::Tensor>();
    if (reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) != addresses[index].cast<uintptr_t>()) {
      return false;
    }
  }
  return true;
}

void set_storage_error(const at::Tensor& tensor, std::string message) {
  tensor.unsafeGetTensorImpl()->release_storage_and_set_meta_custom_data_ptr_error_msg_(std::move(message));
}

void set_data_error(size_t storage, std::string message) {
  storage_of(storage)->release_data_and_set_meta_custom_data_ptr_error_msg_(std::move(message));
}

} // namespace

void add_graph_trees(py::module_& module) {
  py::class_<PrivatePoolState>(module, "_AllocatorState");
  module.def("_get_checkpoint_state", wrap_pybind_function(&get_checkpoint_state));
  module.def("_set_checkpoint_pool_state", wrap_pybind_function(&set_checkpoint_pool_state));
  module.def("_check_pool_live_allocations", wrap_pybind_function(&check_pool_live_allocations));
  module.def("_has_standard_deleter", wrap_pybind_function(&has_standard_deleter));
  module.def("_free_and_remove_deleter", wrap_pybind_function(&free_and_remove_deleter));
  module.def("_construct_storage", wrap_pybind_function(&construct_storage));
  module.def("_construct_tensor", wrap_pybind_function(&construct_tensor));
  module.def("_have_addresses", wrap_pybind_function(&have_addresses));
  module.def("_set_storage_error", wrap_pybind_function(&set_storage_error));
  module.def("_set_data_error", wrap_pybind_function(&set_data_error));
}
