#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>
#include <torch/csrc/inductor/aoti_torch/tensor_converter.h>
#include <torch/library.h>

#include "runtime/OpenRegIdentity.h"

// Runs the models that AOTInductor has compiled for this device, in Python and in programs in C++. The code of such a
// model is the CPU's (torch_openreg/simulator/inductor/_packages.py). The whole model is one kernel: an operator, which
// reaches the CPU's code through the fallback, as every operator without a kernel of its own does.
namespace at::openreg {
namespace {

using torch::inductor::AOTIModelContainerRunner;

class PackagedModel final : public AOTIModelContainerRunner {
 public:
  PackagedModel(const std::string& library, size_t models, bool one_thread)
      : AOTIModelContainerRunner(library, models, "cpu", "", one_thread) {}

  std::vector<Tensor> run_on_aliases(TensorList inputs) {
    auto handles = torch::aot_inductor::unsafe_alloc_new_handles_from_tensors(inputs.vec());
    return AOTIModelContainerRunner::run_impl(handles, nullptr);
  }

 protected:
  // LITERALINCLUDE START: RUN OF A PACKAGE
  // Does not wait for the device, unless the fallback does. A stream other than the current one is refused, because the
  // kernel runs on the current stream.
  std::vector<Tensor> run_impl(std::vector<AtenTensorHandle>& handles, void* stream) override {
    TORCH_CHECK(stream == nullptr, "A packaged model runs on the current stream: pass no stream handle.");
    const std::vector<Tensor> inputs =
        torch::aot_inductor::alloc_tensors_by_stealing_from_handles(handles.data(), handles.size());
    if (std::none_of(inputs.begin(), inputs.end(), is_device_tensor)) {
      return run_on_aliases(inputs);
    }
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("openreg::run_packaged_model", "")
                               .typed<std::vector<Tensor>(TensorList, int64_t)>();
    return op.call(inputs, reinterpret_cast<int64_t>(this));
  }
  // LITERALINCLUDE END: RUN OF A PACKAGE
};

TORCH_LIBRARY_FRAGMENT(openreg, m) {
  m.def("run_packaged_model(Tensor[] inputs, int model) -> Tensor[]");
}

TORCH_LIBRARY_IMPL(openreg, CPU, m) {
  m.impl("run_packaged_model", [](TensorList inputs, int64_t model) {
    return reinterpret_cast<PackagedModel*>(model)->run_on_aliases(inputs);
  });
}

std::unique_ptr<AOTIModelContainerRunner> make_runner(
    const std::string& library, size_t models, const std::string&, const std::string&, bool one_thread) {
  return std::make_unique<PackagedModel>(library, models, one_thread);
}

// A package names its device by the type. A type outside PyTorch has its name only after this registration.
const torch::inductor::RegisterAOTIModelRunner of_type(c10::DeviceTypeName(identity.type, true), &make_runner);
const torch::inductor::RegisterAOTIModelRunner of_name(identity.device, &make_runner);

} // namespace
} // namespace at::openreg
