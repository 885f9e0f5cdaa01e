#include "simulator/borrowed/inductor/CompiledKernel.h"

#include <ATen/Parallel.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "simulator/borrowed/queue/QueuedWork.h"
#include "simulator/dry/Contents.h"
#include "simulator/dry/Undecided.h"

namespace at::openreg {
namespace {

// Whether the operand is a CPU scalar, pinned or not. The kernel gets the value at the launch, so the host may change
// the scalar afterwards.
bool is_host_scalar(const CompiledOperand& operand) {
  return operand.access == orAccessRead && operand.data && orGetKernelPointer(operand.data) == operand.data;
}

struct OperandList {
  const CompiledOperand* begin;
  size_t count;

  static void visit(void* self, orOperandFn_t visit, void* context) {
    const auto* operands = static_cast<const OperandList*>(self);
    for (size_t i = 0; i < operands->count; ++i) {
      const CompiledOperand& each = operands->begin[i];
      if (each.size > 0 && !is_host_scalar(each)) {
        const orOperand operand{each.data, static_cast<size_t>(each.size), 0, nullptr, nullptr, each.access};
        visit(&operand, context);
      }
    }
  }
};

// Throws if an operand has bytes but no memory (storage.resize_(0)), as check_missing_memory() does for an operator.
void check_memory(const CompiledOperand& operand, const char* kernel) {
  if (C10_UNLIKELY(!operand.data && operand.size > 0)) {
    const std::string call =
        c10::str(kernel, ": the storage of an operand with ", operand.size, " bytes was resized to 0 bytes");
    c10::openreg::throw_error(orErrorIllegalAddress, call.c_str());
  }
}

// Calls `run`, and adds the kernel's name to the message of an exception. Python gets the same type of exception as
// without the name, because generated code turns each std::exception into a RuntimeError.
void run_named(CompiledFn run, const void* body, void* const* data, const char* name, std::string_view launchedAt) {
  const auto place = [&] { return c10::str("raised by the compiled kernel ", name, launchedAt); };
  try {
    run(body, data);
  } catch (c10::Error& error) {
    error.add_context(place());
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(c10::str(error.what(), " (", place(), ")"));
  }
}

// A queued kernel, with copies of all host memory that the caller may change or free after the launch.
class QueuedCompiledKernel {
 public:
  QueuedCompiledKernel(
      const char* name, const CompiledOperand* operands, size_t count, CompiledFn run, const void* body, size_t size)
      : name_(name),
        run_(run),
        body_(static_cast<const char*>(body), static_cast<const char*>(body) + size),
        operands_(operands, operands + count) {
    for (const CompiledOperand& each : operands_) {
      check_memory(each, name);
      void* data = orGetKernelPointer(each.data);
      if (is_host_scalar(each)) {
        auto copy = std::make_unique<std::max_align_t[]>(each.size / sizeof(std::max_align_t) + 1);
        std::memcpy(copy.get(), data, each.size);
        data = copy.get();
        copies_.push_back(std::move(copy));
      }
      data_.push_back(data);
    }
  }

  const char* name() const {
    return name_;
  }

  void visit_operands(orOperandFn_t visit, void* context) const {
    OperandList operands{operands_.data(), operands_.size()};
    OperandList::visit(&operands, visit, context);
  }

  void run() const {
    settings_.apply();
    compute();
  }

  void replay() const {
    const LaunchSettings::Applied settings(settings_);
    compute();
  }

 private:
  const char* const name_;
  const CompiledFn run_;
  const c10::SmallVector<char, 64> body_;
  const c10::SmallVector<CompiledOperand, 8> operands_;
  c10::SmallVector<void*, 8> data_;
  std::vector<std::unique_ptr<std::max_align_t[]>> copies_;
  const LaunchSettings settings_;

  void compute() const {
    run_named(run_, body_.data(), data_.data(), name_, settings_.launched_at());
  }
};

} // namespace

} // namespace at::openreg

using namespace at::openreg;

// LITERALINCLUDE START: COMPILED LAUNCH
void torch_openreg_launch_compiled(
    int device,
    const char* name,
    const CompiledOperand* operands,
    size_t count,
    CompiledFn run,
    const void* body,
    size_t bodySize) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  run_backward_on_this_thread();
  OperandList described{operands, count};
  const auto stream = c10::openreg::getCurrentOpenRegStream(index);
  if (C10_UNLIKELY(dry_limit() > 0) && skip_kernel(stream.stream(), {name, &OperandList::visit, &described})) {
    return;
  }
  if (C10_UNLIKELY(!c10::openreg::executes_inline())) {
    auto kernel = std::make_unique<QueuedCompiledKernel>(name, operands, count, run, body, bodySize);
    launch(stream, kernel);
    return;
  }
  const c10::openreg::Kernel kernel(stream.stream(), name, &OperandList::visit, &described);
  c10::SmallVector<void*, 32> data;
  for (size_t i = 0; i < count; ++i) {
    check_memory(operands[i], name);
    data.push_back(orGetKernelPointer(operands[i].data));
  }
  run_named(run, body, data.data(), name, "");
}
// LITERALINCLUDE END: COMPILED LAUNCH
