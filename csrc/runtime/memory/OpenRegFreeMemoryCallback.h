#pragma once

#include <c10/util/Registry.h>

// Callbacks that the device allocator calls in two cases: when it has no free block and the device has no room for
// another segment, and in emptyCache(). A callback gives back blocks that its code holds without need. CUDA's allocator
// has the same registry (c10::FreeMemoryCallback), for the same reason: the allocator calls code of a higher layer,
// such as the sharing of memory between processes, without including it.
//
// Rule: a callback runs on the thread that allocates or calls emptyCache(), without the allocator's lock, and may free
// device memory.
namespace c10::openreg {

class FreeMemoryCallback {
 public:
  virtual ~FreeMemoryCallback() = default;
  virtual void Execute() = 0;
};

C10_DECLARE_REGISTRY(FreeMemoryCallbacksRegistry, FreeMemoryCallback);
#define REGISTER_FREE_MEMORY_CALLBACK(name, ...) C10_REGISTER_CLASS(FreeMemoryCallbacksRegistry, name, __VA_ARGS__)

// Runs all callbacks that are registered.
void trigger_free_memory_callbacks();

} // namespace c10::openreg
