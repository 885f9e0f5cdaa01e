#include "simulator/dry/Undecided.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simulator/ThreadOwned.h"
#include "simulator/dry/CapturedSkip.h"
#include "simulator/dry/Clock.h"
#include "simulator/dry/Contents.h"

namespace at::openreg {
namespace {

// The bytes from the first to the last element of an operand.
struct OperandBytes {
  const char* begin;
  size_t size;
  bool is_dense;
  unsigned access;

  bool is_on_device() const {
    return size > 0 && orGetKernelPointer(begin) != begin;
  }

  orContents contents() const {
    return orDryContents(begin, size);
  }

  // Notes that all elements were written. Between them, other bytes keep what they contain.
  void mark(orContents written) const {
    orDryMark(begin, size, is_dense ? written : std::max(written, contents()));
  }
};

std::vector<OperandBytes> bytes_of(void (*operands)(void*, orOperandFn_t, void*), void* data) {
  std::vector<OperandBytes> found;
  const auto add = [](const orOperand* operand, void* context) {
    int64_t first = 0, last = 0;
    size_t elements = 1;
    for (int i = 0; i < operand->dims; ++i) {
      const int64_t span = operand->strides[i] * (operand->sizes[i] - 1);
      (span < 0 ? first : last) += span;
      elements *= static_cast<size_t>(operand->sizes[i]);
    }
    if (operand->data && elements > 0) {
      const size_t size = static_cast<size_t>(last - first) + operand->itemSize;
      static_cast<std::vector<OperandBytes>*>(context)->push_back(
          {static_cast<const char*>(operand->data) + first,
           size,
           elements * operand->itemSize >= size,
           operand->access});
    }
  };
  operands(data, add, &found);
  return found;
}

orContents contents_read(const std::vector<OperandBytes>& operands) {
  orContents read = orContentsKnown;
  for (const OperandBytes& each : operands) {
    if ((each.access & orAccessRead) && each.is_on_device()) {
      read = std::max(read, each.contents());
    }
  }
  return read;
}

void mark_written(const std::vector<OperandBytes>& operands, orContents contents) {
  for (const OperandBytes& each : operands) {
    if ((each.access & orAccessWrite) && each.is_on_device()) {
      each.mark(contents);
    }
  }
}

std::atomic<bool> answers_collectives{false};

bool is_collective(const orActivity& activity) {
  return std::string_view(activity.name).starts_with("occl:");
}

// ---- The calling thread

// A kernel that computes on this thread, from its begin to its end.
struct RunningKernel {
  uint64_t id;
  orContents read;
};

struct OfThread {
  int decided = 0;     // how many objects of the class Decided live
  std::string refusal; // of the last work; empty: it was not refused
  std::vector<RunningKernel> running;
};
thread_local constinit c10::openreg::ThreadOwned<OfThread> mine;

void refuse(std::string text) {
  mine->refusal = std::move(text);
  orActivityStop(orErrorNotSupported);
}

// Work begins. Returns what it reads.
orContents begin_work(const orActivity& activity, const std::vector<OperandBytes>& operands) {
  mine->refusal.clear();
  if (!activity.operands) {
    refuse(
        c10::str(
            "dry execution cannot run the kernel '",
            activity.name,
            "', which does not say what memory it reads (orLaunchDescribed)"));
    return orContentsKnown;
  }
  const orContents read = contents_read(operands);
  if (read != orContentsAbsent) {
    return is_collective(activity) ? orContentsAssumed : read; // other ranks write too
  }
  const bool is_copy = std::strcmp(activity.name, "memcpy") == 0;
  const bool stays_on_device =
      std::all_of(operands.begin(), operands.end(), [](const OperandBytes& operand) { return operand.is_on_device(); });
  if (!is_copy || !stays_on_device) {
    refuse(
        c10::str(
            "dry execution cannot skip '",
            activity.name,
            "', which would read large tensors that were not computed. It skips PyTorch's operators, copies, and the "
            "kernels of torch.compile"));
  }
  return read;
}

// Called in the order of the program: when a kernel begins and ends on this thread, and when other work is launched.
void observe(const orActivity* activity, void*) {
  const bool is_launch = activity->kind == orActivityLaunch;
  const bool is_on_this_thread = activity->kind == orActivityKernel && activity->correlation == 0;
  if (mine->decided > 0 || !(is_launch || is_on_this_thread) || cost_of_captured(*activity) != nullptr) {
    return;
  }
  std::vector<OperandBytes> operands;
  if (activity->operands) {
    operands = bytes_of(activity->operands, activity->data);
  }
  if (is_launch && is_collective(*activity) && answers_collectives) {
    for (const OperandBytes& each : operands) {
      if ((each.access & orAccessWrite) && each.is_on_device() && each.contents() != orContentsAbsent) {
        each.mark(orContentsAssumed);
      }
    }
  } else if (is_launch) {
    mark_written(operands, begin_work(*activity, operands));
  } else if (activity->phase == orActivityBegin) {
    mine->running.push_back({activity->id, begin_work(*activity, operands)});
  } else {
    auto& running = mine->running;
    const auto kernel = std::find_if(
        running.begin(), running.end(), [&](const RunningKernel& each) { return each.id == activity->id; });
    if (kernel != running.end()) {
      mark_written(operands, kernel->read);
      running.erase(kernel, running.end());
    }
  }
}

} // namespace

void start_to_observe_undecided() {
  orSubscriber_t subscriber = nullptr;
  // The calls are observed so that a kernel of this thread is known by its correlation.
  OPENREG_CHECK(
      orActivitySubscribe(&subscriber, &observe, nullptr, orActivityKernel | orActivityLaunch | orActivityCall));
}

void answer_collectives() {
  answers_collectives = true;
}

void raise_refusal() {
  const std::string text = std::exchange(mine->refusal, {});
  TORCH_CHECK_NOT_IMPLEMENTED(text.empty(), text, ".");
}

Decided::Decided() {
  ++mine->decided;
}

Decided::~Decided() {
  --mine->decided;
}

SkippedKernel::SkippedKernel(orStream_t stream, const orKernel& kernel) {
  if (!capture_skip(stream, kernel, cost_of_call())) {
    kernel_.emplace(stream, kernel.name, kernel.operands, kernel.data);
  }
}

bool skip_kernel(orStream_t stream, const orKernel& kernel) {
  const std::vector<OperandBytes> operands = bytes_of(kernel.operands, kernel.data);
  const bool fills_large = std::any_of(operands.begin(), operands.end(), [](const OperandBytes& each) {
    return each.access == orAccessWrite && each.size > dry_limit();
  });
  if (!fills_large && contents_read(operands) != orContentsAbsent) {
    return false;
  }
  const SkippedKernel skipped(stream, kernel);
  for (const OperandBytes& each : operands) {
    if (!(each.access & orAccessWrite)) {
      continue;
    }
    const bool is_large = each.size > dry_limit();
    const bool keeps_bytes = (each.access & orAccessRead) && each.contents() != orContentsAbsent;
    if (!is_large && !keeps_bytes) {
      std::memset(orGetKernelPointer(each.begin), 0, each.size);
    }
    each.mark(is_large ? orContentsAbsent : orContentsAssumed);
  }
  return true;
}

} // namespace at::openreg
