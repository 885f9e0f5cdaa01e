#include "distributed/Arguments.h"

#include <ATen/ATen.h>
#include <openreg.h>

#include "distributed/OcclRequest.h"
#include "runtime/OpenRegIdentity.h"

namespace c10d::openreg {

void check_tensor(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(
      c10::openreg::is_device_tensor(tensor) && !tensor.is_sparse(),
      "Tensors must be ",
      c10::DeviceTypeName(c10::openreg::identity.type, /*lower_case=*/false),
      " and dense");
  TORCH_CHECK_VALUE(tensor.is_contiguous(tensor.suggest_memory_format()), "Tensors must be contiguous");
}

const at::Tensor& check_single(const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "Expecting one tensor only but got ", tensors.size());
  check_tensor(tensors[0]);
  return tensors[0];
}

void check_list(const std::vector<at::Tensor>& tensors, int size, at::ScalarType dtype) {
  TORCH_CHECK_VALUE(
      tensors.size() == static_cast<size_t>(size), "Tensor list input to scatter/gather must match number of ranks");
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor);
    TORCH_CHECK_TYPE(tensor.scalar_type() == dtype, "All tensor operands to scatter/gather must have the same dtype");
  }
}

void check_root(int64_t root, int size) {
  TORCH_CHECK_VALUE(0 <= root && root < size, "invalid root rank: ", root);
}

at::Tensor flat_view(const at::Tensor& tensor, at::ScalarType dtype) {
  const auto numel = static_cast<int64_t>(tensor.nbytes() / c10::elementSize(dtype));
  const at::TensorOptions options = at::TensorOptions(at::kCPU).dtype(dtype);
  if (numel == 0) {
    return at::empty({0}, options);
  }
  return at::from_blob(orGetKernelPointer(tensor.data_ptr()), {numel}, [storage = tensor.storage()](void*) {}, options);
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  return flat_view(tensor, at::kByte);
}

std::vector<at::Tensor> bytes_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> views;
  for (const at::Tensor& tensor : tensors) {
    views.push_back(bytes_of(tensor));
  }
  return views;
}

std::vector<at::Tensor> pieces(const at::Tensor& flat, std::vector<int64_t> splits, int64_t rows, int size) {
  if (splits.empty()) {
    splits.assign(size, rows / size);
  }
  const int64_t row = rows == 0 ? 0 : flat.numel() / rows;
  std::vector<at::Tensor> result;
  int64_t offset = 0;
  for (const int64_t split : splits) {
    result.push_back(flat.narrow(0, offset, split * row));
    offset += split * row;
  }
  return result;
}

TypedReduction reduction_of(const ReduceOp& op, const at::Tensor& tensor, int size, const char* name) {
  TypedReduction result{tensor.scalar_type(), {}};
  if (tensor.is_complex()) {
    TORCH_CHECK(isComplexViewAsRealAllowed(op), name, " does not support ", op.op_, " on complex tensors");
    result.dtype = c10::toRealValueType(result.dtype);
  }
  const char* const library = c10::openreg::identity.collectives;
  TORCH_CHECK_TYPE(
      !c10::isFloat8Type(result.dtype), "Float8 dtypes are not currently supported for ", library, " reductions");
  const bool is_bool = result.dtype == at::kBool;
  result.dtype = is_bool ? at::kByte : result.dtype;
  TORCH_CHECK_TYPE(
      to_occl(result.dtype).has_value(),
      "Input tensor data type is not supported for ",
      library,
      " process group: ",
      result.dtype);
  switch (op.op_) {
    case ReduceOp::AVG:
      TORCH_CHECK_TYPE(!is_bool, "Cannot use ReduceOp.AVG with Boolean inputs");
      result.reduction.op = ReduceOp::SUM;
      // As in NCCL, floating types are divided before the sum, so that the sum cannot overflow. Integers are divided
      // after the sum.
      if (at::isFloatingType(result.dtype)) {
        result.reduction.factor = 1.0 / size;
      } else {
        result.reduction.divisor = size;
      }
      break;
    case ReduceOp::PREMUL_SUM: {
      TORCH_CHECK(at::isFloatingType(result.dtype), "PreMulSum Data type must be half, float, bfloat16 or double");
      result.reduction.op = ReduceOp::SUM;
      const auto* supplement = dynamic_cast<const PreMulSumSupplement*>(op.supplement_.get());
      TORCH_CHECK(supplement != nullptr, "PREMUL_SUM needs a factor: use torch.distributed._make_nccl_premul_sum()");
      result.reduction.factor = supplement->double_factor;
      if (supplement->tensor_factor.defined()) {
        const at::Tensor& factor = supplement->tensor_factor;
        result.reduction.factor_tensor = factor.is_cpu() ? factor : flat_view(factor, factor.scalar_type());
      }
      break;
    }
    case ReduceOp::SUM: // the sum of Booleans tells whether any is true
      result.reduction.op = is_bool ? ReduceOp::MAX : ReduceOp::SUM;
      break;
    case ReduceOp::PRODUCT:
    case ReduceOp::MIN:
    case ReduceOp::MAX:
      result.reduction.op = op.op_;
      break;
    case ReduceOp::BAND:
    case ReduceOp::BOR:
    case ReduceOp::BXOR:
      C10_THROW_ERROR(ValueError, c10::str("Cannot use ReduceOp.", name_of(op.op_), " with ", library));
    default:
      C10_THROW_ERROR(ValueError, "Unhandled ReduceOp");
  }
  return result;
}

void set_reduction(CollectiveRequest& request, const ReduceOp& op, const TypedReduction& reduction) {
  request.reduction = reduction.reduction;
  request.op = op.op_;
}

} // namespace c10d::openreg
