#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/typeid.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/OpenRegException.h"

namespace c10 {
class OperatorHandle;
}

// What a device model refuses, and what it rounds. A device model describes the accelerator that the device stands for.
// The model refuses operators, and dtypes of operators, that exist on the CPU but not on the accelerator.
//
// Rule: when a model is chosen, each restricted operator gets a kernel in the dispatcher's table that checks or rounds
// the arguments and then calls the operator's own kernel. So nothing is checked without a model, and the operators that
// a model does not restrict cost nothing more.
namespace at::openreg {

enum class RestrictionError : uint8_t { NotImplemented, Runtime, Type, Value };

// A condition on a second argument. It holds for a tensor of one of the dtypes, and for a string that is one of the
// texts. If `argument` is empty, there is no condition.
struct Condition {
  std::string argument;
  std::vector<ScalarType> dtypes;
  std::vector<std::string> texts;
};

struct ModelRestriction {
  std::string argument;           // a tensor, a list of tensors, or a dtype; empty: only `when` decides
  std::vector<ScalarType> dtypes; // the dtypes of the argument that are refused; empty: all
  Condition when;
  RestrictionError error = RestrictionError::NotImplemented;
  std::string message; // "{dtype}" is replaced by the dtype's name in PyTorch's messages, such as Half
};

// After this call, `op` (such as "aten::add.Tensor") refuses the calls that `restrictions` describe. A second call of
// refuse() adds restrictions to those of the first one. An operator that PyTorch composes of others for every backend
// (CompositeImplicitAutograd) cannot be refused itself. Refuse the operators that it calls.
OPENREG_API void refuse(const std::string& op, std::vector<ModelRestriction> restrictions);

// After this call, an operator that would make a new tensor of this dtype on the device raises `message`. A view of
// another tensor (view.dtype) is not checked.
OPENREG_API void refuse_dtype(ScalarType dtype, RestrictionError error, std::string message);

// Throws after a call of refuse_dtype() for this dtype. The observer of the runtime calls it for each new tensor.
void check_dtype(caffe2::TypeMeta dtype);

// After this call, the device has only these operators, those that PyTorch composes of other operators, and those of
// other namespaces than aten that have a kernel for the device. A call of another operator raises NotImplementedError
// with `message`, in which "{operator}" stands for the operator's name.
OPENREG_API void keep_only(const std::vector<std::string>& operators, const std::string& message);

// After a call of keep_only(), throws unless the operator is of aten: the operators of aten that keep_only() leaves out
// have a kernel that refuses them. The observer of the runtime calls it before the fallback runs an operator.
void check_kept(const c10::OperatorHandle& op);

// After this call, `op` first rounds the float32 tensors among `arguments` to TensorFloat-32, if PyTorch's setting
// allows TensorFloat-32 when `op` is called. If `convolution` is true, the setting is
// torch.backends.cudnn.allow_tf32, else torch.backends.cuda.matmul.allow_tf32.
OPENREG_API void round_to_tf32(const std::string& op, std::vector<std::string> arguments, bool convolution);

} // namespace at::openreg
