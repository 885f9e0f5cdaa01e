#include "simulator/borrowed/queue/Queue.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>

#include "aten/native/InlineOrQueued.h"
#include "aten/native/NondeterminismChecks.h"
#include "runtime/OpenRegObserver.h"
#include "simulator/borrowed/KernelScope.h"
#include "simulator/borrowed/queue/Eligibility.h"
#include "simulator/borrowed/queue/Operands.h"
#include "simulator/borrowed/queue/QueuedKernel.h"

namespace at::openreg {
namespace {

// Returns false if the meta kernel throws or warns (for example, that an output is resized). Such a call is not queued:
// the CPU kernel runs on the calling thread, and throws or warns there. No program catches a warning of the device's
// thread.
bool run_meta(const c10::KernelFunction& kernel, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  struct Refusal final : c10::WarningHandler {
    void process(const c10::Warning& warning) override {
      TORCH_CHECK(false, warning.msg());
    }
  };
  static Refusal refusal;
  const c10::WarningUtils::WarningHandlerGuard guard(&refusal);
  try {
    kernel.callBoxed(op, c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
    return true;
  } catch (const std::exception&) {
    return false; // if the call has an error, the CPU's kernel raises it, in its own words
  }
}

const bool registered = [] {
  set_is_queueable(&can_be_queued);
  return true;
}();

} // namespace

bool try_queue(const c10::OperatorHandle& op, c10::DeviceIndex device, torch::jit::Stack& stack, CallKind kind) {
  const QueueRule rule = queue_rule_of(op); // a copy: a nested call may add a rule, which moves all rules
  if (rule.results == QueueRule::Results::Unknown || device < 0 ||
      (C10_UNLIKELY(globalContext().deterministicAlgorithms()) && has_nondeterminism_check(op))) {
    return false;
  }
  const c10::FunctionSchema& schema = op.schema();
  const auto& arguments = schema.arguments();
  const size_t first = stack.size() - arguments.size();
  const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
  run_backward_on_this_thread();

  QueuedOperands operands(arguments.size());
  c10::openreg::OpenRegGeneratorImpl* generator = nullptr;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (C10_UNLIKELY(i == rule.generator)) {
      generator = &c10::openreg::generator_of(stack[first + i].toOptional<Generator>(), device);
      operands.for_meta.emplace_back();
      operands.for_kernel.emplace_back(generator->queued_generator());
    } else if (!operands.add(stack[first + i], arguments[i])) {
      return false;
    }
  }
  torch::jit::Stack& results = operands.for_meta;
  if (rule.meta) {
    if (!run_meta(*rule.meta, op, results)) {
      return false;
    }
    operands.resize_empty_outputs();
  } else {
    if (rule.results == QueueRule::Results::InPlace && !operands.fit_the_first()) {
      return false;
    }
    results.resize(schema.returns().size());
  }
  if (!operands.can_write()) {
    return false;
  }

  auto kernel = std::make_unique<QueuedKernel>(op, std::move(operands.for_kernel), kind);
  size_t written = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    if (schema.returns()[i].alias_info()) { // this result is the next argument that `op` writes
      while (!(arguments[written].alias_info() && arguments[written].alias_info()->isWrite())) {
        ++written;
      }
      results[i] = stack[first + written++];
      continue;
    }
    Tensor meta = std::move(results[i]).toTensor();
    if (!meta.defined()) { // a gradient that the caller did not ask for
      kernel->add_result();
      results[i] = std::move(meta);
      continue;
    }
    if (!meta.is_meta() || meta.is_conj() || meta.is_neg() || !meta.is_non_overlapping_and_dense()) {
      return false;
    }
    c10::openreg::notify_new_tensor(meta.dtype());
    auto memory = c10::openreg::make_storage(
        at::detail::computeStorageNbytes(meta.sizes(), meta.strides(), meta.element_size()), device);
    Reserved& reserved = kernel->add_result();
    reserved.memory = c10::openreg::cpu_view_of(memory.get());
    reserved.shape.set_sizes(meta.sizes());
    reserved.shape.set_strides(meta.strides());
    reserved.dtype = meta.dtype();
    Tensor result = relabel(std::move(meta), std::move(memory));
    results[i] = std::move(result);
  }
  const c10::Stream stream = c10::openreg::getCurrentOpenRegStream(device);
  std::unique_ptr<QueuedWork> work = std::move(kernel);
  if (generator) {
    generator->launch_on(stream, [&] { return launch(stream, work, orLaunchNoWait); });
  } else {
    launch(stream, work);
  }
  torch::jit::drop(stack, arguments.size());
  std::move(results.begin(), results.end(), std::back_inserter(stack));
  return true;
}

void queue_cpu_kernel(c10::Stream stream, const c10::OperatorHandle& op, torch::jit::Stack&& operands) {
  std::unique_ptr<QueuedWork> kernel =
      std::make_unique<QueuedKernel>(op, std::move(operands), CallKind(nullptr)); // copy_ has no result of its own
  launch(stream, kernel);
}

} // namespace at::openreg
