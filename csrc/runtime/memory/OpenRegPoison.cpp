#include "runtime/memory/OpenRegPoison.h"

#include <c10/util/env.h>

#include <cstring>

#include "runtime/OpenRegInternalUse.h"
#include "runtime/memory/OpenRegBlockEvents.h"

namespace c10::openreg {
namespace {

constexpr int kPoison = 0xFF; // NaN in every floating point type, -1 in the signed integers

} // namespace

bool poison_is_on() {
  static const bool on = c10::utils::get_env("OPENREG_POISON") == "1"; // `import torch` refuses all but 0 and 1
  return on;
}

void poison_now(const char* address, size_t size) {
  std::memset(orGetKernelPointer(address), kPoison, size);
}

void queue_poison(const Block* block) {
  const InternalUse internal;
  OPENREG_CHECK(orMemsetAsync(block->address, kPoison, block->size, stream_handle(stream_of(block))));
}

} // namespace c10::openreg
