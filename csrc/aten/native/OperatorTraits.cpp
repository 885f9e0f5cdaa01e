#include "aten/native/OperatorTraits.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "runtime/OpenRegMutex.h"

namespace at::openreg {
namespace {

// The operators that keep running statistics (aten/src/ATen/native/Normalization.cpp).
constexpr std::string_view kBatchNorms[] = {
    "aten::_native_batch_norm_legit",
    "aten::_native_batch_norm_legit.out",
    "aten::batch_norm_update_stats",
    "aten::native_batch_norm",
    "aten::native_batch_norm.out",
};

// CUDA's kernels of these operators read values on the host, and PyTorch's tags do not say so: how many elements are
// not zero (dense_to_sparse() in TensorConversions.cpp), whether a deviation is negative (DistributionTemplates.h),
// whether a decomposition converged (_linalg_check_errors() in BatchLinearAlgebra.cpp), and which norm a matrix has, by
// which CUDA chooses the approximation of its exponential (linalg_matrix_exp() in LinearAlgebra.cpp).
constexpr std::string_view kReadValues[] = {
    "aten::_linalg_eigh",          "aten::_linalg_eigh.eigenvalues",
    "aten::_linalg_eigvals",       "aten::_linalg_svd",
    "aten::_linalg_svd.U",         "aten::_to_sparse",
    "aten::_to_sparse.sparse_dim", "aten::_to_sparse_bsc",
    "aten::_to_sparse_bsr",        "aten::_to_sparse_csc",
    "aten::_to_sparse_csr",        "aten::cholesky",
    "aten::cholesky.out",          "aten::linalg_eig",
    "aten::linalg_eig.out",        "aten::linalg_eigvals.out",
    "aten::linalg_matrix_exp",     "aten::linalg_matrix_exp.out",
    "aten::normal.Tensor_Tensor",  "aten::normal.Tensor_Tensor_out",
    "aten::normal.float_Tensor",   "aten::normal.float_Tensor_out",
};

// CUDA's kernels of these operators read values in some calls only. So does every operator with an argument
// `check_errors` or `sorter`. KernelScope::reads_in_this_call() has the conditions.
constexpr std::string_view kSometimesReadValues[] = {
    "aten::bernoulli_.Tensor",
    "aten::histc",
    "aten::histc.out",
    "aten::isin.Tensor_Tensor",
    "aten::isin.Tensor_Tensor_out",
};

template <size_t size>
bool contains(const std::string_view (&names)[size], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::string full_name(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

// Whether the host reads values: the list above has the operator, or PyTorch's tags say that the shape of a result
// depends on the data, or that a result is no tensor and depends on the data. For indexing the callers do not rely on
// the answer: the tag makes it true, but the host reads values only if an index is a mask, and only the call shows
// whether an index is a mask.
bool reads_data(const c10::FunctionSchema& schema, std::string_view name) {
  const auto op = c10::Dispatcher::singleton().findOp(schema.operator_name());
  return contains(kReadValues, name) ||
         (op && (op->hasTag(at::Tag::data_dependent_output) || op->hasTag(at::Tag::dynamic_output_shape)));
}

bool sometimes_reads_data(const c10::FunctionSchema& schema, std::string_view name) {
  return contains(kSometimesReadValues, name) || schema.argumentIndexWithName("check_errors") ||
         schema.argumentIndexWithName("sorter");
}

bool only_writes(const c10::FunctionSchema& schema) {
  const auto& results = schema.returns();
  return schema.is_mutable() && std::all_of(results.begin(), results.end(), [](const c10::Argument& result) {
           return result.alias_info() && result.alias_info()->isWrite();
         });
}

c10::openreg::ForkSafeMutex mutex; // guards known_traits()

std::unordered_map<std::string, OperatorTraits>& known_traits() {
  static auto* all =
      new std::unordered_map<std::string, OperatorTraits>; // a thread of autograd may outlive static objects
  return *all;
}

} // namespace

const OperatorTraits& traits_of(const c10::FunctionSchema& schema) {
  thread_local ska::flat_hash_map<const c10::FunctionSchema*, const OperatorTraits*> seen;
  const OperatorTraits*& traits = seen[&schema];
  // A custom operator may be removed, and the schema of another operator may then get the same address.
  if (C10_UNLIKELY(!traits || (!traits->builtin && traits->name != full_name(schema)))) {
    const std::lock_guard lock(mutex);
    const std::string name = full_name(schema);
    const bool builtin = schema.name().starts_with("aten::");
    traits = &known_traits()
                  .try_emplace(
                      name,
                      name,
                      device_rule_of(schema, name),
                      builtin,
                      reads_data(schema, name),
                      only_writes(schema),
                      contains(kBatchNorms, name),
                      builtin && sometimes_reads_data(schema, name))
                  .first->second;
  }
  return *traits;
}

bool is_written(const OperatorTraits& traits, const c10::Argument& argument, bool training) {
  if (traits.keeps_statistics && argument.name().starts_with("running_")) {
    return training;
  }
  const auto* alias = argument.alias_info();
  return alias && alias->isWrite();
}

void for_each_traits(const std::function<void(const OperatorTraits&)>& fn) {
  const std::lock_guard lock(mutex);
  for (const auto& [name, traits] : known_traits()) {
    fn(traits);
  }
}

} // namespace at::openreg
