#include "aten/native/DeviceRules.h"

#include <ATen/core/op_registration/adaption.h>

#include <algorithm>
#include <string_view>

#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegStream.h"
namespace at::openreg {
namespace {

#include <OperatorTraits.inc>

using Operands = c10::SmallVector<Operand, 6>;

bool is_written(const Operand& each) {
  const auto* alias = each.argument->alias_info();
  return alias != nullptr && alias->isWrite();
}

// The operands in TensorIterator's order, outputs first, without the argument called `except`.
Operands operands(ArrayRef<Operand> seen, const std::string& except = "") {
  Operands result;
  for (const bool outputs : {true, false}) {
    for (const Operand& each : seen) {
      if (is_written(each) == outputs && each.argument->name() != except) {
        result.push_back(each);
      }
    }
  }
  return result;
}

// The check of TensorIterator (aten/src/ATen/TensorIterator.cpp, compute_types). `scalars`: how many 0-dim CPU inputs
// are accepted. 0: the first one raises "too many CPU scalars". nullopt: a 0-dim CPU input is checked like every other
// operand.
void check_iterator(ArrayRef<Operand> operands, std::optional<int> scalars) {
  const auto on_device = [](const Operand& each) { return !each.tensor->device().is_cpu(); };
  const auto* first = std::find_if(operands.begin(), operands.end(), on_device);
  if (first == operands.end()) {
    return;
  }
  const Device common = first->tensor->device();
  for (const Operand& each : operands) {
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

// ---- The rules. "CUDA" means PyTorch's CUDA backend. device_rules.yaml lists operators with their rules, and the
// place in ATen that defines each rule. device_rule_of() gives the other operators one_device() or one_scalar().

// All tensors must be on one device. This is the check of PyTorch's generated wrapper, which visits the outputs first.
void one_device(const DeviceRule& rule, ArrayRef<Operand> seen) {
  std::optional<Device> common;
  for (const bool outputs : {true, false}) {
    for (const Operand& each : seen) {
      if (each.argument->is_out() == outputs) {
        c10::impl::check_and_update_common_device(
            common,
            Tensor(c10::intrusive_ptr<TensorImpl>::reclaim_copy(each.tensor)),
            rule.method.c_str(),
            each.argument->name().c_str());
      }
    }
  }
}

void any(const DeviceRule&, ArrayRef<Operand>) {}

void no_scalar(const DeviceRule& rule, ArrayRef<Operand> seen) {
  check_iterator(operands(seen, rule.argument), std::nullopt);
}

// CUDA's kernel moves `rule.argument` to the device of the other operands. The argument is therefore not checked,
// unless the first of the other operands is on the CPU.
void moved_argument(const DeviceRule& rule, ArrayRef<Operand> seen) {
  const Operands rest = operands(seen, rule.argument);
  check_iterator(rest.front().tensor->device().is_cpu() ? operands(seen) : rest, std::nullopt);
}

void one_scalar(const DeviceRule&, ArrayRef<Operand> seen) {
  check_iterator(operands(seen), 1);
}

void scalar_tensor2(const DeviceRule&, ArrayRef<Operand> seen) {
  check_iterator(operands(seen), 1);
  for (const Operand& each : seen) {
    if (is_written(each) || !each.tensor->device().is_cpu()) {
      continue;
    }
    const std::string& name = each.argument->name();
    TORCH_CHECK(
        name != "self",
        "CPU Scalar support for self argument is not supported when calling addcmul on ",
        identity.device,
        " tensors.");
    TORCH_CHECK(
        name != "tensor1",
        "CPU Scalar support for tensor1 argument is not supported when calling addcmul on ",
        identity.device,
        " tensors. However, CPU Scalar support for tensor2 is supported, please swap your tensor1 and tensor2 terms.");
  }
}

void no_further_scalar(const DeviceRule&, ArrayRef<Operand> seen) {
  check_iterator(operands(seen), 0);
}

// CUDA's kernel makes two TensorIterators: first one of all tensors except the weight, then one of the result and the
// weight. If there is no out argument, the first input stands for the result; both are on one device.
void scalar_weight(const DeviceRule& rule, ArrayRef<Operand> seen) {
  const Operands weighted = operands(seen, rule.argument);
  check_iterator(weighted, std::nullopt);
  for (const Operand& each : seen) {
    if (each.argument->name() == rule.argument) {
      check_iterator({weighted.front(), each}, 1);
    }
  }
}

// CUDA moves 0-dim inputs to the device of the first input that is not on the CPU.
void moved_scalars(const DeviceRule&, ArrayRef<Operand> seen) {
  std::optional<Device> target;
  Operands rest = operands(seen);
  for (const Operand& each : rest) {
    if (!target && !is_written(each) && !each.tensor->device().is_cpu()) {
      target = each.tensor->device();
    }
  }
  const auto moved = [&](const Operand& each) {
    return target && !is_written(each) && each.tensor->dim() == 0 && each.tensor->device() != *target;
  };
  rest.erase(std::remove_if(rest.begin(), rest.end(), moved), rest.end());
  check_iterator(rest, std::nullopt);
}

// x[indices] and x[indices] = value. CUDA moves two kinds of operands to x's device: indices on the CPU, and a 0-dim
// value.
void indices(const DeviceRule& rule, ArrayRef<Operand> seen) {
  const Device indexed = seen.front().tensor->device();
  Operands rest;
  for (const Operand& each : operands(seen)) {
    if (each.argument->name() == "indices") {
      TORCH_CHECK(
          each.tensor->device().is_cpu() || each.tensor->device() == indexed,
          "indices should be either on cpu or on the same device as the indexed tensor (",
          indexed,
          ")");
    } else if (each.argument->name() != rule.argument || each.tensor->dim() > 0) {
      rest.push_back(each);
    }
  }
  check_iterator(rest, std::nullopt);
}

void mask(const DeviceRule& rule, ArrayRef<Operand> seen) {
  const Device self = seen[0].tensor->device();
  const Device mask = seen[1].tensor->device();
  TORCH_CHECK(rule.argument.empty() || !self.is_cpu(), "masked_fill_: Expected inputs to be on same device");
  TORCH_CHECK(
      self == mask, "expected self and mask to be on the same device, but got mask on ", mask, " and self on ", self);
}

void out_like_self(const DeviceRule&, ArrayRef<Operand> seen) {
  const Device self = seen.front().tensor->device();
  for (const Operand& each : seen.slice(1)) {
    TORCH_CHECK(
        each.tensor->device() == self,
        "Expected out tensor to have device ",
        self,
        ", but got ",
        each.tensor->device(),
        " instead");
  }
}

void same_out(const DeviceRule&, ArrayRef<Operand> seen) {
  const TensorImpl& self = *seen[0].tensor;
  const TensorImpl& out = *seen[1].tensor;
  TORCH_CHECK(self.device() == out.device());
}

void mode_out(const DeviceRule&, ArrayRef<Operand> seen) {
  const Device self = seen.front().tensor->device();
  for (const Operand& each : seen.slice(1)) {
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

void tensor_lr(const DeviceRule& rule, ArrayRef<Operand> seen) {
  const Device params = seen.front().tensor->device();
  Operands rest;
  for (const Operand& each : seen) {
    const std::string& name = each.argument->name();
    const bool in_list = each.argument->type()->kind() == c10::TypeKind::ListType;
    const bool cpu_lr = name == "lr" && each.tensor->device().is_cpu();
    TORCH_CHECK(
        in_list || cpu_lr || each.tensor->device() == params, name, " must be on the same GPU device as the params");
    if (!cpu_lr) {
      rest.push_back(each);
    }
  }
  one_device(rule, rest);
}

struct OperatorRule {
  std::string_view name;
  DeviceRule::Check check;
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

// The name of the wrapper that PyTorch's generator makes for a kernel (torchgen/dest/register_dispatch_key.py). The
// error message of one_device() contains this name.
std::string method_name(const c10::FunctionSchema& schema, const std::string& name) {
  const std::string& overload = schema.overload_name();
  const bool has_out = !schema.arguments().empty() && schema.arguments().back().is_out();
  const std::string base = schema.name().substr(schema.name().find("::") + 2) + (has_out ? "_out" : "");
  const std::string wrapper = c10::str("wrapper_", identity.key, "_");
  if (is_listed(kStructuredOperators, name)) {
    return wrapper + base + (overload.empty() ? "" : "_" + overload);
  }
  return wrapper + overload + "_" + base;
}

} // namespace

DeviceRule device_rule_of(const c10::FunctionSchema& schema, const std::string& name) {
  const auto* const known =
      std::find_if(std::begin(kRules), std::end(kRules), [&](const OperatorRule& each) { return each.name == name; });
  if (known != std::end(kRules)) {
    return {known->check, method_name(schema, name), known->argument};
  }
  return {is_listed(kUncheckedOperators, name) ? &one_scalar : &one_device, method_name(schema, name), ""};
}

} // namespace at::openreg
