// What the stubs of CUDA's libraries call in the device, once it runs: the functions of _C_cuda.so (Forward.cpp).
#pragma once
#include <cstdint>

namespace torch_openreg::stubs {

using DeviceIndex = int8_t;

// Has the layout of c10::Stream, which is the only member of c10::cuda::CUDAStream.
struct StreamFields {
  int8_t type;
  DeviceIndex device;
  int64_t id;
};

struct Device {
  DeviceIndex (*count)() noexcept;
  DeviceIndex (*current)();
  void (*set)(DeviceIndex device);
  DeviceIndex (*exchange)(DeviceIndex device);
  DeviceIndex (*maybe_exchange)(DeviceIndex device);
  void (*synchronize)();
  bool (*has_primary_context)(DeviceIndex device);
  bool (*can_access_peer)(DeviceIndex device, DeviceIndex peer);
  int (*warp_size)();
  const void* (*properties)(DeviceIndex device); // a cudaDeviceProp, which is never freed
  void* (*allocator)();                          // a c10::Allocator
  const void* (*generator)(DeviceIndex device);  // an at::Generator
  StreamFields (*current_stream)(DeviceIndex device);
  StreamFields (*default_stream)(DeviceIndex device);
  StreamFields (*pool_stream)(int priority, DeviceIndex device);
  StreamFields (*external_stream)(void* handle, DeviceIndex device);
  void (*set_current_stream)(StreamFields stream);
  void* (*stream_handle)(StreamFields stream);
  bool (*stream_query)(StreamFields stream);
  void (*stream_synchronize)(StreamFields stream);
  void (*fail)(int error, const char* call); // throws the exception for a code of CUDA's runtime API
};

} // namespace torch_openreg::stubs

// In the stub of libc10_cuda.so. Null until the device runs.
extern "C" __attribute__((visibility("default"))) const torch_openreg::stubs::Device* torch_openreg_stub_device;
