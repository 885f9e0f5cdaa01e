#include "simulator/borrowed/queue/SparseCapture.h"

#include <ATen/EmptyTensor.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/result_type.h>

#include <algorithm>
#include <vector>

#include "aten/native/Arguments.h"
#include "runtime/OpenRegGraphsC10Utils.h"
#include "runtime/OpenRegIdentity.h"
#include "simulator/borrowed/Components.h"
#include "simulator/borrowed/KernelScope.h"
#include "simulator/borrowed/queue/Operands.h"
#include "simulator/borrowed/queue/QueuedKernel.h"
#include "simulator/borrowed/queue/ScratchShapes.h"

namespace at::openreg {
namespace {

const SparseTensorImpl& coo(const Tensor& tensor) {
  return *static_cast<const SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

using SparseOperands = ArrayRef<Tensor>; // the sparse ones among the arguments

bool always(SparseOperands) {
  return true;
}

bool several(SparseOperands operands) {
  return operands.size() > 1;
}

bool several_compressed(SparseOperands operands) {
  return std::count_if(operands.begin(), operands.end(), [](const Tensor& each) { return !each.is_sparse(); }) > 1;
}

// CUDA does not count a single element.
bool uncoalesced(SparseOperands operands) {
  return std::any_of(operands.begin(), operands.end(), [](const Tensor& each) {
    return each.is_sparse() && !coo(each).coalesced() && coo(each).nnz() > 1;
  });
}

// Operators in which CUDA waits, although the sizes of the results do not say so. PyTorch does not warn of such a wait,
// because Thrust or cuSPARSE makes it.
// LITERALINCLUDE START: SPARSE WAITS
struct SparseWait {
  std::string_view operators; // without "aten::" and without an overload
  const char* source;         // in aten/src/ATen/native/sparse/cuda
  bool (*waits)(SparseOperands operands);
};

constexpr SparseWait kSparseWaits[] = {
    {"_coalesce", "SparseCUDATensor.cu: Thrust counts the places that differ", &uncoalesced},
    {"addmm addmm_ addmv mm mv smm", "SparseCUDATensorMath.cu: the matrix is coalesced first", &uncoalesced},
    {"add", "SparseBlasImpl.cpp: add_out_sparse_csr() asks cuSPARSE for the number of results", &several_compressed},
    {"addmm addmm_ mm", "SparseBlasImpl.cpp: spgemm() asks cuSPARSE for the number of results", &several},
    {"_sparse_sparse_matmul", "SparseMatMul.cu: asks cuSPARSE for the number of results", &always},
    {"hspmm", "SparseCUDATensorMath.cu: thrust::sequence()", &always},
    {"bmm", "SparseCUDATensorMath.cu: copies to the host where each matrix ends", &always},
    {"_sparse_softmax _sparse_log_softmax _sparse_softmax_backward_data _sparse_log_softmax_backward_data",
     "SoftMax.cu: Thrust counts the rows",
     &always},
    {"_sparse_sum_backward", "SparseCUDATensorMath.cu: thrust::lower_bound()", &several},
};
// LITERALINCLUDE END: SPARSE WAITS

bool has_word(std::string_view words, std::string_view word) {
  for (size_t at = words.find(word); at != std::string_view::npos; at = words.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) {
      return true;
    }
  }
  return false;
}

bool waits(std::string_view name, SparseOperands operands) {
  constexpr std::string_view kNamespace = "aten::";
  name.remove_prefix(kNamespace.size());
  return std::any_of(std::begin(kSparseWaits), std::end(kSparseWaits), [&](const SparseWait& each) {
    return has_word(each.operators, name) && each.waits(operands);
  });
}

void refuse_wait(const c10::Stream& stream) {
  OPENREG_CHECK(orStreamSynchronize(c10::openreg::OpenRegStream(stream).stream()));
}

bool is_tensor(const c10::Argument& result) {
  return result.type()->kind() == c10::TypeKind::TensorType;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

// Calls that ask for a size or a flag, such as _nnz(), or that set one.
bool asks_only(const c10::FunctionSchema& schema) {
  const auto& results = schema.returns();
  return schema.name() == "aten::_coalesced_" || schema.name() == "aten::resize_as_sparse_" ||
         (!schema.is_mutable() && std::none_of(results.begin(), results.end(), &is_tensor));
}

// The sum on CUDA (SparseCUDATensorMath.cu: add_out_sparse_cuda()): all elements of both operands, so that nobody needs
// to count the places. The kernel of the CPU coalesces the sum if it can.
Tensor add(const Tensor& self, const Tensor& other, const Scalar& alpha, const c10::Stream& stream) {
  TORCH_CHECK(
      self.sizes() == other.sizes(),
      "add: expected 'self' and 'other' to have same size, but ",
      self.sizes(),
      " != ",
      other.sizes());
  const auto &first = coo(self), &second = coo(other);
  if (first.nnz() + second.nnz() > self.numel()) {
    refuse_wait(stream); // CUDA coalesces such a sum
  }
  const ScalarType dtype = at::result_type(self, other);
  Tensor added = second.values().to(dtype);
  if (!alpha.equal(1)) {
    added = added.mul(alpha);
  }
  return at::_sparse_coo_tensor_with_dims_and_tensors(
      first.sparse_dim(),
      first.dense_dim(),
      self.sizes(),
      at::cat({first.indices(), second.indices()}, 1),
      at::cat({first.values().to(dtype), added}),
      self.options().dtype(dtype));
}

bool adds_sparse(const c10::FunctionSchema& schema, const c10::IValue* values) {
  if (schema.name() != "aten::add" || schema.overload_name() != "Tensor") {
    return false;
  }
  const Tensor &self = values[0].toTensor(), &other = values[1].toTensor();
  return self.is_sparse() && other.is_sparse() && coo(self).sparse_dim() == coo(other).sparse_dim();
}

std::vector<std::vector<int64_t>> sizes_of(const torch::jit::Stack& results) {
  std::vector<std::vector<int64_t>> sizes;
  for (const c10::IValue& result : results) {
    for_each_component(
        *result.toTensor().unsafeGetTensorImpl(), [&](const TensorImpl& part) { sizes.push_back(part.sizes().vec()); });
  }
  return sizes;
}

// The device tensor for a result of the kernel on scratch tensors. Returns no tensor if the device has no such tensor.
Tensor make_result(const Tensor& scratch, c10::DeviceIndex device, QueuedKernel& kernel) {
  std::vector<std::pair<const TensorImpl*, Tensor>> made;
  bool is_possible = true;
  for_each_component(*scratch.unsafeGetTensorImpl(), [&](const TensorImpl& part) {
    is_possible = is_possible && !part.is_conj() && !part.is_neg() && part.is_non_overlapping_and_dense();
    if (is_possible) {
      Tensor meta = at::detail::empty_strided_meta(part.sizes(), part.strides(), typeMetaToScalarType(part.dtype()));
      made.emplace_back(&part, make_result(std::move(meta), device, kernel.add_result()));
    }
  });
  if (!is_possible || !has_components(*scratch.unsafeGetTensorImpl())) {
    return is_possible ? made.front().second : Tensor();
  }
  return map_components(scratch, identity.backend, [&](const Tensor& component) {
    return std::find_if(
               made.begin(),
               made.end(),
               [&](const auto& each) { return each.first == component.unsafeGetTensorImpl(); })
        ->second;
  });
}

// Replaces the results of the kernel on scratch tensors by those of the call. Returns false if the device has no such
// tensor.
bool make_results(
    const c10::FunctionSchema& schema,
    const c10::IValue* values,
    c10::DeviceIndex device,
    torch::jit::Stack& results,
    QueuedKernel& kernel) {
  size_t written = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    if (is_written(schema.returns()[i])) {
      while (!is_written(schema.arguments()[written])) {
        ++written;
      }
      results[i] = values[written++];
      continue;
    }
    const Tensor scratch = results[i].toTensor();
    if (!scratch.defined()) { // a gradient that the caller did not ask for
      kernel.add_result();
      continue;
    }
    Tensor result = make_result(scratch, device, kernel);
    if (!result.defined()) {
      return false;
    }
    results[i] = std::move(result);
  }
  return true;
}

// The operands, and the results on scratch tensors. Returns Queued if the kernel can be launched with them.
Way prepare(
    const c10::OperatorHandle& op,
    c10::DispatchKey key,
    const c10::IValue* values,
    const c10::Stream& stream,
    QueuedOperands& operands,
    torch::jit::Stack& results) {
  const auto& arguments = op.schema().arguments();
  operands.takes_sparse = true;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!operands.add(values[i], arguments[i])) {
      return Way::OnThread;
    }
  }
  operands.check_overlap();
  const ScratchResults same = compute_on_scratch(op, operands, key, ScratchIndices::Same);
  if (same.refer) {
    return Way::WithoutKernel;
  }
  results = compute_on_scratch(op, operands, key, ScratchIndices::Spread).results;
  if (sizes_of(results) != sizes_of(same.results)) {
    refuse_wait(stream);
  }
  operands.resize_outputs(/*only_empty=*/false);
  return operands.can_write() ? Way::Queued : Way::OnThread;
}

} // namespace

Way capture_sparse(
    const c10::OperatorHandle& op,
    c10::DispatchKey key,
    c10::DeviceIndex device,
    torch::jit::Stack& stack,
    CallKey call_key) {
  if (device < 0) {
    return Way::OnThread;
  }
  const c10::Stream stream = c10::openreg::getCurrentOpenRegStream(device);
  const c10::FunctionSchema& schema = op.schema();
  if (c10::openreg::capture_of(stream) == 0) {
    return Way::OnThread;
  }
  if (asks_only(schema)) {
    return Way::WithoutKernel;
  }
  if (!std::all_of(schema.returns().begin(), schema.returns().end(), &is_tensor)) {
    return Way::OnThread;
  }
  const size_t count = schema.arguments().size();
  const c10::IValue* const values = stack.data() + stack.size() - count;
  std::vector<Tensor> sparse;
  std::for_each(values, values + count, [&](const c10::IValue& value) {
    for_each_tensor(value, [&](const Tensor& tensor) {
      if (tensor.defined() && is_sparse_layout(*tensor.unsafeGetTensorImpl())) {
        sparse.push_back(tensor);
      }
    });
  });
  if (waits(schema.name(), sparse)) {
    refuse_wait(stream);
  }
  const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
  torch::jit::Stack results;
  if (adds_sparse(schema, values)) {
    results.emplace_back(add(values[0].toTensor(), values[1].toTensor(), values[2].toScalar(), stream));
  } else {
    QueuedOperands operands(count);
    if (const auto call = prepare(op, key, values, stream, operands, results); call != Way::Queued) {
      return call;
    }
    auto kernel = std::make_unique<QueuedKernel>(op, std::move(operands.for_kernel), call_key, nullptr, key);
    if (!make_results(schema, values, device, results, *kernel)) {
      return Way::OnThread;
    }
    launch(stream, kernel);
  }
  torch::jit::drop(stack, count);
  std::move(results.begin(), results.end(), std::back_inserter(stack));
  return Way::Queued;
}

} // namespace at::openreg
