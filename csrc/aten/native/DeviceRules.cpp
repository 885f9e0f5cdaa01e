#include "DeviceRules.h"

#include "../../runtime/OpenRegMutex.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/op_registration/adaption.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace at::openreg {
namespace {

#include <OperatorPolicy.inc>

using Operands = c10::SmallVector<SeenTensor, 6>;

bool is_written(const SeenTensor& each) {
  const auto* alias = each.argument->alias_info();
  return alias != nullptr && alias->isWrite();
}

// (aten/src/ATen/native/Normalization.cpp)
constexpr std::string_view kBatchNorms[] = {
    "aten::_native_batch_norm_legit",
    "aten::_native_batch_norm_legit.out",
    "aten::batch_norm_update_stats",
    "aten::native_batch_norm",
    "aten::native_batch_norm.out",
};

// As TensorIterator has them, outputs first; without the argument called `except`.
Operands operands(ArrayRef<SeenTensor> seen, const std::string& except = "") {
  Operands result;
  for (const bool outputs : {true, false}) {
    for (const SeenTensor& each : seen) {
      if (is_written(each) == outputs && each.argument->name() != except) {
        result.push_back(each);
      }
    }
  }
  return result;
}

// The check of TensorIterator (aten/src/ATen/TensorIterator.cpp, compute_types). `scalars`: of how many CPU scalars among
// the inputs it lets a kernel have, if of any.
void check_iterator(ArrayRef<SeenTensor> operands, std::optional<int> scalars) {
  const auto on_device = [](const SeenTensor& each) { return !each.tensor->device().is_cpu(); };
  const auto* first = std::find_if(operands.begin(), operands.end(), on_device);
  if (first == operands.end()) {
    return;
  }
  const Device common = first->tensor->device();
  for (const SeenTensor& each : operands) {
    const Device device = each.tensor->device();
    if (scalars && device.is_cpu() && each.tensor->dim() == 0 && !is_written(each)) {
      TORCH_CHECK(*scalars > 0, "Trying to pass too many CPU scalars to non-CPU kernel!");
      --*scalars;
      continue;
    }
    TORCH_CHECK(
        device == common,
        "Expected all tensors to be on the same device, but found at least two devices, ",
        common,
        " and ",
        device,
        "!");
  }
}

// ---- The rules, named in device_rules.yaml, which says where CUDA's source has them

// What PyTorch's generated wrapper checks, outputs first: every tensor on one device.
void one_device(const DevicePolicy& policy, ArrayRef<SeenTensor> seen) {
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

void any(const DevicePolicy&, ArrayRef<SeenTensor>) {}

void no_scalar(const DevicePolicy& policy, ArrayRef<SeenTensor> seen) {
  check_iterator(operands(seen, policy.argument), std::nullopt);
}

// The argument is moved to the device of the others.
void moved_argument(const DevicePolicy& policy, ArrayRef<SeenTensor> seen) {
  const Operands rest = operands(seen, policy.argument);
  check_iterator(rest.front().tensor->device().is_cpu() ? operands(seen) : rest, std::nullopt);
}

void one_scalar(const DevicePolicy&, ArrayRef<SeenTensor> seen) {
  check_iterator(operands(seen), 1);
}

void scalar_tensor2(const DevicePolicy&, ArrayRef<SeenTensor> seen) {
  check_iterator(operands(seen), 1);
  for (const SeenTensor& each : seen) {
    if (is_written(each) || !each.tensor->device().is_cpu()) {
      continue;
    }
    const std::string& name = each.argument->name();
    TORCH_CHECK(
        name != "self",
        "CPU Scalar support for self argument is not supported when calling addcmul on openreg tensors.");
    TORCH_CHECK(
        name != "tensor1",
        "CPU Scalar support for tensor1 argument is not supported when calling addcmul on openreg tensors. However, "
        "CPU "
        "Scalar support for tensor2 is supported, please swap your tensor1 and tensor2 terms.");
  }
}

void no_further_scalar(const DevicePolicy&, ArrayRef<SeenTensor> seen) {
  check_iterator(operands(seen), 0);
}

// A TensorIterator of all but the weight, then one of its result and the weight.
void scalar_weight(const DevicePolicy& policy, ArrayRef<SeenTensor> seen) {
  const Operands weighted = operands(seen, policy.argument);
  check_iterator(weighted, std::nullopt);
  for (const SeenTensor& each : seen) {
    if (each.argument->name() == policy.argument) {
      check_iterator({weighted.front(), each}, 1);
    }
  }
}

// Inputs without dimensions are moved to the device of the first input that is on one.
void moved_scalars(const DevicePolicy&, ArrayRef<SeenTensor> seen) {
  std::optional<Device> target;
  Operands rest = operands(seen);
  for (const SeenTensor& each : rest) {
    if (!target && !is_written(each) && !each.tensor->device().is_cpu()) {
      target = each.tensor->device();
    }
  }
  const auto moved = [&](const SeenTensor& each) {
    return target && !is_written(each) && each.tensor->dim() == 0 && each.tensor->device() != *target;
  };
  rest.erase(std::remove_if(rest.begin(), rest.end(), moved), rest.end());
  check_iterator(rest, std::nullopt);
}

// x[indices]: those on the CPU are moved to x's device, and so is the argument without dimensions that is put there.
void indices(const DevicePolicy& policy, ArrayRef<SeenTensor> seen) {
  const Device indexed = seen.front().tensor->device();
  Operands rest;
  for (const SeenTensor& each : operands(seen)) {
    if (each.argument->name() == "indices") {
      TORCH_CHECK(
          each.tensor->device().is_cpu() || each.tensor->device() == indexed,
          "indices should be either on cpu or on the same device as the indexed tensor (",
          indexed,
          ")");
    } else if (each.argument->name() != policy.argument || each.tensor->dim() > 0) {
      rest.push_back(each);
    }
  }
  check_iterator(rest, std::nullopt);
}

void mask(const DevicePolicy& policy, ArrayRef<SeenTensor> seen) {
  const Device self = seen[0].tensor->device();
  const Device mask = seen[1].tensor->device();
  TORCH_CHECK(policy.argument.empty() || !self.is_cpu(), "masked_fill_: Expected inputs to be on same device");
  TORCH_CHECK(
      self == mask, "expected self and mask to be on the same device, but got mask on ", mask, " and self on ", self);
}

void out_like_self(const DevicePolicy&, ArrayRef<SeenTensor> seen) {
  const Device self = seen.front().tensor->device();
  for (const SeenTensor& each : seen.slice(1)) {
    TORCH_CHECK(
        each.tensor->device() == self,
        "Expected out tensor to have device ",
        self,
        ", but got ",
        each.tensor->device(),
        " instead");
  }
}

void same_out(const DevicePolicy&, ArrayRef<SeenTensor> seen) {
  const TensorImpl& self = *seen[0].tensor;
  const TensorImpl& out = *seen[1].tensor;
  TORCH_CHECK(self.device() == out.device());
}

void mode_out(const DevicePolicy&, ArrayRef<SeenTensor> seen) {
  const Device self = seen.front().tensor->device();
  for (const SeenTensor& each : seen.slice(1)) {
    TORCH_CHECK(
        each.tensor->device() == self,
        "expected device '",
        self,
        "' but got '",
        each.tensor->device(),
        "' for ",
        each.argument->name(),
        " output");
  }
}

void tensor_lr(const DevicePolicy& policy, ArrayRef<SeenTensor> seen) {
  const Device params = seen.front().tensor->device();
  Operands rest;
  for (const SeenTensor& each : seen) {
    const std::string& name = each.argument->name();
    const bool in_list = each.argument->type()->kind() == c10::TypeKind::ListType;
    const bool cpu_lr = name == "lr" && each.tensor->device().is_cpu();
    TORCH_CHECK(
        in_list || cpu_lr || each.tensor->device() == params, name, " must be on the same GPU device as the params");
    if (!cpu_lr) {
      rest.push_back(each);
    }
  }
  one_device(policy, rest);
}

struct OperatorRule {
  std::string_view name;
  DeviceRule rule;
  const char* argument;
};

constexpr OperatorRule kRules[] = {
#define RULE(name, rule, argument) {name, rule, argument},
    OPENREG_DEVICE_RULES(RULE)
#undef RULE
};

bool is_listed(ArrayRef<const char*> sorted, const std::string& name) {
  return std::binary_search(sorted.begin(), sorted.end(), std::string_view(name));
}

OperatorRule rule_of(const std::string& name) {
  for (const OperatorRule& known : kRules) {
    if (known.name == name) {
      return known;
    }
  }
  return {name, is_listed(kUncheckedOperators, name) ? one_scalar : one_device, ""};
}

std::string full_name(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

// As PyTorch's generator names CUDA's wrapper (torchgen/dest/register_dispatch_key.py).
std::string method_name(const c10::FunctionSchema& schema, const std::string& name) {
  const std::string& overload = schema.overload_name();
  const bool has_out = !schema.arguments().empty() && schema.arguments().back().is_out();
  const std::string base = schema.name().substr(schema.name().find("::") + 2) + (has_out ? "_out" : "");
  if (is_listed(kStructuredOperators, name)) {
    return "wrapper_PrivateUse1_" + base + (overload.empty() ? "" : "_" + overload);
  }
  return "wrapper_PrivateUse1_" + overload + "_" + base;
}

// By PyTorch's tags. An index may be a mask: it depends on the call.
bool depends_on_data(const c10::FunctionSchema& schema) {
  const auto op = c10::Dispatcher::singleton().findOp(schema.operator_name());
  return op && (op->hasTag(at::Tag::data_dependent_output) || op->hasTag(at::Tag::dynamic_output_shape));
}

bool only_writes(const c10::FunctionSchema& schema) {
  const auto& results = schema.returns();
  return schema.is_mutable() && std::all_of(results.begin(), results.end(), [](const c10::Argument& result) {
           return result.alias_info() && result.alias_info()->isWrite();
         });
}

c10::openreg::ForkSafeMutex mutex; // of policies

std::unordered_map<std::string, DevicePolicy>& policies() {
  static auto* all = new std::unordered_map<std::string, DevicePolicy>; // a thread of autograd may outlive static ones
  return *all;
}

} // namespace

const DevicePolicy& policy_of(const c10::FunctionSchema& schema) {
  thread_local ska::flat_hash_map<const c10::FunctionSchema*, const DevicePolicy*> seen;
  const DevicePolicy*& policy = seen[&schema];
  // A custom operator may be redefined, and another one's schema then have its address.
  if (C10_UNLIKELY(!policy || (!policy->builtin && policy->name != full_name(schema)))) {
    const std::lock_guard lock(mutex);
    const std::string name = full_name(schema);
    const auto [_, rule, argument] = rule_of(name);
    const bool builtin = schema.name().starts_with("aten::");
    policy = &policies()
                  .try_emplace(
                      name,
                      name,
                      method_name(schema, name),
                      rule,
                      argument,
                      builtin,
                      depends_on_data(schema),
                      only_writes(schema),
                      std::find(std::begin(kBatchNorms), std::end(kBatchNorms), name) != std::end(kBatchNorms))
                  .first->second;
  }
  return *policy;
}

bool is_written(const DevicePolicy& policy, const c10::Argument& argument, bool training) {
  if (policy.keeps_statistics && argument.name().starts_with("running_")) {
    return training;
  }
  const auto* alias = argument.alias_info();
  return alias && alias->isWrite();
}

void for_each_policy(const std::function<void(const DevicePolicy&)>& fn) {
  const std::lock_guard lock(mutex);
  for (const auto& [name, policy] : policies()) {
    fn(policy);
  }
}

} // namespace at::openreg
