#include <Python.h>
#include <c10/core/Allocator.h>

#include "backend.h"
#include "device.h"

// Registers what PyTorch asks of a device: memory, and the classes of backend.h.
namespace abacus {
namespace {

// HARDWARE: a real backend keeps freed blocks, because the driver's allocation is slow and waits for the device.
struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = bytes ? abacus::allocate(bytes) : nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, memory || !bytes, "abacus out of memory. Tried to allocate ", bytes, " bytes.");
    return {memory, memory, &release, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const int64_t n = static_cast<int64_t>(bytes), stride = 1;
    copy_strided(to, &stride, from, &stride, &n, 1, 1);
  }
};

Allocator allocator;
REGISTER_ALLOCATOR(kType, &allocator);

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);
const bool registered = (at::RegisterPrivateUse1HooksInterface(new Hooks), true); // lives until the process ends

} // namespace
} // namespace abacus

// The module that Python imports. The import opens the library, whose static initialisers register everything.
extern "C" PyMODINIT_FUNC PyInit__C() {
  static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
  return PyModule_Create(&module);
}
