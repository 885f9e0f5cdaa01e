// Copied into every kernel that torch.compile generates for the device. The kernel's entry calls launch(), which gives
// the kernel's loops to torch_openreg_launch_compiled() (csrc/simulator/borrowed/inductor/CompiledKernel.h).
#ifndef TORCH_OPENREG_LAUNCH
#define TORCH_OPENREG_LAUNCH
#include <dlfcn.h>
#include <cstddef>
#include <cstdint>
#include <type_traits>
namespace openreg {
enum Access : unsigned { read = 1, write = 2, update = 3 };
struct Operand {
  const void* data;
  int64_t size; // bytes
  Access access;
};
using Launch =
    void (*)(int, const char*, const Operand*, size_t, void (*)(const void*, void* const*), const void*, size_t);
// The function is found by name, because the process that compiles a kernel links it without the device's libraries.
static const Launch library_launch = [] {
  void* const library = dlopen(TORCH_OPENREG_LIBRARY, RTLD_NOLOAD | RTLD_NOW);
  return reinterpret_cast<Launch>(library ? dlsym(library, "torch_openreg_launch_compiled") : nullptr);
}();
// Calls `loops` with a usable address for each operand: at once, or later when the stream runs the kernel.
template <size_t count, class Loops>
static inline void launch(int device, const char* name, const Operand (&operands)[count], const Loops& loops) {
  static_assert(std::is_trivially_copyable_v<Loops>);
  const auto run = [](const void* loops, void* const* at) { (*static_cast<const Loops*>(loops))(at); };
  library_launch(device, name, operands, count, run, &loops, sizeof(Loops));
}
} // namespace openreg
#endif
