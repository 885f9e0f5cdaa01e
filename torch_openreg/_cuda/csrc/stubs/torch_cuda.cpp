// The functions of libtorch_cuda.so that `import torch` calls or asks for, and those that are the device's once it
// runs.
#include "stubs/Stubs.h"

#include <malloc.h>

#include <cstring>
#include <stdexcept>
#include <string>

using torch_openreg::stubs::Device;
using torch_openreg::stubs::DeviceIndex;

namespace {

const Device& device(const char* name) {
  if (torch_openreg_stub_device == nullptr) {
    torch_openreg_stub_called(name);
  }
  return *torch_openreg_stub_device;
}

void do_nothing() {}

} // namespace

#pragma GCC visibility push(default)

// ---- what `import torch` calls

// The constructor of c10d::ProcessGroupNCCL::Options. A binding has one object of this class as the default of an
// argument, which is never freed. The caller has allocated the object, so malloc knows its size. All fields are 0, and
// its virtual functions do nothing.
STUB void _ZN4c10d16ProcessGroupNCCL7OptionsC1Eb(void* self, bool /*is_high_priority_stream*/) {
  static void* table[18] = {};
  for (int index = 2; index < 18; ++index) {
    table[index] = reinterpret_cast<void*>(&do_nothing);
  }
  std::memset(self, 0, malloc_usable_size(self));
  *static_cast<void***>(self) = table + 2;
}

namespace c10d {

// A place for a function, which nobody calls.
void** get_gil_checker() {
  static void* checker = nullptr;
  return &checker;
}

} // namespace c10d

// ---- what PyTorch answers in a CPU build (torch/csrc/Module.cpp)

namespace sdp {

struct sdp_params;

bool can_use_flash_attention(const sdp_params& /*params*/, bool /*debug*/) {
  return false;
}

bool can_use_mem_efficient_attention(const sdp_params& /*params*/, bool /*debug*/) {
  return false;
}

bool can_use_cudnn_attention(const sdp_params& /*params*/, bool /*debug*/) {
  return false;
}

bool is_flash_attention_available() {
  return false;
}

} // namespace sdp

// ---- the device's, once it runs (ATen/cuda/CUDAContextLight.h, ATen/cuda/CUDAGeneratorImpl.h)

namespace c10 {
struct Allocator;
}

namespace at {
struct Generator;

namespace cuda {

int warp_size() {
  return device("_ZN2at4cuda9warp_sizeEv").warp_size();
}

const void* getDeviceProperties(DeviceIndex index) {
  return device("_ZN2at4cuda19getDevicePropertiesEa").properties(index);
}

const void* getCurrentDeviceProperties() {
  return device("_ZN2at4cuda26getCurrentDevicePropertiesEv").properties(torch_openreg_stub_device->current());
}

bool canDeviceAccessPeer(DeviceIndex index, DeviceIndex peer) {
  return device("_ZN2at4cuda19canDeviceAccessPeerEaa").can_access_peer(index, peer);
}

c10::Allocator* getCUDADeviceAllocator() {
  return static_cast<c10::Allocator*>(device("_ZN2at4cuda22getCUDADeviceAllocatorEv").allocator());
}

[[noreturn]] static void refuse(const char* function, const char* library) {
  throw std::runtime_error(
      std::string("at::cuda::") + function + "() is not available: the simulated device computes with the CPU's " +
      "kernels, without " + library + ".");
}

void* getCurrentCUDABlasHandle(bool /*setup*/) {
  refuse(__func__, "cuBLAS");
}

void* getCurrentCUDABlasLtHandle() {
  refuse(__func__, "cuBLASLt");
}

void* getCurrentCUDASparseHandle() {
  refuse(__func__, "cuSPARSE");
}

namespace detail {

const Generator& getDefaultCUDAGenerator(DeviceIndex index) {
  return *static_cast<const Generator*>(device("_ZN2at4cuda6detail23getDefaultCUDAGeneratorEa").generator(index));
}

} // namespace detail
} // namespace cuda
} // namespace at
#pragma GCC visibility pop
