#include "simulator/borrowed/queue/ScratchShapes.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <utility>
#include <vector>

#include "aten/native/Arguments.h"

namespace at::openreg {
namespace {

// The scratch tensors of one call, each with the meta tensor for which it stands.
class Scratch {
 public:
  // The tensor for `meta`. `kernel`: the queued kernel's tensor; a number of the CPU is known, and copied.
  Tensor add(const Tensor& meta, const Tensor& kernel) {
    if (!meta.defined()) {
      return meta;
    }
    if (!meta.is_meta()) {
      return kernel.clone();
    }
    for (const auto& [known, scratch] : tensors_) { // one tensor that is passed twice stays one tensor
      if (known.is_same(meta)) {
        return scratch;
      }
    }
    tensors_.emplace_back(meta, make(meta));
    return tensors_.back().second;
  }

  // Gives the meta tensors of the outputs the shapes that the kernel gave to the scratch tensors.
  void resize_metas() const {
    for (const auto& [meta, scratch] : tensors_) {
      if (meta.sizes() != scratch.sizes()) {
        meta.unsafeGetTensorImpl()->set_sizes_and_strides(scratch.sizes(), scratch.strides());
      }
    }
  }

 private:
  std::vector<std::pair<Tensor, Tensor>> tensors_;

  // Indices and classes are 0, which each size allows. Probabilities and scales are 1: kernels refuse a scale of 0.
  static Tensor make(const Tensor& meta) {
    const auto count = static_cast<int64_t>(at::detail::computeStorageNbytes(meta.sizes(), meta.strides(), 1));
    const TensorOptions options = TensorOptions(kCPU).dtype(meta.dtype());
    const Tensor elements = isIntegralType(meta.scalar_type(), /*includeBool=*/true) ? at::zeros({count}, options)
                                                                                     : at::ones({count}, options);
    Tensor made = elements.as_strided(meta.sizes(), meta.strides());
    made._set_conj(meta.is_conj());
    made._set_neg(meta.is_neg());
    return made;
  }
};

template <class T>
c10::List<T> add_list(Scratch& scratch, const c10::List<T>& metas, const c10::List<T>& kernels) {
  c10::List<T> made;
  for (size_t i = 0; i < metas.size(); ++i) {
    const T meta = metas[i], kernel = kernels[i];
    if constexpr (std::is_same_v<T, Tensor>) {
      made.push_back(scratch.add(meta, kernel));
    } else {
      made.push_back(meta ? T(scratch.add(*meta, *kernel)) : T());
    }
  }
  return made;
}

c10::IValue add(Scratch& scratch, const c10::IValue& meta, const c10::IValue& kernel) {
  if (meta.isTensor()) {
    return scratch.add(meta.toTensor(), kernel.toTensor());
  }
  if (meta.isTensorList()) {
    return add_list<Tensor>(scratch, meta.toTensorList(), kernel.toTensorList());
  }
  if (meta.isOptionalTensorList()) {
    return add_list<std::optional<Tensor>>(scratch, meta.toOptionalTensorList(), kernel.toOptionalTensorList());
  }
  return kernel;
}

} // namespace

void compute_shapes(const c10::OperatorHandle& op, QueuedOperands& operands) {
  Scratch scratch;
  torch::jit::Stack stack;
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    stack.push_back(
        is_generator(arguments[i]) ? c10::IValue(at::detail::createCPUGenerator())
                                   : add(scratch, operands.for_meta[i], operands.for_kernel[i]));
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  scratch.resize_metas();
  for (c10::IValue& result : stack) {
    if (result.isTensor() && result.toTensor().defined()) {
      const Tensor& made = result.toTensor();
      result = at::detail::empty_strided_meta(made.sizes(), made.strides(), made.scalar_type());
    }
  }
  operands.for_meta = std::move(stack);
}

} // namespace at::openreg
