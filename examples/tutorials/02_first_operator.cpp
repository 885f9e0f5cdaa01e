// An operator for the device: x -> x * x * x. Compiled by 02_first_operator.py, or as any other C++ extension.
#include <ATen/Functions.h>
#include <openreg_launch.h>
#include <torch/library.h>

#include <torch_openreg/runtime/OpenRegStream.h>

// The kernel for the device. It is launched on the current stream, and converts addresses with orGetKernelPointer().
at::Tensor cube(const at::Tensor& x) {
  TORCH_CHECK(x.scalar_type() == at::kFloat, "tutorial::cube: expected a float32 tensor, but got ", x.scalar_type());
  const at::Tensor source = x.contiguous();
  const at::Tensor result = at::empty_like(source);
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
  const orStream_t stream = c10::openreg::getCurrentOpenRegStream(x.device().index()).stream();
  const orKernelInfo info{"tutorial::cube", {orReads(from, size), orWrites(to, size)}}; // for profilers and sanitizers
  const orError_t error = orLaunchKernel(stream, info, kernel, from, to, size);
  TORCH_CHECK(error == orSuccess, "tutorial::cube: ", orGetLastErrorMessage());
  return result;
}

TORCH_LIBRARY(tutorial, m) {
  m.def("cube(Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL(tutorial, PrivateUse1, m) {
  m.impl("cube", cube);
}
