#include "simulator/sanitizer/HostAccess.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "aten/native/Arguments.h"
#include "runtime/OpenRegGraphsC10Utils.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegKernel.h"
#include "runtime/OpenRegMutex.h"
#include "simulator/sanitizer/Accesses.h"
#include "simulator/sanitizer/Extent.h"
#include "simulator/sanitizer/InitCheck.h"
#include "simulator/sanitizer/Movement.h"
#include "simulator/sanitizer/Observer.h"
#include "simulator/sanitizer/RaceCheck.h"
#include "simulator/sanitizer/Replays.h"
#include "simulator/sanitizer/SessionState.h"

namespace c10::openreg::sanitizer {
namespace {

using at::openreg::for_each_tensor;

struct Operator {
  const FunctionSchema* schema = nullptr; // null: the operator reads and writes no bytes itself
  const char* name = "";                  // valid until the process ends
  bool computes = false;                  // with all bytes of an operand that it only reads
  bool changes = false;                   // computes with all bytes of an operand that it also writes
};

HostUse use_of(const Operator& op, const Argument& argument) {
  if (argument.alias_info() && argument.alias_info()->isWrite()) {
    return op.changes && !argument.is_out() ? HostUse::Changes : HostUse::Writes;
  }
  return op.computes ? HostUse::Computes : HostUse::Moves;
}

bool is_view(const FunctionSchema& schema) {
  const auto is_alias = [](const Argument& each) { return each.alias_info() && !each.alias_info()->isWrite(); };
  return std::any_of(schema.returns().begin(), schema.returns().end(), is_alias);
}

// An operator reads and writes bytes itself if it has a CPU kernel. Exceptions are views, and operators that read and
// write no elements, such as set_(). Operators without a CPU kernel call operators that have one, except copy_(), which
// copies the bytes itself.
Operator find_operator(const OperatorName& name) {
  const auto handle = Dispatcher::singleton().findSchema(name);
  const bool computes = handle && (handle->hasKernelForDispatchKey(DispatchKey::CPU) || name.name == "aten::copy_") &&
                        !is_view(handle->schema()) && name.name.rfind("aten::empty", 0) != 0 &&
                        name.name != "aten::resize_" && name.name != "aten::set_" && name.name != "aten::record_stream";
  Operator op{.name = (new std::string(name.name))->c_str()};
  if (computes) {
    op.schema = &handle->schema();
    op.computes = computes_with_all_bytes(name.name, false);
    op.changes = computes_with_all_bytes(name.name, true);
  }
  return op;
}

Operator operator_of(const OperatorName& name) {
  static auto* const known = new std::unordered_map<OperatorName, Operator>();
  static ForkSafeMutex mutex; // while it is held, only the lock of PyTorch's registry is taken
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known->try_emplace(name);
  if (is_new) {
    found->second = find_operator(name);
  }
  return found->second;
}

// Exists while a RunningOperator runs.
struct OperatorCall : at::ObserverContext {
  RunningOperator op;
  RunningOperator* outer = nullptr;

  ~OperatorCall() override {
    exchange_running_operator(outer);
  }
};

// Exists while an operator with a deciding_argument() runs.
struct DecidedCall : at::ObserverContext {
  std::optional<int64_t> outer;

  explicit DecidedCall(int64_t value) : outer(exchange_deciding_argument(value)) {}
  ~DecidedCall() override {
    exchange_deciding_argument(outer);
  }
};

std::unique_ptr<at::ObserverContext> begin_decided(
    const at::RecordFunction& fn, const OperatorName& name, const char* argument) {
  const auto handle = Dispatcher::singleton().findSchema(name);
  const auto index = handle ? handle->schema().argumentIndexWithName(argument) : std::nullopt;
  const auto inputs = fn.inputs();
  if (!index || static_cast<size_t>(*index) >= inputs.size() || !inputs[*index].isScalar()) {
    return nullptr;
  }
  const at::Scalar value = inputs[*index].toScalar();
  return std::make_unique<DecidedCall>(value.isIntegral(true) ? value.toLong() : !value.equal(0));
}

// Collects the operator's tensors. The alias annotations of its schema tell which of them it writes.
std::unique_ptr<at::ObserverContext> begin_operator(
    const at::RecordFunction& fn, const OperatorName& name, bool is_custom) {
  const auto handle = Dispatcher::singleton().findSchema(name);
  if (!handle) {
    return nullptr;
  }
  auto call = std::make_unique<OperatorCall>();
  call->op.name = operator_of(name).name;
  call->op.is_custom = is_custom;
  const auto inputs = fn.inputs();
  const auto& arguments = handle->schema().arguments();
  for (size_t i = 0; i < inputs.size() && i < arguments.size(); ++i) {
    const AliasInfo* const alias = arguments[i].alias_info();
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      if (is_strided(tensor) && (is_device_tensor(tensor) || tensor.is_cpu())) {
        call->op.tensors.emplace_back(tensor, alias && alias->isWrite());
      }
    });
  }
  call->outer = exchange_running_operator(&call->op);
  return call;
}

// An operator on device tensors takes the value of a 0-dim CPU tensor at its launch.
void note_scalars(ArrayRef<const IValue> inputs, const OperatorName& name) {
  for (const IValue& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (is_strided(tensor) && tensor.is_cpu() && tensor.dim() == 0 &&
          !tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
        if (const Operator op = operator_of(name); op.schema) {
          note_host_access(op.name, tensor, op.computes ? HostUse::Computes : HostUse::Moves);
          note_captured_scalar(op.name, tensor);
        }
      }
    });
  }
}

// The numbers that an operator on device tensors gets.
void note_numbers_of(ArrayRef<const IValue> inputs) {
  std::vector<double> numbers;
  for (const IValue& input : inputs) {
    if (input.isDouble()) {
      numbers.push_back(input.toDouble());
    } else if (
        input.isTensor() && input.toTensor().defined() && input.toTensor().unsafeGetTensorImpl()->is_wrapped_number() &&
        input.toTensor().scalar_type() == at::kDouble && input.toTensor().is_cpu()) {
      numbers.push_back(*input.toTensor().const_data_ptr<double>());
    }
  }
  note_captured_numbers(numbers);
}

// Whether the operator may call orMemcpyAsync(), orMemsetAsync() or their relatives.
bool uses_copies_or_fills(std::string_view name) {
  return name == "aten::copy_" || name == "aten::_copy_from" || name == "aten::_copy_from_and_resize" ||
         name == "aten::resize_" || name == "aten::zero_";
}

void end(const at::RecordFunction&, at::ObserverContext*) {} // the destructor of the context ends the call

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& fn) {
  const auto inputs = fn.inputs();
  bool has_host = false, has_device = false;
  for (const IValue& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      has_device |= tensor.defined() && tensor.device().type() == identity.type;
      has_host |= tensor.defined() && tensor.device().is_cpu() && tensor.layout() == at::kStrided;
    });
  }
  if (!has_host && !has_device) {
    return nullptr;
  }
  const auto name = fn.operator_name();
  if (has_device) { // what a copy reads or writes on the host is not noted here: the device notifies of the copy
    if (has_host && name && name->name != "aten::copy_") {
      note_scalars(inputs, *name);
    }
    if (orMayCapture()) {
      note_numbers_of(inputs);
    }
    if (const char* const argument = name ? deciding_argument(name->name) : nullptr) {
      return begin_decided(fn, *name, argument);
    }
    if (name && moves_elements(name->name)) {
      return begin_movement(fn, *name);
    }
    const bool is_custom = name && name->name.rfind("aten::", 0) != 0 && name->name.rfind("prim", 0) != 0;
    return is_custom || (name && uses_copies_or_fills(name->name)) ? begin_operator(fn, *name, is_custom) : nullptr;
  }
  const Operator op = name ? operator_of(*name) : Operator{};
  if (!op.schema) {
    return nullptr;
  }
  const auto& arguments = op.schema->arguments();
  for (size_t i = 0; i < inputs.size() && i < arguments.size(); ++i) {
    const HostUse use = use_of(op, arguments[i]);
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      if (is_strided(tensor) && tensor.is_cpu()) {
        note_host_access(op.name, tensor, use);
      }
    });
  }
  return nullptr;
}

std::optional<at::CallbackHandle> callback;

} // namespace

void note_host_access(const char* name, const at::Tensor& tensor, HostUse use) {
  if (!running || is_in_kernel() || tensor.numel() == 0) {
    return;
  }
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  // The block, if it is pinned memory and a check of the session is about this access; else null.
  const auto find = [&]() -> ShadowBlock* {
    ShadowBlock* const block = session ? session->shadow.find(address) : nullptr;
    const bool matters = block && block->device < 0 &&
                         (session->checks & (kRace | kLeak) || (session->checks & kInit && !block->unwritten.empty()));
    return matters ? block : nullptr;
  };
  {
    const std::lock_guard lock(session_mutex);
    if (!find()) {
      return;
    }
  }
  const Site site = current_site();
  const bool writes = use == HostUse::Writes || use == HostUse::Changes;
  std::vector<Access> accesses;
  visit_tensor(*tensor.unsafeGetTensorImpl(), writes ? orAccessWrite : orAccessRead, collect_operand, &accesses);
  const std::lock_guard lock(session_mutex);
  ShadowBlock* const block = find();
  if (!block || accesses.empty()) {
    return;
  }
  std::vector<Report> found;
  Access& access = accesses.front();
  access.site = site;
  access.name = name;
  if (session->checks & kLeak) {
    session->growth.note_use(*block);
  }
  if (session->checks & kInit) {
    if (use == HostUse::Computes || use == HostUse::Changes) {
      check_read(*block, access, !session->raises, found);
    }
    if (use == HostUse::Exposes) {
      block->unwritten = {};
    } else if (writes) {
      block->unwritten.remove(access.extent);
    }
  }
  if (writes || use == HostUse::Exposes) {
    block->last_write = use == HostUse::Exposes ? UINT64_MAX : ++session->writes;
  }
  if (session->checks & kRace) {
    access.time = session->clocks.step(kHost);
    find_races(*block, access, session->clocks, found);
    if (writes) { // a race, if there is one, is in `found` already
      session->pinned_sources.forget(access.extent);
    } else if (use == HostUse::Exposes) {
      session->pinned_sources.expose(access);
    }
    keep_access(*block, std::move(access), session->clocks);
  }
  add_new_reports(found);
}

void watch_host_accesses(bool enabled) {
  if (callback) {
    at::removeCallback(*callback);
    callback.reset();
  }
  if (enabled) {
    callback = at::addGlobalCallback(
        at::RecordFunctionCallback(&begin, &end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
}

} // namespace c10::openreg::sanitizer
