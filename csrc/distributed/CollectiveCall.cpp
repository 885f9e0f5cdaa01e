#include "CollectiveCall.h"

#include <openreg_faults.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <string_view>
#include <utility>

#include "Header.h"
#include "runtime/OpenRegKernel.h"

namespace c10d::openreg {

const char* name_of(OpType type) {
  switch (type) {
    case OpType::BROADCAST:
      return "occl:broadcast";
    case OpType::ALLREDUCE:
    case OpType::ALLREDUCE_COALESCED:
      return "occl:all_reduce";
    case OpType::REDUCE:
      return "occl:reduce";
    case OpType::ALLGATHER:
      return "occl:all_gather";
    case OpType::_ALLGATHER_BASE:
      return "occl:_all_gather_base";
    case OpType::GATHER:
      return "occl:gather";
    case OpType::SCATTER:
      return "occl:scatter";
    case OpType::REDUCE_SCATTER:
      return "occl:reduce_scatter";
    case OpType::_REDUCE_SCATTER_BASE:
      return "occl:_reduce_scatter_base";
    case OpType::ALLTOALL_BASE:
    case OpType::ALLTOALL:
      return "occl:all_to_all";
    case OpType::SEND:
      return "occl:send";
    case OpType::RECV:
    case OpType::RECVANYSOURCE:
      return "occl:recv";
    case OpType::BARRIER:
      return "occl:barrier";
    default:
      return "occl:coalesced";
  }
}

void ProcessGroupOCCL::Call::visit(void* data, orOperandFn_t visit, void* context) {
  for (const auto& [key, requests] : static_cast<const Call*>(data)->chains) {
    for (const auto& request : requests) {
      for (const at::Tensor& input : request->inputs) {
        c10::openreg::visit_tensor(*input.unsafeGetTensorImpl(), orAccessRead, visit, context);
      }
      for (const at::Tensor& output : request->outputs) {
        c10::openreg::visit_tensor(*output.unsafeGetTensorImpl(), orAccessWrite, visit, context);
      }
    }
  }
}

void ProcessGroupOCCL::Call::begin(void* data, orCompletion_t completion) {
  const std::shared_ptr<Call> call(static_cast<Call*>(data));
  call->completion = completion;
  call->state->started = WorkState::Clock::now();
  Chains chains = std::move(call->chains); // the last chain may finish, and delete the call, within this loop
  call->running = chains.size();
  for (auto& [key, requests] : chains) {
    next(call, std::move(requests), 0);
  }
}

void ProcessGroupOCCL::Call::next(
    const std::shared_ptr<Call>& call, std::vector<std::shared_ptr<Request>> requests, size_t index) {
  if (index == requests.size()) {
    if (--call->running == 0) {
      call->finish();
    }
    return;
  }
  std::shared_ptr<Request> request = std::move(requests[index]);
  Engine::Done done = [call, requests = std::move(requests), index, request](std::exception_ptr failure) mutable {
    call->note(*request, failure);
    request.reset();
    next(call, std::move(requests), index + 1);
  };
  try {
    if (meets_fault(call->device, *request)) {
      done(nullptr);
    } else {
      call->group->engine_for(*request).start(request, done);
    }
  } catch (...) {
    done(std::current_exception());
  }
}

bool ProcessGroupOCCL::Call::meets_fault(c10::DeviceIndex device, const Request& request) {
  size_t size = 0;
  for (const at::Tensor& tensor : request.inputs.empty() ? request.outputs : request.inputs) {
    size += tensor.nbytes();
  }
  bool is_dropped = false;
  OPENREG_CHECK(orRequestMessage(device, size, &is_dropped));
  return is_dropped;
}

void ProcessGroupOCCL::Call::note(const Request& request, const std::exception_ptr& exception) {
  const std::lock_guard lock(mutex);
  if (request.source >= 0) {
    state->source = request.source;
  }
  if (exception && !failure) {
    failure = explain(request, exception);
  }
}

// Errors of memory and mismatches are complete sentences. An error of gloo speaks of a connection only, so this
// function adds the collective.
std::exception_ptr ProcessGroupOCCL::Call::explain(const Request& request, const std::exception_ptr& exception) const {
  try {
    std::rethrow_exception(exception);
  } catch (const c10::OutOfMemoryError&) {
    return exception;
  } catch (const Refusal&) {
    return exception;
  } catch (const std::exception& error) {
    const std::string_view text(error.what());
    const bool timed_out =
        text.find("imed out") != std::string_view::npos || text.find("timeout") != std::string_view::npos;
    group->error_ = timed_out ? ErrorType::TIMEOUT : ErrorType::COMM_ERROR;
    try {
      C10_THROW_ERROR(
          DistBackendError,
          c10::str(
              "[Rank ",
              group->getRank(),
              timed_out ? "] collective operation timeout: WorkOCCL(SeqNum="
                        : "] collective operation failed: WorkOCCL(SeqNum=",
              request.sequence,
              ", OpType=",
              opTypeToString(request.type),
              ", TensorShape=",
              c10::IntArrayRef(request.shape),
              ", Timeout(ms)=",
              request.timeout.count(),
              "). ",
              timed_out ? "Another rank has not called it, calls another collective, or has ended. "
                        : "Another rank has ended, or has given up. ",
              text));
    } catch (...) {
      return std::current_exception();
    }
  }
}

void ProcessGroupOCCL::Call::finish() {
  const auto keep = group; // may be the last reference
  if (failure && keep->error_ == ErrorType::SUCCESS) {
    keep->error_ = ErrorType::COMM_ERROR;
  }
  state->finish(failure);
  if (keep->hook_) {
    keep->hook_.add(
        std::make_shared<WorkInfo>(
            type,
            sequence,
            state->started,
            state->finished,
            std::chrono::duration<float>(state->finished - state->started)));
  }
  orCompletionSignal(completion, nullptr);
  state->complete_futures();
  if (keep->hook_) {
    keep->hook_.call();
  }
}

} // namespace c10d::openreg
