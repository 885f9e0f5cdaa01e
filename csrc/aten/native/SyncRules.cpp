#include "aten/native/SyncRules.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <cmath>

namespace at::openreg {
namespace {

bool always(const SyncCall&) {
  return true;
}

bool never(const SyncCall&) {
  return false;
}

bool has_elements(const SyncCall& call) {
  return call.operands.front().tensor->numel() > 0;
}

bool is_dense(const SyncCall& call) {
  return call.operands.front().tensor->layout() == kStrided;
}

bool is_index(const Operand& each) {
  return each.argument->type()->kind() == c10::TypeKind::ListType && each.argument->name() == "indices";
}

// CUDA counts the true elements of a mask, and copies a 0-dim value to the device. If a single mask is the index and a
// number on the CPU replaces the elements, CUDA calls masked_fill_(), which does not wait.
bool index_waits(const SyncCall& call) {
  size_t indices = 0, masks = 0;
  for (const Operand& each : call.operands) {
    indices += is_index(each);
    masks += is_index(each) && !each.tensor->is_cpu() && each.is_mask();
  }
  const TensorImpl* values = call.find("values");
  const bool has_number = values && values->is_cpu() && values->numel() == 1;
  const bool fills = indices == 1 && masks == 1 && has_number && !call.has("accumulate");
  return !fills && (masks > 0 || has_number);
}

// CUDA copies an index from the CPU, and waits for the copy. A mask goes through pinned memory, so for a mask it does
// not wait.
bool copies_index(const SyncCall& call) {
  return !call.operands.front().tensor->is_cpu() &&
         std::any_of(call.operands.begin(), call.operands.end(), [](const Operand& each) {
           return each.argument->name() == "indices" && each.tensor->is_cpu() && !each.is_mask();
         });
}

bool copies_scalar(const SyncCall& call) {
  return std::any_of(call.operands.begin(), call.operands.end(), [](const Operand& each) {
    return !each.argument->is_out() && each.tensor->is_cpu() && each.tensor->dim() == 0;
  });
}

// Many test elements: isin() first makes both operands unique. The condition is that of isin_Tensor_Tensor_out().
bool isin_sorts(const SyncCall& call) {
  const auto elements = static_cast<double>(call.numel("elements"));
  return !call.has("assume_unique") && elements > 0 &&
         call.numel("test_elements") >= static_cast<int64_t>(10.0f * std::pow(elements, 0.145));
}

// LITERALINCLUDE START: SYNC RULES
constexpr SyncRule kSyncRules[] = {
    {.operators = "index.Tensor index.Tensor_out",
     .source = "native/IndexingUtils.h: expandTensors() calls nonzero() for a mask, and moves an index to the device",
     .waits = &index_waits,
     .copies = &copies_index},
    {.operators = "_index_put_impl_",
     .source = "native/TensorAdvancedIndexingUtils.h: canDispatchToMaskedFill(); else as index.Tensor",
     .waits = &index_waits,
     .copies = &copies_index},
    {.operators = "where.self where.self_out",
     .source = "native/TensorCompare.cpp: where_self_out() moves 0-dim tensors to the device",
     .waits = &never,
     .copies = &copies_scalar},
    {.operators = "masked_fill.Tensor masked_fill.Tensor_out masked_fill_.Tensor index_fill.int_Tensor "
                  "index_fill.int_Tensor_out index_fill_.int_Tensor",
     .source = "native/cuda/Indexing.cu: masked_fill__cuda() calls item() of the value, and so does index_fill_()",
     .waits = [](const SyncCall& call) { return call.find("value") != nullptr && !call.find("value")->is_cpu(); }},
    {.operators = "bernoulli_.Tensor",
     .source = "native/cuda/DistributionTemplates.h: bernoulli_kernel() moves p to the device",
     .waits = [](const SyncCall& call) { return call.find("p") != nullptr && call.find("p")->is_cpu(); }},
    {.operators = "histc histc.out",
     .source = "native/cuda/SummaryOps.cu: _histc_cuda_template() reads the bounds of the data if none are given",
     .waits = [](const SyncCall& call) { return !call.has("min") && !call.has("max") && call.numel("self") > 0; }},
    {.operators = "isin.Tensor_Tensor isin.Tensor_Tensor_out",
     .source = "native/TensorCompare.cpp: isin_sorting() calls unique()",
     .waits = &isin_sorts},
    {.operators = "_to_sparse _to_sparse.sparse_dim _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr",
     .source = "native/TensorConversions.cpp: dense_to_sparse() counts the elements that are not 0",
     .waits = &is_dense},
    {.operators = "normal.Tensor_Tensor normal.Tensor_Tensor_out normal.float_Tensor normal.float_Tensor_out",
     .source = "native/DistributionTemplates.h: normal_out_impl() checks that no deviation is negative",
     .waits = &always},
    {.operators =
         "_linalg_eigh _linalg_eigh.eigenvalues _linalg_eigvals _linalg_svd _linalg_svd.U cholesky cholesky.out "
         "linalg_eig linalg_eig.out linalg_eigvals.out",
     .source = "native/BatchLinearAlgebra.cpp: _linalg_check_errors() reads whether the decomposition converged",
     .waits = &always,
     .waits_last = &always},
    {.operators = "linalg_matrix_exp linalg_matrix_exp.out",
     .source = "native/LinearAlgebra.cpp: linalg_matrix_exp() chooses the approximation by the norm of the matrix",
     .waits = &always},
    {.operators = "unique_dim unique_dim_consecutive",
     .source = "native/cuda/Unique.cu: in unique_dim_cuda_template() Thrust waits, without a warning",
     .waits = &always,
     .warns = &never},
    {.operators = "unique_consecutive",
     .source = "native/cuda/Unique.cu: with a dimension, as unique_dim",
     .waits = &always,
     .warns = [](const SyncCall& call) { return !call.has("dim"); },
     .waits_last = [](const SyncCall& call) { return !call.has("dim"); }},
    {.operators = "_unique2",
     .source = "native/cuda/UniqueCub.cu: nothing to read if there are no elements; the number of results is read last",
     .waits = &always,
     .warns = &has_elements,
     .waits_last = &always},
    {.operators = "bincount",
     .source = "native/cuda/SummaryOps.cu: nothing to read if there are no elements; the largest one is read first",
     .waits = &always,
     .warns = &has_elements},
    {.operators = "repeat_interleave.Tensor",
     .source = "native/Repeat.h: repeat_interleave_common() reads the number of results if it is not given",
     .waits = [](const SyncCall& call) { return !call.has("output_size"); },
     .warns = [](const SyncCall& call) { return !call.has("output_size") && has_elements(call); }},
    {.operators = "argument check_errors",
     .source = "native/BatchLinearAlgebra.cpp: linalg_*_ex() read `info` if it shall be checked",
     .waits = [](const SyncCall& call) { return call.has("check_errors"); },
     .waits_last = &always},
    {.operators = "argument sorter",
     .source = "native/BucketizationUtils.h: searchsorted_pre_check() reads the bounds of the sorter",
     .waits = [](const SyncCall& call) { return call.numel("sorter") > 0; }},
};

// For operators without a row.
constexpr SyncRule kDataDependentOutput{
    .operators = "",
    .source = "native_functions.yaml: the tag says that a result is no tensor, and depends on the data",
    .waits = &always,
    .waits_last = &always};
constexpr SyncRule kDynamicOutputShape{
    .operators = "",
    .source =
        "native_functions.yaml: the tag says that the shape of a result depends on the data. native/cuda/Nonzero.cu: "
        "the number of results is read first",
    .waits = &always};
// LITERALINCLUDE END: SYNC RULES

bool has_name(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == name) {
      return true;
    }
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

bool is_for(const SyncRule& rule, const c10::FunctionSchema& schema, std::string_view name) {
  constexpr std::string_view kArgument = "argument ";
  return rule.operators.starts_with(kArgument)
             ? schema.argumentIndexWithName(std::string(rule.operators.substr(kArgument.size()))).has_value()
             : has_name(rule.operators, name);
}

} // namespace

const TensorImpl* SyncCall::find(std::string_view argument) const {
  const auto* found = std::find_if(
      operands.begin(), operands.end(), [&](const Operand& each) { return each.argument->name() == argument; });
  return found == operands.end() ? nullptr : found->tensor;
}

int64_t SyncCall::numel(std::string_view argument) const {
  const TensorImpl* const tensor = find(argument);
  return tensor ? tensor->numel() : 0;
}

bool SyncCall::has(std::string_view flag) const {
  return std::any_of(flags.begin(), flags.end(), [&](const c10::Argument* each) { return each->name() == flag; });
}

bool SyncRule::waits_always() const {
  return waits == &always;
}

const SyncRule* sync_rule_of(const c10::FunctionSchema& schema, std::string_view name) {
  constexpr std::string_view kNamespace = "aten::";
  if (name.starts_with(kNamespace)) {
    name.remove_prefix(kNamespace.size());
    const auto* const row = std::find_if(
        std::begin(kSyncRules), std::end(kSyncRules), [&](const SyncRule& each) { return is_for(each, schema, name); });
    if (row != std::end(kSyncRules)) {
      return row;
    }
  }
  const auto op = c10::Dispatcher::singleton().findOp(schema.operator_name());
  if (op && op->hasTag(at::Tag::dynamic_output_shape)) {
    return &kDynamicOutputShape;
  }
  return op && op->hasTag(at::Tag::data_dependent_output) ? &kDataDependentOutput : nullptr;
}

} // namespace at::openreg
