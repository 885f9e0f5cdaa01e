#pragma once

#include <cstddef>

namespace at::openreg {

// A base class of objects that the launching thread makes and the device's thread drops: queued kernels and the aliases
// of their operands. malloc() keeps freed memory for the thread that freed it, so for such objects it searches its lists
// at each call, under a lock that both threads want. Here the memory goes back to the threads that make objects.
class Recycled {
 public:
  static void* operator new(size_t size);
  static void operator delete(void* memory, size_t size);
};

} // namespace at::openreg
