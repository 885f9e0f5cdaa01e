#include "runtime/OpenRegBackendMeta.h"

#include <torch/csrc/jit/serialization/pickler_helper.h>

namespace c10::openreg {
namespace {

using Flags = OpenRegBackendMeta::Flags;

// LITERALINCLUDE START: BACKEND META SERIALIZATION
// torch.save() calls this function and saves `metadata`, which also holds PyTorch's own entries "conj" and "neg".
void save(const at::Tensor& tensor, Flags& metadata) {
  if (const auto* meta = dynamic_cast<OpenRegBackendMeta*>(tensor.unsafeGetTensorImpl()->get_backend_meta())) {
    metadata.insert(meta->flags.begin(), meta->flags.end());
  }
}

// torch.load() calls this function with what save() added, for tensors that are loaded onto the device.
void load(const at::Tensor& tensor, Flags& metadata) {
  Flags flags;
  save(tensor, flags);
  for (const auto& [name, value] : metadata) {
    TORCH_CHECK(
        name == "version_number" || name == "format_number",
        "Expected the metadata of an openreg tensor to be version_number or format_number, but got ",
        name,
        ".");
    flags[name] = value;
  }
  if (!flags.empty()) {
    tensor.unsafeGetTensorImpl()->set_backend_meta(make_intrusive<OpenRegBackendMeta>(std::move(flags)));
  }
}

const bool backend_meta_is_registered = [] {
  torch::jit::TensorBackendMetaRegistry(DeviceType::PrivateUse1, &save, &load);
  return true;
}();
// LITERALINCLUDE END: BACKEND META SERIALIZATION

} // namespace
} // namespace c10::openreg
