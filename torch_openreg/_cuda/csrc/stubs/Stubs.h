// What the stubs share that names.py generates. A stub has the name of a symbol of PyTorch's libraries for CUDA, and
// nothing else of it: no types, because a call of a function throws. Each function is weak, so that one that is written
// by hand (c10_cuda.cpp, torch_cuda.cpp, torch_nvshmem.cpp) takes its place.
#pragma once
#include <cstdint>

#include "stubs/Device.h"

#define STUB extern "C" __attribute__((visibility("default")))

// Throws an error that names the function. `name` is as the compiler has made it.
STUB [[noreturn]] void torch_openreg_stub_called(const char* name);
// Throws: a virtual function of a class of these libraries, whose name is not known.
STUB [[noreturn]] void torch_openreg_stub_virtual_called();
extern "C" void* _ZTVN10__cxxabiv117__class_type_infoE[]; // the vtable of std::type_info for a class without a base

// A table of virtual functions begins with the offset to the object and the type. Here both are null.
template <int size>
struct StubTable {
  void* entries[size] = {};
  StubTable() {
    for (int index = 2; index < size; ++index) {
      entries[index] = reinterpret_cast<void*>(&torch_openreg_stub_virtual_called);
    }
  }
};

#define STUB_FUNCTION(NAME)                \
  STUB __attribute__((weak)) void NAME() { \
    torch_openreg_stub_called(#NAME);      \
  }
#define STUB_TYPE(NAME, WORDS)                                       \
  static const char text_of##NAME[] = #NAME;                         \
  STUB void* NAME[WORDS];                                            \
  void* NAME[WORDS] = {                                              \
      static_cast<void*>(_ZTVN10__cxxabiv117__class_type_infoE + 2), \
      const_cast<char*>(text_of##NAME + 4)}; /* what follows _ZTI is the type's name */
#define STUB_VTABLE(NAME, WORDS) \
  STUB StubTable<WORDS> NAME;    \
  StubTable<WORDS> NAME;
// A pointer to an object whose virtual functions throw.
#define STUB_OBJECT(NAME)                                    \
  static StubTable<128> table_of##NAME;                      \
  static void* object_of##NAME = table_of##NAME.entries + 2; \
  STUB void* NAME;                                           \
  void* NAME = &object_of##NAME;
#define STUB_DATA(NAME, SIZE) \
  STUB char NAME[SIZE];       \
  alignas(64) char NAME[SIZE] = {};
