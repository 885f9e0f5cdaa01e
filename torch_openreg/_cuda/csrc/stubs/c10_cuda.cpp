// The functions of libc10_cuda.so that compiled code of other packages calls: they are the device's, once it runs.
// Declared here as PyTorch declares them in c10/cuda/CUDAFunctions.h and CUDAStream.h.
#include "stubs/Stubs.h"

#include <cxxabi.h>

#include <cstdlib>
#include <ostream>
#include <stdexcept>
#include <string>

using torch_openreg::stubs::Device;
using torch_openreg::stubs::DeviceIndex;
using torch_openreg::stubs::StreamFields;

const Device* torch_openreg_stub_device = nullptr;

namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(
      "CUDA's own code is not in this process, because TORCH_OPENREG_AS=cuda simulates the devices. A program called " +
      what);
}

const Device& device(const char* function) {
  if (torch_openreg_stub_device == nullptr) {
    fail(std::string(function) + " before the device was loaded");
  }
  return *torch_openreg_stub_device;
}

} // namespace

void torch_openreg_stub_called(const char* name) {
  int status = 0;
  char* const readable = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  const std::string what = readable != nullptr ? readable : name;
  std::free(readable);
  fail(what);
}

void torch_openreg_stub_virtual_called() {
  fail("a virtual function of a class of libtorch_cuda.so or libc10_cuda.so");
}

#pragma GCC visibility push(default)
namespace c10::cuda {

using cudaError_t = int;

// These functions report success, because an error of the device is thrown.
constexpr cudaError_t kSuccess = 0;

DeviceIndex device_count() noexcept {
  return torch_openreg_stub_device == nullptr ? 0 : torch_openreg_stub_device->count();
}

DeviceIndex device_count_ensure_non_zero() {
  const DeviceIndex count = device(__func__).count();
  if (count == 0) {
    throw std::runtime_error("No CUDA GPUs are available");
  }
  return count;
}

DeviceIndex current_device() {
  return device(__func__).current();
}

void set_device(DeviceIndex index, bool /*force*/) {
  device(__func__).set(index);
}

void device_synchronize() {
  device(__func__).synchronize();
}

// The device itself warns of a call that waits for it.
void warn_or_error_on_sync() {}

cudaError_t GetDeviceCount(int* count) {
  *count = device_count();
  return kSuccess;
}

cudaError_t GetDevice(DeviceIndex* index) {
  *index = device(__func__).current();
  return kSuccess;
}

cudaError_t SetDevice(DeviceIndex index, bool /*force*/) {
  device(__func__).set(index);
  return kSuccess;
}

cudaError_t MaybeSetDevice(DeviceIndex index) {
  device(__func__).maybe_exchange(index);
  return kSuccess;
}

DeviceIndex ExchangeDevice(DeviceIndex index) {
  return device(__func__).exchange(index);
}

DeviceIndex MaybeExchangeDevice(DeviceIndex index) {
  return device(__func__).maybe_exchange(index);
}

// C10_CUDA_CHECK. Since PyTorch 2.14 it first makes an object that takes what CUDA's driver writes about an error: here
// nothing. There are no assertions of kernels.
class CUDAErrorLogCapture {
 public:
  CUDAErrorLogCapture() noexcept;
  std::string get_error_log_suffix() noexcept;
};

CUDAErrorLogCapture::CUDAErrorLogCapture() noexcept = default;

std::string CUDAErrorLogCapture::get_error_log_suffix() noexcept {
  return "";
}

void c10_cuda_check_implementation(
    int32_t error, const char* /*file*/, const char* function, uint32_t /*line*/, bool /*include_device_assertions*/) {
  if (error != kSuccess) {
    device(function).fail(error, function);
  }
}

void c10_cuda_check_implementation(
    int32_t error,
    const char* file,
    const char* function,
    uint32_t line,
    bool include_device_assertions,
    CUDAErrorLogCapture* /*log*/) {
  c10_cuda_check_implementation(error, file, function, line, include_device_assertions);
}

// There is no lazily set device whose context would be made here.
void SetTargetDevice() {}

bool hasPrimaryContext(DeviceIndex index) {
  return device(__func__).has_primary_context(index);
}

class CUDAStream {
 public:
  explicit CUDAStream(StreamFields stream) : stream_(stream) {}
  void* stream() const;
  bool query() const;
  void synchronize() const;
  StreamFields unwrap() const {
    return stream_;
  }

 private:
  StreamFields stream_;
};

void* CUDAStream::stream() const {
  return device("CUDAStream::stream").stream_handle(stream_);
}

bool CUDAStream::query() const {
  return device("CUDAStream::query").stream_query(stream_);
}

void CUDAStream::synchronize() const {
  device("CUDAStream::synchronize").stream_synchronize(stream_);
}

CUDAStream getStreamFromPool(int priority, DeviceIndex index) {
  return CUDAStream(device(__func__).pool_stream(priority, index));
}

CUDAStream getStreamFromPool(bool is_high_priority, DeviceIndex index) {
  return getStreamFromPool(is_high_priority ? -1 : 0, index);
}

CUDAStream getDefaultCUDAStream(DeviceIndex index) {
  return CUDAStream(device(__func__).default_stream(index));
}

CUDAStream getCurrentCUDAStream(DeviceIndex index) {
  return CUDAStream(device(__func__).current_stream(index));
}

std::ostream& operator<<(std::ostream& stream, const CUDAStream& printed) {
  const StreamFields fields = printed.unwrap();
  return stream << "stream " << fields.id << " on device cuda:" << int(fields.device); // as a c10::Stream
}

void setCurrentCUDAStream(CUDAStream stream) {
  device(__func__).set_current_stream(stream.unwrap());
}

} // namespace c10::cuda

struct CUstream_st;
namespace c10::cuda {

CUDAStream getStreamFromExternal(CUstream_st* stream, DeviceIndex index) {
  return CUDAStream(device(__func__).external_stream(stream, index));
}

} // namespace c10::cuda
#pragma GCC visibility pop
