#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>

#include <string>

// What PyTorch and the texts of messages call this device: its type, its dispatch key, its names.
//
// Rule: code that registers something with PyTorch writes PyTorch's literal PrivateUse1, as every backend outside
// PyTorch does. All other code takes the type, the key and the words from `identity`. So the objects of such code serve
// a library for another device type too, which defines another `identity`.
namespace c10::openreg {

// LITERALINCLUDE START: DEVICE IDENTITY
struct DeviceIdentity {
  DeviceType type;
  BackendComponent backend;
  DispatchKey key;     // of strided tensors
  DispatchKeySet keys; // `key` alone

  const char* name;             // at the beginning of messages: "OpenReg out of memory"
  const char* device;           // before a noun: "the openreg device", "openreg tensors"
  const char* a_device;         // `device` with its article: "an openreg device"
  const char* module;           // where programs find the functions of the Python package
  const char* properties_class; // Python's names of the classes of device properties
  const char* uuid_class;
  const char* collectives; // the library of the collectives: "OCCL process group"

  // Parts of messages that CUDA words in its own way.
  const char* no_device;     // before the reason why device_count() finds no device
  const char* old_driver;    // before the versions
  const char* invalid_index; // before "It must be in [0, 2), but got 5."
  std::string (*wrong_generator)(Device other);
  struct {
    const char* device; // before the index
    const char* private_pools;
    const char* process; // after the free memory, before the memory in use
    const char* advice;
  } out_of_memory;
};
// LITERALINCLUDE END: DEVICE IDENTITY

C10_EXPORT extern const DeviceIdentity identity;

inline bool is_device_tensor(const at::TensorBase& tensor) {
  return tensor.defined() && tensor.device().type() == identity.type;
}

} // namespace c10::openreg

namespace at::openreg {

using c10::openreg::identity;
using c10::openreg::is_device_tensor;

} // namespace at::openreg
