#include "DeviceRules.h"

#include <ATen/core/op_registration/adaption.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace at::openreg {
namespace {

#include <OperatorPolicy.inc>

// What PyTorch's generated wrapper checks, outputs first: every tensor on one device.
void one_device(const DevicePolicy& policy, ArrayRef<SeenTensor> seen, Device) {
  std::optional<Device> common;
  for (const bool outputs : {true, false}) {
    for (const SeenTensor& each : seen) {
      if (each.argument->is_out() == outputs) {
        c10::impl::check_and_update_common_device(
            common,
            Tensor(c10::intrusive_ptr<TensorImpl>::reclaim_copy(each.tensor)),
            policy.method.c_str(),
            each.argument->name().c_str());
      }
    }
  }
}

bool is_scalar_input(const SeenTensor& each) {
  const auto* alias = each.argument->alias_info();
  return each.tensor->device().is_cpu() && each.tensor->dim() == 0 && !(alias && alias->isWrite());
}

void check_scalars(ArrayRef<SeenTensor> seen, Device common) {
  for (const SeenTensor& each : seen) {
    const Device device = each.tensor->device();
    TORCH_CHECK(
        device == common || is_scalar_input(each),
        "Expected all tensors to be on the same device, but found at least two devices, ",
        common,
        " and ",
        device,
        "!");
  }
}

// TensorIterator's rule: one CPU scalar, and not as an output. Lists are those of the foreach operators, whose slow path
// goes through their tensors one by one.
void one_scalar(const DevicePolicy&, ArrayRef<SeenTensor> seen, Device common) {
  check_scalars(seen, common);
  const auto scalars = std::count_if(seen.begin(), seen.end(), [](const SeenTensor& each) {
    return is_scalar_input(each) && each.argument->type()->kind() == c10::TypeKind::TensorType;
  });
  TORCH_CHECK(scalars <= 1, "Trying to pass too many CPU scalars to non-CPU kernel!");
}

// where() moves its CPU scalars to the device (aten/src/ATen/native/TensorCompare.cpp).
void any_scalars(const DevicePolicy&, ArrayRef<SeenTensor> seen, Device common) {
  check_scalars(seen, common);
}

// x[index]: CPU indices are moved to the device (aten/src/ATen/native/IndexingUtils.h).
void cpu_indices(const DevicePolicy& policy, ArrayRef<SeenTensor> seen, Device common) {
  const Device indexed = seen.front().tensor->device();
  c10::SmallVector<SeenTensor, 6> others;
  for (const SeenTensor& each : seen) {
    if (each.argument->name() != "indices") {
      others.push_back(each);
      continue;
    }
    const Device device = each.tensor->device();
    TORCH_CHECK(
        device.is_cpu() || device == indexed,
        "indices should be either on cpu or on the same device as the indexed tensor (",
        indexed,
        ")");
  }
  one_scalar(policy, others, common);
}

// masked_fill_ compares self and mask itself (aten/src/ATen/native/cuda/Indexing.cu).
void same_mask(const DevicePolicy& policy, ArrayRef<SeenTensor> seen, Device common) {
  const Device self = seen[0].tensor->device();
  const Device mask = seen[1].tensor->device();
  TORCH_CHECK(
      self == mask, "expected self and mask to be on the same device, but got mask on ", mask, " and self on ", self);
  one_scalar(policy, seen, common);
}

struct OwnRule {
  std::string_view name;
  DeviceRule rule;
};

// Operators marked NoCheck in native_functions.yaml whose CUDA kernel has a rule of its own. Sorted.
constexpr OwnRule kOwnRules[] = {
    {"aten::_index_put_impl_", cpu_indices},
    {"aten::_unsafe_index.Tensor", cpu_indices},
    {"aten::_unsafe_index_put", cpu_indices},
    {"aten::index.Tensor", cpu_indices},
    {"aten::index.Tensor_out", cpu_indices},
    {"aten::index_put", cpu_indices},
    {"aten::index_put_", cpu_indices},
    {"aten::masked_fill_.Scalar", same_mask},
    {"aten::masked_fill_.Tensor", same_mask},
    {"aten::where.self", any_scalars},
    {"aten::where.self_out", any_scalars},
};

DeviceRule rule_of(const std::string& name) {
  for (const OwnRule& own : kOwnRules) {
    if (own.name == name) {
      return own.rule;
    }
  }
  const bool unchecked =
      std::binary_search(std::begin(kUncheckedOperators), std::end(kUncheckedOperators), std::string_view(name));
  return unchecked ? one_scalar : one_device;
}

std::string full_name(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

std::string method_name(const c10::FunctionSchema& schema) {
  // Named as PyTorch's generator names CUDA's wrapper: wrapper_CUDA_mm, wrapper_CUDA_add_Tensor.
  const std::string& overload = schema.overload_name();
  return "wrapper_PrivateUse1_" + (overload.empty() ? "" : overload + "_") +
         schema.name().substr(schema.name().find("::") + 2);
}

struct Policies {
  std::mutex mutex;
  std::unordered_map<std::string, DevicePolicy> by_name;
};

Policies& policies() {
  static auto* all = new Policies; // a thread of autograd may outlive static destruction
  return *all;
}

} // namespace

const DevicePolicy& policy_of(const c10::FunctionSchema& schema) {
  thread_local ska::flat_hash_map<const c10::FunctionSchema*, const DevicePolicy*> seen;
  const DevicePolicy*& policy = seen[&schema];
  // A custom operator may be redefined, and another one's schema then have its address.
  if (C10_UNLIKELY(!policy || (!policy->builtin && policy->name != full_name(schema)))) {
    Policies& all = policies();
    const std::lock_guard lock(all.mutex);
    const std::string name = full_name(schema);
    const bool builtin = schema.name().starts_with("aten::");
    policy = &all.by_name.try_emplace(name, name, method_name(schema), rule_of(name), builtin).first->second;
  }
  return *policy;
}

void for_each_policy(const std::function<void(const DevicePolicy&)>& fn) {
  Policies& all = policies();
  const std::lock_guard lock(all.mutex);
  for (const auto& [name, policy] : all.by_name) {
    fn(policy);
  }
}

} // namespace at::openreg
