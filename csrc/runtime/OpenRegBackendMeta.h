#pragma once

#include <c10/core/TensorImpl.h>

#include <string>
#include <unordered_map>

#include "runtime/OpenRegException.h"

// A backend's own metadata of a tensor's memory, such as the format of its tiles. PyTorch keeps the metadata on the
// tensor (c10::BackendMeta), and saves and loads it. This device needs no such metadata. It has two flags as
// an example.
//
// Rule: the metadata describes bytes, so all tensors over the same bytes have the same metadata. The backend's own
// kernels pass it on to views, because PyTorch does not. PyTorch passes it on in detach(), .data, copy.deepcopy() and
// torch.load(). The results of all other operators, such as clone(), have no metadata.
namespace c10::openreg {

// LITERALINCLUDE START: BACKEND META
// Immutable, so several tensors may share one object. A class whose objects can be changed must override clone().
struct OPENREG_API OpenRegBackendMeta final : c10::BackendMeta {
  using Flags = std::unordered_map<std::string, bool>; // "version_number", "format_number"

  explicit OpenRegBackendMeta(Flags flags) : flags(std::move(flags)) {}

  const Flags flags;
};
// LITERALINCLUDE END: BACKEND META

// Gives `to` the metadata of `from`, or removes that of `to` if `from` has none. Both are tensors over the same memory.
inline void carry_backend_meta(const TensorImpl& from, TensorImpl& to) {
  auto meta = from.get_backend_meta_intrusive_ptr();
  if (C10_UNLIKELY(meta || to.get_backend_meta())) {
    to.set_backend_meta(std::move(meta));
  }
}

} // namespace c10::openreg
