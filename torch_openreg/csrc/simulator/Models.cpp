#include <openreg_model.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>

#include <cstring>

#include "Bindings.h"
#include "aten/native/NondeterminismChecks.h"
#include "runtime/OpenRegFunctions.h"
#include "runtime/memory/OpenRegAllocatorConfig.h"
#include "simulator/RuntimeObserver.h"
#include "simulator/restrictions/ModelRestrictions.h"

namespace py = pybind11;
using torch::wrap_pybind_function;

namespace {

// Sets `field` to `numbers[name]` if `numbers` has this name. The names are those of PROPERTIES in
// torch_openreg/simulator/_models.py.
template <class T>
void take(const py::dict& numbers, const char* name, T& field) {
  if (numbers.contains(name)) {
    field = numbers[name].cast<T>();
  }
}

// `numbers`: the properties that the model sets; all others stay those of openreg's own model. None: no model.
void set_device_model(const std::optional<py::dict>& numbers) {
  if (!numbers) {
    OPENREG_CHECK(orSetDeviceModel(nullptr));
    c10::openreg::forget_device_count();
    c10::openreg::set_block_alignment(c10::openreg::kMinBlockSize);
    return;
  }
  orDeviceModel model{};
  OPENREG_CHECK(orGetOwnDeviceModel(&model));
  orDeviceProp& properties = model.properties;
  if (numbers->contains("name")) {
    const auto name = (*numbers)["name"].cast<std::string>();
    TORCH_CHECK_VALUE(
        name.size() < sizeof(properties.name),
        "The model's name has more than ",
        sizeof(properties.name) - 1,
        " bytes.");
    std::memcpy(properties.name, name.c_str(), name.size() + 1);
  }
  take(*numbers, "total_memory", properties.totalGlobalMem);
  take(*numbers, "major", properties.major);
  take(*numbers, "minor", properties.minor);
  take(*numbers, "multi_processor_count", properties.multiProcessorCount);
  take(*numbers, "warp_size", properties.warpSize);
  take(*numbers, "max_threads_per_block", properties.maxThreadsPerBlock);
  take(*numbers, "max_threads_per_multi_processor", properties.maxThreadsPerMultiProcessor);
  take(*numbers, "regs_per_multiprocessor", properties.regsPerMultiprocessor);
  take(*numbers, "shared_memory_per_block", properties.sharedMemPerBlock);
  take(*numbers, "shared_memory_per_block_optin", properties.sharedMemPerBlockOptin);
  take(*numbers, "shared_memory_per_multiprocessor", properties.sharedMemPerMultiprocessor);
  take(*numbers, "L2_cache_size", properties.l2CacheSize);
  take(*numbers, "clock_rate", properties.clockRate);
  take(*numbers, "memory_clock_rate", properties.memoryClockRate);
  take(*numbers, "memory_bus_width", properties.memoryBusWidth);
  take(*numbers, "is_integrated", properties.integrated);
  take(*numbers, "is_multi_gpu_board", properties.isMultiGpuBoard);
  take(*numbers, "device_count", model.deviceCount);
  take(*numbers, "peer_access", model.peerAccess);
  size_t alignment = c10::openreg::kMinBlockSize;
  take(*numbers, "allocation_alignment", alignment);
  OPENREG_CHECK(orSetDeviceModel(&model));
  c10::openreg::forget_device_count();
  c10::openreg::set_block_alignment(alignment);
}

// (argument, dtypes, texts): a Condition.
using When = std::tuple<std::string, std::vector<at::ScalarType>, std::vector<std::string>>;
// Rows of (argument, dtypes, condition, error, message).
using Rows = std::vector<std::tuple<std::string, std::vector<at::ScalarType>, When, int, std::string>>;

void refuse(const std::string& op, const Rows& rows) {
  std::vector<at::openreg::ModelRestriction> restrictions;
  for (const auto& [argument, dtypes, when, error, message] : rows) {
    const auto& [other, its_dtypes, texts] = when;
    restrictions.push_back(
        {argument, dtypes, {other, its_dtypes, texts}, static_cast<at::openreg::RestrictionError>(error), message});
  }
  at::openreg::refuse(op, std::move(restrictions));
}

void refuse_dtype(at::ScalarType dtype, int error, std::string message) {
  c10::openreg::observe_runtime();
  at::openreg::refuse_dtype(dtype, static_cast<at::openreg::RestrictionError>(error), std::move(message));
}

void keep_only(const std::vector<std::string>& operators, const std::string& message) {
  c10::openreg::observe_runtime();
  at::openreg::keep_only(operators, message);
}

void add_models(py::module_& module) {
  module.def("_set_device_model", wrap_pybind_function(&set_device_model));
  module.def("_refuse", wrap_pybind_function(&refuse));
  module.def("_refuse_dtype", wrap_pybind_function(&refuse_dtype));
  module.def("_keep_only", wrap_pybind_function(&keep_only));
  module.def("_set_nondeterminism_checks", wrap_pybind_function(&at::openreg::set_nondeterminism_checks));
  module.def("_round_to_tf32", wrap_pybind_function(&at::openreg::round_to_tf32));
}

const Bindings model_bindings(&add_models);

} // namespace
