#include "Forward.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <cuda_runtime_api.h>

#include <array>
#include <mutex>

#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegStream.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"
#include "stubs/Device.h"

namespace c10::openreg {

uintptr_t stream_pointer(const Stream& stream) {
  return stream.id() == 0 ? 0 : reinterpret_cast<uintptr_t>(OpenRegStream(stream).stream());
}

Stream stream_of_pointer(uintptr_t pointer, DeviceIndex device) {
  return getStreamFromExternal(reinterpret_cast<orStream_t>(pointer), device);
}

namespace {

namespace stubs = torch_openreg::stubs;

stubs::StreamFields pack(const Stream& stream) {
  return {static_cast<int8_t>(stream.device_type()), stream.device_index(), stream.id()};
}

Stream unpack(const stubs::StreamFields& stream) {
  return Stream(Stream::UNSAFE, Device(DeviceType::CUDA, stream.device), stream.id);
}

// Never freed, because a program may keep the pointer.
const cudaDeviceProp& properties(DeviceIndex index) {
  static auto& all = *new std::array<std::pair<std::once_flag, cudaDeviceProp>, kMaxDevices>;
  check_device_index(index);
  auto& [once, found] = all[index];
  std::call_once(once, [&] { cudaGetDeviceProperties(&found, index); });
  return found;
}

bool can_access_peer(DeviceIndex device, DeviceIndex peer) {
  int result = 0;
  OPENREG_CHECK(orDeviceCanAccessPeer(&result, device, peer));
  return result != 0;
}

// The functions of these names return OpenRegStream, a class that the stubs do not know.
const stubs::Device device{
    .count = &device_count,
    .current = &current_device,
    .set = &set_device,
    .exchange = &exchange_device,
    .maybe_exchange = &maybe_exchange_device,
    .synchronize = [] { device_synchronize(); },
    .has_primary_context = [](DeviceIndex index) { return at::detail::getCUDAHooks().hasPrimaryContext(index); },
    .can_access_peer = &can_access_peer,
    .warp_size = [] { return properties(current_device()).warpSize; },
    .properties = [](DeviceIndex index) -> const void* { return &properties(index); },
    .allocator = []() -> void* { return static_cast<Allocator*>(device_allocator()); },
    .generator = [](DeviceIndex index) -> const void* {
      return &at::detail::getCUDAHooks().getDefaultGenerator(index);
    },
    .current_stream = [](DeviceIndex index) { return pack(getCurrentOpenRegStream(index).unwrap()); },
    .default_stream = [](DeviceIndex index) { return pack(getDefaultOpenRegStream(index).unwrap()); },
    .pool_stream = [](int priority, DeviceIndex index) { return pack(getStreamFromPool(priority, index).unwrap()); },
    .external_stream =
        [](void* handle, DeviceIndex index) {
          return pack(stream_of_pointer(reinterpret_cast<uintptr_t>(handle), index));
        },
    .set_current_stream = [](stubs::StreamFields stream) { setCurrentOpenRegStream(OpenRegStream(unpack(stream))); },
    .stream_handle = [](stubs::StreamFields stream) { return reinterpret_cast<void*>(stream_pointer(unpack(stream))); },
    .stream_query = [](stubs::StreamFields stream) { return OpenRegStream(unpack(stream)).query(); },
    .stream_synchronize = [](stubs::StreamFields stream) { OpenRegStream(unpack(stream)).synchronize(); },
    .fail = [](int error, const char* call) { throw_error(static_cast<orError_t>(error), call); },
};

} // namespace

void forward_stubs() {
  torch_openreg_stub_device = &device;
}

} // namespace c10::openreg
