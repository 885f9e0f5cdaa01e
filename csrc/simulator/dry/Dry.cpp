#include "simulator/dry/Dry.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/enum_tag.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "aten/native/Arguments.h"
#include "aten/native/DeviceCheck.h"
#include "runtime/OpenRegException.h"
#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegMutex.h"
#include "runtime/OpenRegObserver.h"
#include "runtime/OpenRegStorage.h"
#include "simulator/InFront.h"
#include "simulator/borrowed/KernelScope.h"
#include "simulator/dry/Clock.h"
#include "simulator/dry/Contents.h"
#include "simulator/dry/Shapes.h"
#include "simulator/dry/Undecided.h"

namespace at::openreg {
namespace {

// ---- The program's reads of values that nobody computed

c10::openreg::ForkSafeMutex reads_mutex;

std::map<std::pair<std::string, std::string>, uint64_t>& reads() {
  static auto* const all = new std::map<std::pair<std::string, std::string>, uint64_t>;
  return *all;
}

// What reads at a line of Python give, in place of values that nobody computed.
struct GivenValues {
  std::vector<double> values;
  size_t next = 0;
};

std::map<std::string, GivenValues, std::less<>>& given_values() {
  static auto* const all = new std::map<std::string, GivenValues, std::less<>>;
  return *all;
}

// The next value that is given for a line, such as "/home/me/train.py:12 in step".
std::optional<Scalar> given_at(std::string_view line) {
  line = line.substr(0, line.rfind(" in "));
  for (auto& [where, given] : given_values()) {
    const bool has_folder = line.size() > where.size() && line[line.size() - where.size() - 1] == '/';
    if (line == where || (has_folder && line.ends_with(where))) {
      const Scalar value = given.values[given.next];
      given.next = std::min(given.next + 1, given.values.size() - 1);
      return value;
    }
  }
  return std::nullopt;
}

// Notes a read, and returns the value that is given for it.
std::optional<Scalar> note_read(const char* how) {
  constexpr std::string_view kPrefix = ", launched at ";
  std::string line = c10::openreg::launched_at(); // before the lock: it may wait for Python
  if (line.starts_with(kPrefix)) {
    line.erase(0, kPrefix.size());
  }
  const std::lock_guard lock(reads_mutex);
  std::optional<Scalar> given = given_at(line);
  ++reads()[{std::move(line), how}];
  return given;
}

// ---- The workspaces of matrix products

std::atomic<size_t> matmul_workspace{0};
c10::openreg::ForkSafeMutex workspaces_mutex;

std::map<orStream_t, c10::Storage>& workspaces() {
  static auto* const all = new std::map<orStream_t, c10::Storage>; // never freed, as CUDA's
  return *all;
}

void keep_workspace(DeviceIndex device) {
  if (matmul_workspace == 0) {
    return;
  }
  const orStream_t stream = c10::openreg::getCurrentOpenRegStream(device).stream();
  {
    const std::lock_guard lock(workspaces_mutex);
    if (workspaces().count(stream) > 0) {
      return;
    }
  }
  c10::Storage workspace(c10::openreg::make_storage(matmul_workspace, device)); // may call Python, so without the lock
  const std::lock_guard lock(workspaces_mutex);
  workspaces().emplace(stream, std::move(workspace));
}

// ---- The memory of contexts

std::atomic<size_t> context_memory{0};

void take_context_memory() {
  for (DeviceIndex device = 0; context_memory > 0 && device < c10::openreg::device_count(); ++device) {
    const c10::openreg::CurrentDevice current(device);
    void* address = nullptr; // never freed, as CUDA's context
    OPENREG_CHECK(orMalloc(&address, context_memory));
  }
}

const bool takes_context_memory = (c10::openreg::on_start(&take_context_memory), true);

// ---- What the schema of an operator says

bool is_output(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

bool is_tensor_like(const c10::TypePtr& type) {
  return type->isSubtypeOf(*c10::TensorType::get()) || type->isSubtypeOf(*c10::ListType::ofTensors());
}

// In-place operators that do not read what they write.
bool is_fill(const std::string& name) {
  constexpr std::array<std::string_view, 10> kFills = {
      "aten::fill_",
      "aten::zero_",
      "aten::normal_",
      "aten::uniform_",
      "aten::random_",
      "aten::bernoulli_",
      "aten::exponential_",
      "aten::geometric_",
      "aten::log_normal_",
      "aten::cauchy_"};
  return std::find(kFills.begin(), kFills.end(), name) != kFills.end();
}

// Operators whose kernel for this device calls other operators of the device, which then decide.
bool is_composed(const std::string& name) {
  constexpr std::array<std::string_view, 8> kComposed = {
      "aten::native_dropout",
      "aten::native_dropout_backward",
      "aten::_thnn_fused_lstm_cell",
      "aten::_thnn_fused_lstm_cell_backward_impl",
      "aten::_thnn_fused_gru_cell",
      "aten::_thnn_fused_gru_cell_backward",
      "aten::_scaled_dot_product_fused_attention_overrideable",
      "aten::_scaled_dot_product_fused_attention_overrideable_backward"};
  return std::find(kComposed.begin(), kComposed.end(), name) != kComposed.end();
}

// ---- Kernels that compute

Tensor make_result(const Tensor& meta, DeviceIndex device) {
  c10::openreg::notify_new_tensor(meta.dtype());
  auto memory = c10::openreg::make_storage(
      at::detail::computeStorageNbytes(meta.sizes(), meta.strides(), meta.element_size()), device);
  Tensor result = at::detail::make_tensor<TensorImpl>(c10::Storage(std::move(memory)), identity.keys, meta.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides());
  result._set_conj(meta.is_conj());
  result._set_neg(meta.is_neg());
  return result;
}

c10::IValue make_results(const c10::IValue& value, DeviceIndex device) {
  const auto make = [&](const Tensor& meta) {
    return meta.defined() && meta.is_meta() ? make_result(meta, device) : meta;
  };
  if (value.isTensor()) {
    return make(value.toTensor());
  }
  c10::List<Tensor> results;
  for (const Tensor& meta : value.toTensorList()) {
    results.push_back(make(meta));
  }
  return results;
}

// Whether a kernel whose operands have bytes makes this result, although it may be large: programs branch on integers.
bool has_room_for(const Tensor& tensor) {
  constexpr size_t kMostIntegers = 128 << 20; // bytes
  return is_small(tensor) ||
         (isIntegralType(tensor.scalar_type(), /*includeBool=*/true) && tensor.nbytes() <= kMostIntegers);
}

bool has_large(const c10::IValue& value) {
  bool found = false;
  for_each_tensor(value, [&](const Tensor& tensor) { found |= tensor.defined() && !has_room_for(tensor); });
  return found;
}

// The number of choices of a topk() that may be a router's; 0 for any other operator. A router chooses experts: the last
// dimension has one score for each, and they are fewer than the words of a vocabulary.
int64_t experts_of(const c10::FunctionSchema& schema, ArrayRef<c10::IValue> arguments) {
  constexpr int64_t kMostExperts = 1024;
  if (schema.name() != "aten::topk" || schema.overload_name() == "values") {
    return 0;
  }
  const Tensor& scores = arguments[0].toTensor();
  const int64_t dim = arguments[2].toInt();
  const bool is_last = scores.dim() > 0 && (dim == -1 || dim == scores.dim() - 1);
  return is_last && scores.size(-1) <= kMostExperts ? scores.size(-1) : 0;
}

// Writes indices that choose every expert equally often, and none twice in a row of the tensor. The calling thread must
// have the turn of the stream.
void choose_equally(const Tensor& indices, int64_t experts) {
  auto* const chosen = static_cast<int64_t*>(orGetKernelPointer(indices.const_data_ptr()));
  for (int64_t i = 0; i < indices.numel(); ++i) {
    chosen[i] = i % experts;
  }
}

// Runs the kernel of an operator, or skips it.
class Skipping final : public InFront {
 public:
  explicit Skipping(const c10::OperatorHandle& op)
      : InFront(op),
        fills_(is_fill(op.schema().name())),
        sets_(op.schema().name() == "aten::fill_" || op.schema().name() == "aten::zero_"),
        traits_(traits_of(op.schema())),
        cost_(op.schema()) {
    for (const c10::Argument& each : op.schema().returns()) {
      makes_results_ |= !each.alias_info();
    }
    for (const c10::Argument& each : op.schema().arguments()) {
      has_out_ |= each.is_out();
    }
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const ArrayRef<c10::IValue> arguments(stack->data() + stack->size() - count, count);
    const Seen call = look_at(op, arguments);
    if (!call.has_contents) {
      return next_.callBoxed(op, keys, stack);
    }
    const CostOfCall cost(cost_, arguments);
    if (cost_.is_matmul()) {
      keep_workspace(call.device);
    }
    const bool is_absent = call.read == orContentsAbsent;
    const bool is_route = call.read != orContentsKnown && experts_of(op.schema(), arguments) > 0;
    if (is_absent || call.fills_large || is_route) {
      return skip(op, stack, needs_shapes() ? result_shapes_of(op, arguments, true) : std::nullopt);
    }
    if (makes_results_ && call.may_have_large_results) {
      auto shapes = result_shapes_of(op, arguments, false);
      if (shapes && std::any_of(shapes->results.begin(), shapes->results.end(), &has_large)) {
        return skip(op, stack, std::move(shapes));
      }
    }
    compute(op, keys, stack, call.read);
  }

 private:
  struct Seen {
    bool has_contents = true; // every tensor of the device is one block of memory
    DeviceIndex device = -1;  // of the first tensor; -1: the current device
    orContents read = orContentsKnown;
    bool fills_large = false; // a large tensor is written and not read
    bool may_have_large_results = false;
  };

  const bool fills_;
  const bool sets_; // fills with one value
  const OperatorTraits& traits_;
  const CostFormula cost_;
  bool makes_results_ = false;
  bool has_out_ = false;

  bool needs_shapes() const {
    return makes_results_ || has_out_;
  }

  bool is_only_written(const c10::Argument& argument) const {
    return argument.is_out() || (fills_ && is_output(argument));
  }

  Seen look_at(const c10::OperatorHandle& op, ArrayRef<c10::IValue> arguments) const {
    Seen call;
    size_t sum = 0, most = 0, second = 0; // elements
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::Argument& argument = op.schema().arguments()[i];
      for_each_tensor(arguments[i], [&](const Tensor& tensor) {
        if (!is_device_tensor(tensor)) {
          return;
        }
        call.device = call.device < 0 ? tensor.device().index() : call.device;
        if (!openreg::has_contents(tensor)) {
          call.has_contents = false;
        } else if (is_only_written(argument)) {
          call.fills_large |= !(sets_ ? has_room_for(tensor) : is_small(tensor));
        } else if (tensor.numel() > 0) {
          call.read = std::max(call.read, contents_of(tensor));
          const auto elements = static_cast<size_t>(tensor.numel());
          sum += elements;
          second = std::max(second, std::min(most, elements));
          most = std::max(most, elements);
        }
      });
    }
    // Every element of a result comes from all operands together, as in cat(), or from two of them, as in an outer
    // product.
    constexpr size_t kLargestItem = 16;
    const size_t limit = dry_limit() / kLargestItem;
    call.may_have_large_results = sum > limit || (second > 0 && most > limit / second);
    return call;
  }

  static std::optional<ResultShapes> result_shapes_of(
      const c10::OperatorHandle& op, ArrayRef<c10::IValue> arguments, bool is_assumed) {
    const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
    return skipped_shapes(op, arguments, is_assumed);
  }

  // The arguments that the call writes.
  torch::jit::Stack written(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const {
    const auto& arguments = op.schema().arguments();
    torch::jit::Stack found;
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (is_output(arguments[i])) {
        found.push_back(stack[stack.size() - arguments.size() + i]);
      }
    }
    return found;
  }

  static void mark(const c10::IValue& value, orContents contents) {
    for_each_tensor(value, [&](const Tensor& tensor) {
      if (is_device_tensor(tensor) && openreg::has_contents(tensor)) {
        set_contents(tensor, contents);
      }
    });
  }

  void compute(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack, orContents read) {
    const torch::jit::Stack outputs = written(op, *stack);
    {
      const Decided decided;
      next_.callBoxed(op, keys, stack);
    }
    for (const c10::IValue& output : outputs) {
      mark(output, read);
    }
    for (size_t i = 0; makes_results_ && i < op.schema().returns().size(); ++i) {
      mark((*stack)[stack->size() - 1 - i], read);
    }
  }

  // Gives the outputs of an out= operator the shapes of its meta kernel.
  static void resize_outputs(const c10::OperatorHandle& op, ArrayRef<c10::IValue> arguments, const MetaStack& metas) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (op.schema().arguments()[i].is_out() && arguments[i].isTensor() && is_device_tensor(arguments[i].toTensor())) {
        const Tensor output = arguments[i].toTensor(), meta = metas[i].toTensor();
        if (output.sizes() != meta.sizes()) {
          at::native::resize_output(output, meta.sizes());
          output.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides());
        }
      }
    }
  }

  // Does for a call what its kernel would do, except that nothing is computed.
  void skip(const c10::OperatorHandle& op, torch::jit::Stack* stack, std::optional<ResultShapes> shapes) const {
    const auto& schema = op.schema();
    const size_t count = schema.arguments().size();
    const ArrayRef<c10::IValue> arguments(stack->data() + stack->size() - count, count);
    DeviceCheck check(traits_);
    DeviceIndex asked = -1;
    for (size_t i = 0; i < count; ++i) {
      for_each_tensor(arguments[i], [&](const Tensor& tensor) { check.add_operand(tensor, schema.arguments()[i]); });
      if (arguments[i].isDevice() && arguments[i].toDevice().type() == identity.type) {
        asked = arguments[i].toDevice().index();
      }
    }
    check.check_devices();
    const DeviceIndex device = check.device() >= 0 ? check.device()
                               : asked >= 0        ? asked
                                                   : c10::openreg::current_device();
    const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
    if (has_out_) {
      resize_outputs(op, arguments, shapes->arguments);
    }
    torch::jit::Stack outputs = written(op, *stack);
    torch::jit::Stack results, made;
    for (size_t i = 0, next_written = 0; i < schema.returns().size(); ++i) {
      if (schema.returns()[i].alias_info()) {
        results.push_back(outputs[next_written++]);
      } else {
        results.push_back(make_results(shapes->results[i], device));
        made.push_back(results.back());
      }
    }
    enter_scope(device, op.schema(), arguments, outputs, made);
    torch::jit::drop(*stack, count);
    std::move(results.begin(), results.end(), std::back_inserter(*stack));
  }

  // Passes the kernel scope as the kernel would, so that profilers and the stream's order see the kernel, and writes
  // what stands for its results.
  void enter_scope(
      DeviceIndex device,
      const c10::FunctionSchema& schema,
      ArrayRef<c10::IValue> arguments,
      const torch::jit::Stack& outputs,
      const torch::jit::Stack& made) const {
    const int64_t experts = experts_of(schema, arguments);
    if (experts > 0) {
      note_read("choices of topk(), assumed to be spread equally"); // before the kernel begins: it may wait for Python
    }
    std::vector<std::pair<const c10::IValue*, unsigned>> all;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::Argument& argument = schema.arguments()[i];
      const unsigned read = is_only_written(argument) ? 0 : orAccessRead;
      all.emplace_back(&arguments[i], read | (is_output(argument) ? orAccessWrite : 0));
    }
    for (const c10::IValue& value : made) {
      all.emplace_back(&value, orAccessWrite);
    }
    const auto visit_operands = [](void* data, orOperandFn_t visit, void* context) {
      for (const auto& [value, access] : *static_cast<const decltype(all)*>(data)) {
        for_each_tensor(*value, [&, access = access](const Tensor& tensor) {
          if (is_device_tensor(tensor)) {
            c10::openreg::visit_tensor(*tensor.unsafeGetTensorImpl(), access, visit, context);
          }
        });
      }
    };
    const SkippedKernel kernel(
        c10::openreg::getCurrentOpenRegStream(device).stream(), {traits_.name.c_str(), visit_operands, &all});
    for (const auto* stack : {&outputs, &made}) {
      for (const c10::IValue& value : *stack) {
        for_each_tensor(value, [&](const Tensor& tensor) {
          if (!is_device_tensor(tensor) || !openreg::has_contents(tensor) || tensor.numel() == 0) {
            return;
          }
          if (experts > 0 && tensor.scalar_type() == kLong && has_room_for(tensor)) {
            choose_equally(tensor, experts);
            set_contents(tensor, orContentsAssumed);
            return;
          }
          if (!is_small(tensor)) {
            set_contents(tensor, orContentsAbsent);
            return;
          }
          const bool keeps_bytes = stack == &outputs && !has_out_ && contents_of(tensor) != orContentsAbsent;
          if (!keeps_bytes) {
            set_to_zero(tensor);
          }
          set_contents(tensor, orContentsAssumed);
        });
      }
    }
  }
};

// ---- Copies

// Whether a copy of such a tensor from the host is made whatever its size: programs branch on integers.
bool is_known_from_host(const Tensor& tensor) {
  return isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

// copy_(self, source), _copy_from(source, self), _copy_from_and_resize(source, self)
class Copying final : public InFront {
 public:
  explicit Copying(const c10::OperatorHandle& op)
      : InFront(op),
        self_(op.schema().name() == "aten::copy_" ? 0 : 1),
        resizes_(op.schema().name() == "aten::_copy_from_and_resize") {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const c10::IValue* const arguments = stack->data() + stack->size() - count;
    const Tensor self = arguments[self_].toTensor(), source = arguments[1 - self_].toTensor();
    const bool to_device = is_device_tensor(self), from_device = is_device_tensor(source);
    const bool non_blocking = !resizes_ && arguments[2].toBool();
    if (self.layout() != kStrided || source.layout() != kStrided || (to_device && !has_contents(self)) ||
        (from_device && !has_contents(source)) || resizes_ || self.numel() == 0) {
      return next_.callBoxed(op, keys, stack);
    }
    const orContents read = from_device ? contents_of(source) : orContentsKnown;
    std::optional<Scalar> given;
    if (!to_device && read != orContentsKnown) {
      given = note_read("a copy to the host");
    }
    const bool has_room = !to_device || is_small(self) || is_known_from_host(self);
    const Decided decided;
    if (read != orContentsAbsent && has_room && !given) {
      next_.callBoxed(op, keys, stack);
      if (to_device) {
        set_contents(self, read);
      }
      return;
    }
    TORCH_CHECK(
        is_expandable_to(source.sizes(), self.sizes()),
        "The size of tensor a ",
        self.sizes(),
        " must match the size of tensor b ",
        source.sizes(),
        " in a copy");
    const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
    const auto stream = c10::openreg::getCurrentOpenRegStream((to_device ? self : source).device().index());
    {
      std::pair<Tensor, Tensor> tensors{self, source};
      const SkippedKernel kernel(stream.stream(), {"aten::copy_", &visit_both, &tensors});
      if (to_device) {
        if (is_small(self)) {
          set_to_zero(self);
        }
        set_contents(self, is_small(self) ? orContentsAssumed : orContentsAbsent);
      } else if (given) {
        self.fill_(*given);
      } else if (!make_absent_on_host(self)) {
        self.zero_();
      }
    }
    const bool with_host = !to_device || !from_device;
    if (with_host && !(non_blocking && (to_device ? source : self).is_pinned())) {
      stream.synchronize();
    }
    torch::jit::drop(*stack, count);
    stack->emplace_back(self);
  }

 private:
  const size_t self_;
  const bool resizes_;

  static void visit_both(void* tensors, orOperandFn_t visit, void* context) {
    const auto& [self, source] = *static_cast<const std::pair<Tensor, Tensor>*>(tensors);
    visit_any(self, orAccessWrite, visit, context);
    visit_any(source, orAccessRead, visit, context);
  }

  // As visit_tensor(), but also of pageable memory.
  static void visit_any(const Tensor& tensor, unsigned access, orOperandFn_t visit, void* context) {
    if (is_device_tensor(tensor)) {
      return c10::openreg::visit_tensor(*tensor.unsafeGetTensorImpl(), access, visit, context);
    }
    const orOperand bytes{tensor.const_data_ptr(), tensor.nbytes(), 0, nullptr, nullptr, access};
    visit(&bytes, context);
  }
};

// ---- Values that the program reads

// Waits as a call does that reads a value.
void wait_for(const Tensor& tensor) {
  c10::openreg::getCurrentOpenRegStream(tensor.device().index()).synchronize();
}

// _local_scalar_dense(self)
class ReadingNumber final : public InFront {
 public:
  using InFront::InFront;

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const Tensor self = stack->back().toTensor();
    const orContents contents = has_contents(self) ? contents_of(self) : orContentsKnown;
    std::optional<Scalar> given;
    if (contents != orContentsKnown) {
      given = note_read("item()");
    }
    if (contents != orContentsAbsent && !given) {
      return next_.callBoxed(op, keys, stack);
    }
    wait_for(self);
    stack->back() = converted(given.value_or(0), self.scalar_type());
  }

 private:
  static Scalar converted(const Scalar& value, ScalarType type) {
    if (type == kBool) {
      return value.toBool();
    }
    return isIntegralType(type, false) ? Scalar(value.toLong()) : Scalar(value.toDouble());
  }
};

// equal(self, other)
class Comparing final : public InFront {
 public:
  using InFront::InFront;

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    orContents contents = orContentsKnown;
    for (size_t i = stack->size() - 2; i < stack->size(); ++i) {
      if (const Tensor& tensor = (*stack)[i].toTensor(); has_contents(tensor)) {
        contents = std::max(contents, contents_of(tensor));
      }
    }
    std::optional<Scalar> given;
    if (contents != orContentsKnown) {
      given = note_read("equal()");
    }
    if (contents != orContentsAbsent && !given) {
      return next_.callBoxed(op, keys, stack);
    }
    wait_for((*stack)[stack->size() - 2].toTensor());
    torch::jit::drop(*stack, 2);
    stack->emplace_back(given.value_or(false).toBool());
  }
};

// histc() and bincount() of values that nobody computed. Programs make shapes of the counts, such as the number of tokens
// for each expert, so the counts are assumed to be equal, and have the right sum.
class Counting final : public InFront {
 public:
  explicit Counting(const c10::OperatorHandle& op) : InFront(op), is_histc_(op.schema().name() == "aten::histc") {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const c10::IValue* const arguments = stack->data() + stack->size() - count;
    const Tensor self = arguments[0].toTensor();
    const bool has_weights = !is_histc_ && !arguments[1].isNone();
    if (!has_contents(self) || contents_of(self) == orContentsKnown || has_weights) {
      return next_.callBoxed(op, keys, stack);
    }
    note_read(is_histc_ ? "counts of histc(), assumed to be equal" : "counts of bincount(), assumed to be equal");
    const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
    const int64_t bins = std::max<int64_t>(arguments[is_histc_ ? 1 : 2].toInt(), 1);
    const Tensor counts = at::full({bins}, self.numel() / bins, is_histc_ ? self.scalar_type() : kLong);
    counts.narrow(0, 0, self.numel() % bins).add_(1);
    const Tensor result = counts.to(self.device());
    set_contents(result, orContentsAssumed);
    torch::jit::drop(*stack, count);
    stack->emplace_back(result);
  }

 private:
  const bool is_histc_;
};

// empty() and empty_strided()
class MakingEmpty final : public InFront {
 public:
  using InFront::InFront;

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    next_.callBoxed(op, keys, stack);
    if (const Tensor& result = stack->back().toTensor(); has_contents(result)) {
      set_contents(result, is_small(result) ? orContentsKnown : orContentsAbsent);
    }
  }
};

// _foreach operators: the device runs one kernel after another, and CUDA runs one for all tensors.
class ForEach final : public InFront {
 public:
  using InFront::InFront;

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const OneLaunch launch;
    next_.callBoxed(op, keys, stack);
  }
};

// ---- CPU tensors

// The in-place operators with which programs initialise parameters: they make no large CPU tensor of floating-point
// numbers. zero_() needs no memory to do its work. Random numbers become zeros. An operator that reads what it writes
// is skipped if nothing was written before.
class InitialisingHost final : public InFront {
 public:
  InitialisingHost(const c10::OperatorHandle& op)
      : InFront(op, c10::DispatchKey::CPU), fills_(is_fill(op.schema().name())) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const Tensor self = (*stack)[stack->size() - count].toTensor();
    const bool is_copy = op.schema().name() == "aten::copy_";
    const bool reads_absent =
        !fills_ && is_absent_on_host(is_copy ? (*stack)[stack->size() - count + 1].toTensor() : self);
    if (!is_small(self) && self.is_cpu() && self.is_floating_point() && (fills_ || reads_absent) &&
        make_absent_on_host(self)) {
      if (fills_ && op.schema().name() != "aten::zero_") {
        note_read("random numbers of a large CPU tensor");
      }
      torch::jit::drop(*stack, count);
      stack->emplace_back(self);
      return;
    }
    next_.callBoxed(op, keys, stack);
    if (!is_small(self) && (fills_ || is_copy)) {
      set_present_on_host(self);
    }
  }

 private:
  const bool fills_;
};

// Whether the operator computes on the device with a kernel that can be skipped.
bool can_be_skipped(const c10::OperatorHandle& op) {
  constexpr c10::DispatchKey kBare = c10::DispatchKey::PrivateUse2; // has a kernel only for what PyTorch composes
  if (op.operator_name().getNamespace() != "aten" || op.hasTag(at::Tag::inplace_view) ||
      is_composed(op.schema().name())) {
    return false;
  }
  // An operator that only the fallback could run must have a kernel of the CPU, which PyTorch does not compose.
  if (!op.hasKernelForDispatchKey(identity.key) &&
      (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU) || op.hasComputedKernelForDispatchKey(kBare))) {
    return false;
  }
  const c10::FunctionSchema& schema = op.schema();
  const auto is_result = [](const c10::Argument& each) {
    const bool is_view = each.alias_info() && !each.alias_info()->isWrite();
    return !is_view && is_tensor_like(each.type());
  };
  const bool has_tensors =
      std::any_of(schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& each) {
        return is_tensor_like(each.type()) || each.type()->kind() == c10::TypeKind::OptionalType;
      });
  const bool writes = std::any_of(schema.arguments().begin(), schema.arguments().end(), &is_output);
  return has_tensors && (writes || !schema.returns().empty()) && !schema.is_vararg() &&
         std::all_of(schema.returns().begin(), schema.returns().end(), is_result);
}

template <class Kernel>
void put_in_front_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    put_in_front<Kernel>(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""));
  }
}

} // namespace

void start_dry(size_t limit) {
  TORCH_CHECK(dry_limit() == 0, "Dry execution has started already.");
  TORCH_CHECK_VALUE(limit > 0, "The limit of dry execution must be at least 1 byte, but is ", limit, ".");
  auto& dispatcher = c10::Dispatcher::singleton();
  constexpr std::array<std::string_view, 14> kOwn = {
      "copy_",
      "_copy_from",
      "_copy_from_and_resize",
      "_local_scalar_dense",
      "equal",
      "empty",
      "empty_strided",
      "_efficientzerotensor",
      "set_",
      "resize_",
      "record_stream",
      "_has_compatible_shallow_copy_type",
      "lstm", // composed of others (RecurrentLayers.h)
      "gru"};
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    const bool is_own = std::any_of(kOwn.begin(), kOwn.end(), [&](std::string_view own) {
      return name.name.substr(name.name.find("::") + 2) == own;
    });
    if (op && !is_own && can_be_skipped(*op)) {
      put_in_front<Skipping>(*op);
    } else if (op && name.name.starts_with("aten::_foreach_") && op->hasComputedKernelForDispatchKey(identity.key)) {
      put_in_front<ForEach>(*op);
    }
  }
  put_in_front_of<Copying>({"aten::copy_", "aten::_copy_from", "aten::_copy_from_and_resize"});
  put_in_front_of<ReadingNumber>({"aten::_local_scalar_dense"});
  put_in_front_of<Comparing>({"aten::equal"});
  put_in_front_of<Counting>({"aten::histc", "aten::bincount"});
  put_in_front_of<MakingEmpty>({"aten::empty_strided"});
  put_in_front<MakingEmpty>(dispatcher.findSchemaOrThrow("aten::empty", "memory_format"));
  constexpr std::array<std::pair<const char*, const char*>, 10> kHost = {
      {{"aten::normal_", ""},
       {"aten::uniform_", ""},
       {"aten::zero_", ""},
       {"aten::exponential_", ""},
       {"aten::erfinv_", ""},
       {"aten::mul_", "Tensor"},
       {"aten::add_", "Tensor"},
       {"aten::div_", "Tensor"},
       {"aten::clamp_", ""},
       {"aten::copy_", ""}}};
  for (const auto& [name, overload] : kHost) {
    put_in_front_for<InitialisingHost>(c10::DispatchKey::CPU, dispatcher.findSchemaOrThrow(name, overload));
  }
  start_to_observe_undecided();
  limit_of_small_tensors = limit;
  orDryStart();
}

void set_matmul_workspace(size_t bytes) {
  matmul_workspace = bytes;
}

void set_context_memory(size_t bytes) {
  context_memory = bytes;
}

void assume_at(std::string line, std::vector<double> values) {
  TORCH_CHECK_VALUE(!values.empty(), "dry.assume() needs at least one value for ", line, ".");
  const std::lock_guard lock(reads_mutex);
  given_values()[std::move(line)] = {std::move(values)};
}

void assume(const Tensor& tensor, const Tensor& value) {
  TORCH_CHECK_VALUE(
      is_device_tensor(tensor) && tensor.layout() == kStrided,
      "dry.assume() takes a strided tensor of the device, but got one of the layout ",
      tensor.layout(),
      " on ",
      tensor.device(),
      ".");
  if (dry_limit() == 0 || !has_contents(tensor) || tensor.numel() == 0 || contents_of(tensor) == orContentsKnown) {
    return;
  }
  TORCH_CHECK_VALUE(
      is_small(tensor),
      "dry.assume() takes a tensor of at most ",
      dry_limit(),
      " bytes, but got one of ",
      tensor.nbytes(),
      " bytes: larger tensors have no values in dry execution.");
  const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
  tensor.copy_(value);
  set_contents(tensor, orContentsAssumed);
}

std::vector<AssumedRead> assumed_reads() {
  const std::lock_guard lock(reads_mutex);
  std::vector<AssumedRead> found;
  for (const auto& [where, count] : reads()) {
    found.push_back({where.first, where.second, count});
  }
  return found;
}

} // namespace at::openreg
