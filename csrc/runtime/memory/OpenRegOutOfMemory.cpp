#include "runtime/memory/OpenRegOutOfMemory.h"

#include <c10/util/Exception.h>

#include <sstream>

namespace c10::openreg {
namespace {

constexpr const char* kAdvice = "Free tensors, use a smaller batch, or set OPENREG_DEVICE_MEMORY higher.";

std::string format_size(size_t bytes) {
  std::ostringstream out;
  out.precision(2);
  out << std::fixed;
  if (bytes < 1024) {
    out << bytes << " bytes";
  } else if (bytes < 1 << 20) {
    out << bytes / 1024.0 << " KiB";
  } else if (bytes < 1 << 30) {
    out << bytes / 1048576.0 << " MiB";
  } else {
    out << bytes / 1073741824.0 << " GiB";
  }
  return out.str();
}

} // namespace

void throw_out_of_memory(const OutOfMemory& facts) {
  const std::string allowed = facts.allowed ? format_size(*facts.allowed) + " allowed; " : "";
  const size_t in_private_pools = facts.reserved_by_private_pools;
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      "OpenReg out of memory. Tried to allocate ",
      format_size(facts.requested),
      ". Device ",
      static_cast<int>(facts.device),
      " has a total capacity of ",
      format_size(facts.device_total),
      " of which ",
      format_size(facts.device_free),
      " is free. This process has ",
      format_size(facts.device_total - facts.device_free),
      " memory in use. ",
      allowed,
      "Of the allocated memory ",
      format_size(facts.allocated),
      " is allocated by PyTorch",
      in_private_pools ? ", with " + format_size(in_private_pools) + " reserved in private pools" : "",
      ", and ",
      format_size(facts.reserved - facts.allocated),
      " is reserved by PyTorch but unallocated. ",
      kAdvice);
}

} // namespace c10::openreg
