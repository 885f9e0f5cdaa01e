#include "caching_allocator.h"

// Never deleted: tensors may live until the process ends. The allocator of backend.cpp has the priority 0.
const bool registered = (c10::SetAllocator(abacus::kType, new abacus::CachingAllocator(), 1), true);
