#include "simulator/borrowed/queue/Queue.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/nonzero.h>

#include <exception>

#include "aten/native/InlineOrQueued.h"
#include "aten/native/NondeterminismChecks.h"
#include "runtime/OpenRegGraphsC10Utils.h"
#include "runtime/OpenRegObserver.h"
#include "simulator/ResultShapes.h"
#include "simulator/borrowed/KernelScope.h"
#include "simulator/borrowed/queue/Eligibility.h"
#include "simulator/borrowed/queue/MetaKernels.h"
#include "simulator/borrowed/queue/Operands.h"
#include "simulator/borrowed/queue/QueuedKernel.h"
#include "simulator/borrowed/queue/ScratchShapes.h"
#include "simulator/borrowed/random/RandomKernels.h"

namespace at::openreg {
namespace {

// Returns false if the meta kernel throws or warns (for example, that an output is resized). Such a call is not queued:
// the CPU kernel runs on the calling thread, and throws or warns there. No program catches a warning of the device's
// thread.
bool run_meta(const c10::KernelFunction& kernel, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  struct ThrowWarnings final : c10::WarningHandler {
    void process(const c10::Warning& warning) override {
      TORCH_CHECK(false, warning.msg());
    }
  };
  static ThrowWarnings handler;
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  try {
    kernel.callBoxed(op, c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
    return true;
  } catch (const std::exception&) {
    return false; // if the call has an error, the CPU's kernel raises it, in its own words
  }
}

bool cannot_be_queued(const c10::OperatorHandle& op, const QueueRule& rule, bool is_captured) {
  return rule.results == QueueRule::Results::Unknown ||
         (rule.results == QueueRule::Results::PyTorchMeta && !is_captured) ||
         (C10_UNLIKELY(globalContext().deterministicAlgorithms()) && has_nondeterminism_check(op));
}

// On CUDA, the columns of indices that a mask of the CPU stands for come to the device through pinned memory, without a
// wait (native/IndexingUtils.h: expandTensors()). So a graph keeps the mask of the capture.
c10::List<std::optional<Tensor>> split_host_masks(const Tensor& self, const c10::List<std::optional<Tensor>>& indices) {
  c10::List<std::optional<Tensor>> columns;
  for (const std::optional<Tensor>& index : indices) {
    if (!index || !index->is_cpu() || (index->scalar_type() != kBool && index->scalar_type() != kByte)) {
      columns.push_back(index);
      continue;
    }
    const auto first = static_cast<int64_t>(columns.size());
    for (int64_t i = 0; i < index->dim(); ++i) {
      TORCH_CHECK_INDEX(
          first + i < self.dim() && index->size(i) == self.size(first + i),
          "The shape of the mask ",
          index->sizes(),
          " at index ",
          i,
          " does not match the shape of the indexed tensor ",
          self.sizes(),
          " at index ",
          first + i);
    }
    for (const Tensor& column : at::nonzero(*index).unbind(1)) {
      columns.push_back(std::optional<Tensor>(column));
    }
  }
  return columns;
}

// The arguments of a call on the stack, which stay there until the kernel is launched.
struct QueuedCall {
  const c10::OperatorHandle& op;
  const c10::DeviceIndex device;
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  const c10::IValue* const values;
};

// Whether the call fills what one mask selects with a number of the host, as `x[mask] = 0.0` does. On CUDA this is
// masked_fill_(), which does not wait, so a capture takes the call.
bool fills_a_mask(const QueuedCall& call) {
  if (call.op.operator_name().name != "aten::_index_put_impl_") {
    return false;
  }
  const auto indices = call.values[1].toOptionalTensorList();
  const Tensor& value = call.values[2].toTensor();
  return indices.size() == 1 && indices.get(0).has_value() && value.is_cpu() && value.numel() == 1 &&
         !call.values[3].toBool();
}

// Adds all arguments to the operands. `generator`: the generator from which the kernel draws, if there is one. Returns
// false if a call with such an argument is not queued.
bool add_operands(
    const QueuedCall& call,
    const QueueRule& rule,
    QueuedOperands& operands,
    c10::openreg::OpenRegGeneratorImpl*& generator) {
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    if (C10_UNLIKELY(i == rule.generator)) {
      generator = &c10::openreg::generator_of(call.values[i].toOptional<Generator>(), call.device);
      operands.for_meta.emplace_back();
      operands.for_kernel.emplace_back(generator->queued_generator());
    } else if (!operands.add(call.values[i], call.arguments[i])) {
      return false;
    }
  }
  return true;
}

// Replaces the operands in `operands.for_meta` by the results: meta tensors, or no values if the results are arguments.
// Returns false if the shapes may cause an error.
bool infer_results(const c10::OperatorHandle& op, const QueueRule& rule, QueuedOperands& operands) {
  if (rule.meta) {
    if (!run_meta(*rule.meta, op, operands.for_meta)) {
      return false;
    }
    operands.resize_outputs(/*only_empty=*/true);
  } else {
    if (rule.results == QueueRule::Results::InPlace && !operands.fit_the_first()) {
      return false;
    }
    operands.for_meta.resize(op.schema().returns().size());
  }
  return operands.can_write();
}

// Replaces the operands in `operands.for_meta` by the results of a captured call. A capture has no other way for a call
// than the queue, so here it does not matter how long the answer takes. If PyTorch's meta kernel fails and the CPU's
// kernel does not, then there is no meta kernel, or it does not know the call. An error or a warning is raised at once.
// A kernel that is not PyTorch's is not computed: the sizes of its results may depend on values.
void infer_captured_shapes(const c10::OperatorHandle& op, QueuedOperands& operands) {
  std::exception_ptr error;
  try {
    operands.for_meta = result_shapes(op, operands.for_meta, /*is_computed=*/true).results;
    return;
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      traits_of(op.schema()).builtin, "no meta kernel of ", op.operator_name(), " knows the call");
  try {
    compute_shapes(op, operands);
  } catch (const std::exception&) {
    std::rethrow_exception(error);
  }
}

// As infer_results(), for a call that is captured. Returns false if the device cannot tell the shapes.
bool infer_captured_results(const c10::OperatorHandle& op, const QueueRule& rule, QueuedOperands& operands) {
  operands.check_overlap();
  if (rule.results == QueueRule::Results::WrittenLists ||
      (rule.results == QueueRule::Results::InPlace && operands.fit_the_first())) {
    operands.for_meta.resize(op.schema().returns().size());
    return true;
  }
  try {
    infer_captured_shapes(op, operands);
  } catch (const c10::NotImplementedError&) {
    return false;
  }
  operands.resize_outputs(/*only_empty=*/false);
  return operands.can_write();
}

// Replaces each value of `results` by the result that the call returns: the argument that `op` writes, or a new tensor
// with the shape of the meta tensor. Returns false if the device has no such tensor.
bool make_results(const QueuedCall& call, torch::jit::Stack& results, QueuedKernel& kernel) {
  size_t written = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    if (call.op.schema().returns()[i].alias_info()) { // this result is the next argument that `op` writes
      while (!(call.arguments[written].alias_info() && call.arguments[written].alias_info()->isWrite())) {
        ++written;
      }
      results[i] = call.values[written++];
      continue;
    }
    Tensor meta = std::move(results[i]).toTensor();
    if (!meta.defined()) { // a gradient that the caller did not ask for
      kernel.add_result();
      results[i] = std::move(meta);
      continue;
    }
    if (!meta.is_meta() || meta.is_conj() || meta.is_neg() || !meta.is_non_overlapping_and_dense()) {
      return false;
    }
    results[i] = make_result(std::move(meta), call.device, kernel.add_result());
  }
  return true;
}

const bool registered = [] {
  set_is_queueable(&can_be_queued);
  set_meta_kernels(&meta_kernel);
  return true;
}();

} // namespace

bool try_queue(const c10::OperatorHandle& op, c10::DeviceIndex device, torch::jit::Stack& stack, CallKey key) {
  const QueueRule rule = queue_rule_of(op);
  if (device < 0) {
    return false;
  }
  const c10::Stream stream = c10::openreg::getCurrentOpenRegStream(device);
  const bool is_captured = c10::openreg::capture_of(stream) != 0;
  if (cannot_be_queued(op, rule, is_captured)) {
    return false;
  }
  const size_t count = op.schema().arguments().size();
  const QueuedCall call{.op = op, .device = device, .values = stack.data() + stack.size() - count};
  for (size_t i = 0; is_captured && i < count; ++i) {
    if (call.values[i].isOptionalTensorList()) {
      stack[stack.size() - count + i] =
          split_host_masks(call.values[0].toTensor(), call.values[i].toOptionalTensorList());
    }
  }
  const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
  run_backward_on_this_thread();

  QueuedOperands operands(count);
  operands.takes_masks = is_captured && fills_a_mask(call);
  c10::openreg::OpenRegGeneratorImpl* generator = nullptr;
  if (!add_operands(call, rule, operands, generator)) {
    return false;
  }
  if (!(is_captured ? infer_captured_results(op, rule, operands) : infer_results(op, rule, operands))) {
    return false;
  }
  auto kernel = std::make_unique<QueuedKernel>(
      op, std::move(operands.for_kernel), key, generator && draws_as_gpu ? &random_kernel(op) : nullptr);
  torch::jit::Stack& results = operands.for_meta;
  if (!make_results(call, results, *kernel)) {
    return false;
  }
  if (generator) {
    generator->launch_on(stream, [&] { return launch(stream, kernel, orLaunchNoWait); });
  } else {
    launch(stream, kernel);
  }
  torch::jit::drop(stack, count);
  std::move(results.begin(), results.end(), std::back_inserter(stack));
  return true;
}

void queue_cpu_kernel(c10::Stream stream, const c10::OperatorHandle& op, torch::jit::Stack&& operands) {
  auto kernel =
      std::make_unique<QueuedKernel>(op, std::move(operands), CallKey(nullptr)); // copy_ has no result of its own
  launch(stream, kernel);
}

} // namespace at::openreg
