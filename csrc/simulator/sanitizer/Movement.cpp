#include "simulator/sanitizer/Movement.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "aten/native/Arguments.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegStream.h"
#include "simulator/sanitizer/InitCheck.h"
#include "simulator/sanitizer/SessionState.h"

namespace c10::openreg::sanitizer {
namespace {

bool is_on_device(const at::Tensor& tensor) {
  return is_strided(tensor) && is_device_tensor(tensor);
}

uintptr_t address_of(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(orGetDevicePointer(tensor.storage().data())) +
         tensor.storage_offset() * tensor.itemsize();
}

// The block that contains the address, if bytes of the block are unwritten; otherwise null. To be called with the lock
// held.
const ShadowBlock* find_unwritten(uintptr_t address) {
  const ShadowBlock* const block = session ? session->shadow.find(address) : nullptr;
  return block && !block->unwritten.empty() ? block : nullptr;
}

// Returns a CPU tensor of booleans, which say for each element of `tensor` whether it is unwritten. The booleans have
// the strides of `tensor`, so that the operator's result has the strides of the real result. Returns an undefined
// tensor if the answer would take long.
at::Tensor marks_of(const at::Tensor& tensor) {
  at::Tensor marks = tensor.is_non_overlapping_and_dense()
                         ? at::empty_strided(tensor.sizes(), tensor.strides(), at::kBool)
                         : at::empty(tensor.sizes(), at::kBool);
  marks.zero_();
  if (!is_on_device(tensor) || tensor.numel() == 0) {
    return marks;
  }
  const std::lock_guard lock(session_mutex);
  if (const ShadowBlock* const block = find_unwritten(address_of(tensor))) {
    if (tensor.numel() > kMostElements) {
      return {};
    }
    const auto item = static_cast<int64_t>(tensor.itemsize());
    SmallVector<int64_t, 4> strides(tensor.strides());
    std::for_each(strides.begin(), strides.end(), [&](int64_t& stride) { stride *= item; });
    const auto first = reinterpret_cast<uintptr_t>(marks.mutable_data_ptr());
    for_each_element<2>(tensor.sizes(), {strides, marks.strides()}, {address_of(tensor), first}, [&](const auto& at) {
      *reinterpret_cast<bool*>(at[1]) = block->unwritten.overlaps(at[0], at[0] + item);
    });
  }
  return marks;
}

// Waits until the stream's work has run, so that memory holds what the stream's next kernel reads. The race
// check does not count this as a wait of the program. Gives up after a second and returns false: the stream may wait
// for something that the calling thread does next.
bool has_run(orStream_t stream) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  orError_t state = orErrorNotReady;
  while ((state = orStreamQuery(stream)) == orErrorNotReady && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return state == orSuccess;
}

// Returns the tensor's values, as a CPU tensor. Returns an undefined tensor if queued work may still change the values.
at::Tensor values_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) {
    return tensor;
  }
  if (!is_on_device(tensor) || !has_run(getCurrentOpenRegStream(tensor.device().index()).stream())) {
    return {};
  }
  void* const data = orGetKernelPointer(reinterpret_cast<void*>(address_of(tensor)));
  return at::from_blob(data, tensor.sizes(), tensor.strides(), at::TensorOptions(tensor.scalar_type()));
}

bool holds_values(std::string_view argument) {
  return argument == "indices" || argument == "index" || argument == "mask" || argument == "condition";
}

// Returns the argument that replaces `value` when the operator runs on booleans; nullopt if it is not known.
std::optional<IValue> replace(const IValue& value, const Argument& argument) {
  const auto replace_tensor = [&](const at::Tensor& tensor) {
    return holds_values(argument.name()) ? values_of(tensor) : marks_of(tensor);
  };
  if (argument.is_out()) {
    return at::empty({0}, at::kBool);
  }
  if (value.isTensor()) {
    const at::Tensor replaced = value.toTensor().defined() ? replace_tensor(value.toTensor()) : at::Tensor();
    return replaced.defined() ? std::optional<IValue>(replaced) : std::nullopt;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& each : value.toTensorVector()) {
      list.push_back(replace_tensor(each));
      if (!list.get(list.size() - 1).defined()) {
        return std::nullopt;
      }
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector()) {
      const bool exists = each && each->defined();
      const at::Tensor replaced = exists ? replace_tensor(*each) : at::Tensor();
      if (exists && !replaced.defined()) {
        return std::nullopt;
      }
      list.push_back(exists ? std::optional(replaced) : std::nullopt);
    }
    return list;
  }
  if (argument.name() == "reduce") { // both add and amax give true if any element is true (unwritten)
    const auto reduce = value.toStringView();
    return IValue(reduce == "add" || reduce == "multiply" ? "add" : "amax");
  }
  return value.isScalar() && argument.type()->kind() == TypeKind::NumberType ? IValue(false) : value;
}

bool has_unwritten(ArrayRef<const IValue> inputs) {
  SmallVector<uintptr_t, 4> addresses; // collected before the lock, because a reference to a tensor may take the GIL
  for (const IValue& input : inputs) {
    at::openreg::for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (is_on_device(tensor) && tensor.numel() > 0) {
        addresses.push_back(address_of(tensor));
      }
    });
  }
  const std::lock_guard lock(session_mutex);
  return session && (session->checks & kInit) && std::any_of(addresses.begin(), addresses.end(), find_unwritten);
}

// Runs the operator on booleans. Returns an undefined tensor if the result is not known.
at::Tensor move_marks(const OperatorHandle& op, ArrayRef<const IValue> inputs) {
  const auto& arguments = op.schema().arguments();
  // No mode of Python and no transform sees the tensors of booleans.
  const c10::impl::ForceDispatchKeyGuard plain(
      default_included_set, default_excluded_set | autograd_dispatch_keyset_with_ADInplaceOrView);
  const at::RecordFunctionGuard unobserved(false);
  torch::jit::Stack stack;
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto replaced = i < inputs.size() ? replace(inputs[i], arguments[i]) : std::nullopt;
    if (!replaced) {
      return {};
    }
    stack.push_back(std::move(*replaced));
  }
  op.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), &stack);
  return stack.size() == 1 && stack[0].isTensor() ? stack[0].toTensor() : at::Tensor();
}

// Whether the operator adds to its first operand, so that it reads this operand also where it writes.
bool accumulates(const OperatorHandle& op, ArrayRef<const IValue> inputs) {
  const auto& schema = op.schema();
  for (const char* const argument : {"accumulate", "include_self"}) {
    if (const auto index = schema.argumentIndexWithName(argument)) {
      return static_cast<size_t>(*index) < inputs.size() && inputs[*index].isBool() && inputs[*index].toBool();
    }
  }
  return schema.argumentIndexWithName("reduce") || schema.name().find("_add") != std::string::npos;
}

struct Movement : at::ObserverContext {
  MovedElements moved;
  const MovedElements* const outer;

  explicit Movement(const std::string& name) : moved{.name = name}, outer(exchange_moved_elements(&moved)) {}
  ~Movement() override {
    exchange_moved_elements(outer);
  }
};

} // namespace

bool is_strided(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.has_storage() &&
         !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides(); // a fake tensor, which has no elements
}

std::unique_ptr<at::ObserverContext> begin_movement(const at::RecordFunction& fn, const c10::OperatorName& name) {
  const auto op = Dispatcher::singleton().findSchema(name);
  if (!op || !has_unwritten(fn.inputs())) {
    return nullptr;
  }
  auto movement = std::make_unique<Movement>(name.name);
  MovedElements& moved = movement->moved;
  const auto& arguments = op->schema().arguments();
  for (size_t i = 0; i < fn.inputs().size() && i < arguments.size(); ++i) {
    if (holds_values(arguments[i].name())) {
      at::openreg::for_each_tensor(fn.inputs()[i], [&](const at::Tensor& tensor) {
        if (is_on_device(tensor)) {
          moved.indices.push_back(address_of(tensor));
        }
      });
    }
  }
  at::Tensor marks;
  try {
    marks = move_marks(*op, fn.inputs());
  } catch (const std::exception&) { // the operator itself will raise this exception
  }
  if (marks.defined() && marks.numel() <= 4 * kMostElements) {
    const at::Tensor in_order = marks.contiguous();
    const bool* const data = in_order.const_data_ptr<bool>();
    moved.shape = marks.sizes();
    moved.strides = marks.strides();
    moved.unwritten.assign(data, data + in_order.numel());
  } else {
    moved.keeps_first = accumulates(*op, fn.inputs());
  }
  return movement;
}

} // namespace c10::openreg::sanitizer
