#include "runtime/memory/OpenRegFreeMemoryCallback.h"

namespace c10::openreg {

C10_DEFINE_REGISTRY(FreeMemoryCallbacksRegistry, FreeMemoryCallback);

void trigger_free_memory_callbacks() {
  for (const auto& name : FreeMemoryCallbacksRegistry()->Keys()) {
    FreeMemoryCallbacksRegistry()->Create(name)->Execute();
  }
}

} // namespace c10::openreg
