#pragma once

#include <c10/core/TensorImpl.h>

#include <string>
#include <unordered_map>

#include "OpenRegException.h"

// What a device knows of a tensor's memory and PyTorch does not: the format of a tile, a version of it. PyTorch keeps it
// for the backend on the tensor (c10::BackendMeta), and saves and loads it. The simulated device has no use for it: it
// carries two flags, to show how.
//
// Rule: it describes bytes. Whoever has the same bytes has the same description: views (the backend's own kernels pass it
// on, PyTorch does not), detach() and .data (PyTorch does), copy.deepcopy() and torch.load(). What an operator computes
// has none, and neither has a copy in other memory.
namespace c10::openreg {

// LITERALINCLUDE START: BACKEND META
// Never changed once a tensor has it, so tensors may share it; what can be changed must override clone().
struct OPENREG_API OpenRegBackendMeta final : c10::BackendMeta {
  using Flags = std::unordered_map<std::string, bool>; // "version_number", "format_number"

  explicit OpenRegBackendMeta(Flags flags) : flags(std::move(flags)) {}

  const Flags flags;
};
// LITERALINCLUDE END: BACKEND META

// Gives `to`, over the same memory, the description of `from`, or of none.
inline void carry_backend_meta(const TensorImpl& from, TensorImpl& to) {
  auto meta = from.get_backend_meta_intrusive_ptr();
  if (C10_UNLIKELY(meta || to.get_backend_meta())) {
    to.set_backend_meta(std::move(meta));
  }
}

} // namespace c10::openreg
