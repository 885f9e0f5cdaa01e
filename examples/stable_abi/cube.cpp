// An operator for the device, x -> x * x * x, in one binary for several versions of PyTorch: it uses PyTorch's stable
// ABI only. tests/book/test_stable_abi.py compiles and runs this file.
#include <openreg_launch.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::stable::Tensor;

Tensor cube(const Tensor& x) {
  STD_TORCH_CHECK(
      x.scalar_type() == torch::headeronly::ScalarType::Float, "stable_abi::cube: expected a float32 tensor");
  const torch::stable::accelerator::DeviceGuard guard(x.get_device_index());
  const Tensor source = torch::stable::contiguous(x);
  const Tensor result = torch::stable::empty_like(source);
  const auto kernel = [](const float* from, float* to, int64_t size) {
    from = static_cast<const float*>(orGetKernelPointer(from));
    to = static_cast<float*>(orGetKernelPointer(to));
    for (int64_t i = 0; i < size; ++i) {
      to[i] = from[i] * from[i] * from[i];
    }
  };
  const float* from = source.const_data_ptr<float>();
  float* to = result.mutable_data_ptr<float>();
  const int64_t size = source.numel();
  // The queue of the device library, from the guard's getStreamNativeHandle().
  void* const stream = torch::stable::accelerator::getCurrentStream(x.get_device_index()).nativeHandle();
  const orKernelInfo info{"stable_abi::cube", {orReads(from, size), orWrites(to, size)}};
  const orError_t error = orLaunchKernel(static_cast<orStream_t>(stream), info, kernel, from, to, size);
  STD_TORCH_CHECK(error == orSuccess, "stable_abi::cube: ", orGetLastErrorMessage());
  return result;
}

STABLE_TORCH_LIBRARY(stable_abi, m) {
  m.def("cube(Tensor x) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(stable_abi, PrivateUse1, m) {
  m.impl("cube", TORCH_BOX(&cube));
}
