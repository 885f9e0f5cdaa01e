#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "../../runtime/OpenRegException.h"

// What a device model refuses: operators, and dtypes of operators, that the CPU has and the model's accelerator lacks.
//
// Rule: a restricted operator gets a kernel in front of its own, in the dispatcher's table, when the model is chosen. So
// nothing is checked without a model, and with a model an unrestricted operator pays nothing.
namespace at::openreg {

enum class RefusalError : uint8_t { NotImplemented, Runtime, Type };

struct Refusal {
  std::string argument;           // a tensor, a list of tensors or a dtype, by name; empty: every call is refused
  std::vector<ScalarType> dtypes; // of the argument; empty: any
  RefusalError error = RefusalError::NotImplemented;
  std::string message; // "{dtype}" stands for the dtype's name as PyTorch's sentences have it: Half
};

// From here on, `op` ("aten::add.Tensor") refuses these calls. A second call of refuse() adds to the first one. An
// operator that PyTorch composes of others for every backend (CompositeImplicitAutograd) cannot be refused itself.
// Refuse the operators that it calls.
OPENREG_API void refuse(const std::string& op, std::vector<Refusal> refusals);

// From here on, no tensor of the device can have this dtype: an operator that would make such a tensor raises
// `message`.
OPENREG_API void refuse_dtype(ScalarType dtype, RefusalError error, std::string message);

extern std::atomic<bool> lacks_dtypes;
void check_dtype_slowly(ScalarType dtype);

// Called where a tensor of the device gets its dtype: where memory is allocated, and for the results of kernels.
inline void check_dtype(caffe2::TypeMeta dtype) {
  if (C10_UNLIKELY(lacks_dtypes.load(std::memory_order_relaxed))) {
    check_dtype_slowly(c10::typeMetaToScalarType(dtype));
  }
}

// From here on, the device has only these operators of the namespace aten, and those that PyTorch composes of them. A call of
// another operator raises NotImplementedError with `message`, in which "{operator}" stands for the operator's name.
OPENREG_API void keep_only(const std::vector<std::string>& operators, const std::string& message);

// From here on, `op` rounds these float32 arguments to TensorFloat-32 while PyTorch's setting allows that:
// torch.backends.cudnn.allow_tf32 for convolutions, torch.backends.cuda.matmul.allow_tf32 for matrix products.
OPENREG_API void round_to_tf32(const std::string& op, std::vector<std::string> arguments, bool convolution);

} // namespace at::openreg
