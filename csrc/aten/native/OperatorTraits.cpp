#include "aten/native/OperatorTraits.h"

#include <ATen/core/dispatch/Dispatcher.h>
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

// The results are made of the tensors `indices` and `values` (aten/src/ATen/native/sparse/SparseTensor.cpp).
constexpr std::string_view kKeepArguments[] = {
    "aten::_sparse_coo_tensor_with_dims_and_tensors",
    "aten::_sparse_coo_tensor_with_dims_and_tensors.out",
};

template <size_t size>
bool contains(const std::string_view (&names)[size], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::string full_name(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

bool only_writes(const c10::FunctionSchema& schema) {
  const auto& results = schema.returns();
  return schema.is_mutable() && std::all_of(results.begin(), results.end(), [](const c10::Argument& result) {
           return result.alias_info() && result.alias_info()->isWrite();
         });
}

c10::openreg::ForkSafeMutex traits_mutex; // guards known_traits()

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
    const std::lock_guard lock(traits_mutex);
    const std::string name = full_name(schema);
    OperatorTraits& made = known_traits()[name];
    if (made.name.empty()) {
      made.rule = device_rule_of(schema, name);
      made.sync = sync_rule_of(schema, name);
      made.builtin = schema.name().starts_with("aten::");
      made.only_writes = only_writes(schema);
      made.keeps_arguments = contains(kKeepArguments, name);
      made.keeps_statistics = contains(kBatchNorms, name);
      made.name = name; // last: it says that the traits are complete
    }
    traits = &made;
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

bool is_only_referenced(const OperatorTraits& traits, const c10::Argument& argument) {
  const auto* alias = argument.alias_info();
  return traits.builtin && (alias ? !alias->isWrite() : traits.keeps_arguments);
}

void for_each_traits(const std::function<void(const OperatorTraits&)>& fn) {
  const std::lock_guard lock(traits_mutex);
  for (const auto& [name, traits] : known_traits()) {
    fn(traits);
  }
}

} // namespace at::openreg
