#include "simulator/borrowed/queue/ScratchShapes.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "aten/native/Arguments.h"
#include "aten/native/Layouts.h"
#include "simulator/borrowed/Components.h"

namespace at::openreg {
namespace {

// Indices of COO elements that differ, if there are enough places: those of a diagonal, then of the next one.
Tensor spread_coordinates(IntArrayRef sizes, const TensorImpl& like) {
  Tensor made = at::zeros(like.sizes(), kLong);
  auto indices = made.accessor<int64_t, 2>();
  for (int64_t element = 0; element < indices.size(1); ++element) {
    int64_t turn = element;
    for (int64_t i = 0; i < indices.size(0); ++i) {
      const int64_t size = std::max<int64_t>(sizes[i], 1);
      indices[i][element] = (turn + (i > 0 ? indices[0][element] : 0)) % size;
      turn /= size;
    }
  }
  return made;
}

// The same for a compressed tensor: each row has about as many elements as any other.
std::vector<Tensor> spread_rows(const TensorImpl& pointers, const TensorImpl& indices) {
  const int64_t rows = pointers.size(-1) - 1, count = indices.size(-1);
  Tensor begins = at::zeros({rows + 1}, kLong), places = at::zeros({count}, kLong);
  auto* const begin = begins.mutable_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    begin[row + 1] = (row + 1) * count / rows;
    std::iota(places.mutable_data_ptr<int64_t>() + begin[row], places.mutable_data_ptr<int64_t>() + begin[row + 1], 0);
  }
  const auto dtype = typeMetaToScalarType(pointers.dtype());
  return {
      begins.to(dtype).expand(pointers.sizes()).contiguous(), places.to(dtype).expand(indices.sizes()).contiguous()};
}

// The scratch tensors of one call, each with the meta tensor for which it stands.
class Scratch {
 public:
  explicit Scratch(ScratchIndices indices) : indices_(indices) {}

  // The tensor for `meta`. `kernel`: the queued kernel's tensor; a number of the CPU is known, and copied.
  Tensor add(const Tensor& meta, const Tensor& kernel) {
    if (!meta.defined()) {
      return meta;
    }
    if (is_sparse_layout(*kernel.unsafeGetTensorImpl())) {
      return add_sparse(kernel);
    }
    if (!meta.is_meta()) {
      return kernel.clone();
    }
    return scratch_of(meta, [](const Tensor& like) { return make(like); });
  }

  // Gives the meta tensors of the outputs the shapes that the kernel gave to the scratch tensors.
  void resize_metas() const {
    for (const auto& [meta, scratch] : tensors_) {
      if (meta.is_meta() && meta.sizes() != scratch.sizes()) {
        meta.unsafeGetTensorImpl()->set_sizes_and_strides(scratch.sizes(), scratch.strides());
      }
    }
  }

  bool owns(const Tensor& tensor) const {
    return std::any_of(tensors_.begin(), tensors_.end(), [&](const auto& known) {
      return known.second.storage().is_alias_of(tensor.storage());
    });
  }

 private:
  std::vector<std::pair<Tensor, Tensor>> tensors_;
  const ScratchIndices indices_;

  template <class Make>
  Tensor scratch_of(const Tensor& like, const Make& make) {
    for (const auto& [known, scratch] : tensors_) { // one tensor that is passed twice stays one tensor
      if (known.is_same(like)) {
        return scratch;
      }
    }
    tensors_.emplace_back(like, make(like));
    return tensors_.back().second;
  }

  Tensor add_sparse(const Tensor& kernel) {
    std::vector<Tensor> spread; // in the place of each component; undefined: as any other tensor
    std::vector<const TensorImpl*> components;
    for_each_component(*kernel.unsafeGetTensorImpl(), [&](const TensorImpl& each) { components.push_back(&each); });
    if (indices_ == ScratchIndices::Spread) {
      spread = kernel.is_sparse() ? std::vector<Tensor>{spread_coordinates(kernel.sizes(), *components[0])}
                                  : spread_rows(*components[0], *components[1]);
    }
    return map_components(kernel, c10::BackendComponent::CPUBit, [&](const Tensor& component) {
      const size_t place =
          std::find(components.begin(), components.end(), component.unsafeGetTensorImpl()) - components.begin();
      return scratch_of(
          component, [&](const Tensor& like) { return place < spread.size() ? spread[place] : make(like); });
    });
  }

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

ScratchResults compute_on_scratch(
    const c10::OperatorHandle& op, const QueuedOperands& operands, c10::DispatchKey key, ScratchIndices indices) {
  Scratch scratch(indices);
  ScratchResults made;
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    made.results.push_back(
        is_generator(arguments[i]) ? c10::IValue(at::detail::createCPUGenerator())
                                   : add(scratch, operands.for_meta[i], operands.for_kernel[i]));
  }
  op.redispatchBoxed(c10::DispatchKeySet(key), &made.results);
  scratch.resize_metas();
  made.refer = !op.schema().is_mutable();
  for (const c10::IValue& result : made.results) {
    for_each_tensor(result, [&](const Tensor& tensor) {
      for_each_component(*tensor.unsafeGetTensorImpl(), [&](const TensorImpl& part) {
        made.refer = made.refer && tensor.defined() && scratch.owns(new_reference(&part));
      });
    });
  }
  return made;
}

void compute_shapes(const c10::OperatorHandle& op, QueuedOperands& operands) {
  operands.for_meta = compute_on_scratch(op, operands, c10::DispatchKey::CPU, ScratchIndices::Same).results;
  for (c10::IValue& result : operands.for_meta) {
    if (result.isTensor() && result.toTensor().defined()) {
      const Tensor& made = result.toTensor();
      result = at::detail::empty_strided_meta(made.sizes(), made.strides(), made.scalar_type());
    }
  }
}

} // namespace at::openreg
