// What the stubs of CUDA's libraries call in the device, once it runs. The stub of libc10_cuda.so exports a pointer,
// and _C_cuda.so makes it point to its functions (Forward.cpp).
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
  void* (*allocator)();                         // a c10::Allocator
  const void* (*generator)(DeviceIndex device); // an at::Generator
  StreamFields (*current_stream)(DeviceIndex device);
  StreamFields (*default_stream)(DeviceIndex device);
  StreamFields (*pool_stream)(int priority, DeviceIndex device);
  StreamFields (*external_stream)(void* handle, DeviceIndex device);
  void (*set_current_stream)(StreamFields stream);
  void* (*stream_handle)(StreamFields stream);
  bool (*stream_query)(StreamFields stream);
  void (*stream_synchronize)(StreamFields stream);
};

} // namespace torch_openreg::stubs
