#include "distributed/CollectiveCall.h"

#include <ATen/ops/from_blob.h>
#include <openreg_activity.h>
#include <openreg_graph.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <algorithm>
#include <string>
#include <utility>

#include "distributed/InterpreterUse.h"
#include "runtime/OpenRegGraphsC10Utils.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegKernel.h"

namespace c10d::openreg {
namespace {

std::exception_ptr backend_error(const std::string& text) {
  try {
    C10_THROW_ERROR(DistBackendError, text);
  } catch (...) {
    return std::current_exception();
  }
}

} // namespace

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

static void visit_request(const CollectiveRequest& request, orOperandFn_t visit, void* context) {
  for (const at::Tensor& input : request.inputs) {
    c10::openreg::visit_tensor(*input.unsafeGetTensorImpl(), orAccessRead, visit, context);
  }
  for (const at::Tensor& output : request.outputs) {
    c10::openreg::visit_tensor(*output.unsafeGetTensorImpl(), orAccessWrite, visit, context);
  }
}

void RequestChain::visit(void* data, orOperandFn_t visit, void* context) {
  for (const auto& request : static_cast<const RequestChain*>(data)->requests) {
    visit_request(*request, visit, context);
  }
}

void RequestChain::launch(
    orStream_t stream, std::shared_ptr<CollectiveCall> call, std::vector<std::shared_ptr<CollectiveRequest>> requests) {
  const char* const name = name_of(call->type);
  auto chain = std::make_unique<RequestChain>(std::move(call), std::move(requests));
  if (orIsObserved(orActivityUse)) { // the chain keeps the tensors, as record_stream() would
    visit(
        chain.get(),
        [](const orOperand* operand, void* on) { orNoteUse(operand->data, static_cast<orStream_t>(on)); },
        stream);
  }
  const orKernel kernel{name, &RequestChain::visit, chain.get()};
  OPENREG_CHECK(orLaunchDeferred(stream, &RequestChain::begin, chain.get(), &kernel));
  chain.release();
}

void RequestChain::begin(void* data, orCompletion_t completion) {
  std::shared_ptr<RequestChain> chain(static_cast<RequestChain*>(data));
  chain->completion = completion;
  {
    const std::lock_guard lock(chain->call->mutex);
    WorkState& state = *chain->call->state;
    if (state.started == WorkState::Clock::time_point()) {
      state.started = WorkState::Clock::now();
    }
  }
  next(chain, 0);
  release(chain);
}

void RequestChain::next(const std::shared_ptr<RequestChain>& chain, size_t index) {
  if (index == chain->requests.size()) {
    chain->call->finish(chain->completion);
    return;
  }
  std::shared_ptr<CollectiveRequest> request = std::move(chain->requests[index]);
  CollectiveEngine::Done done = [chain, index, request](std::exception_ptr failure) mutable {
    chain->call->note(*request, failure);
    release(request);
    next(chain, index + 1);
  };
  try {
    chain->call->group->engine->start(request, done);
  } catch (...) {
    done(std::current_exception());
  }
  release(request);
  release(done);
}

// A tensor over the same bytes that does not keep them.
static at::Tensor without_owner(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.options());
}

// Starts the requests of a CapturedChain, as those of a new call.
static void begin_replay(void* data, orCompletion_t completion) {
  const auto& captured = *static_cast<const CapturedChain*>(data);
  const auto group = captured.group.lock();
  TORCH_CHECK(
      group,
      name_of(captured.type),
      ": the process group was destroyed after the capture. Capture the graph again with a new group.");
  auto state = std::make_shared<WorkState>();
  state->raised = group->raised();
  auto call = std::make_shared<CollectiveCall>(group, captured.type, captured.sequence, std::move(state), size_t{1});
  call->replayed = true;
  auto chain = std::make_unique<RequestChain>(std::move(call));
  for (const CollectiveRequest& request : captured.requests) {
    chain->requests.push_back(std::make_shared<CollectiveRequest>(request));
  }
  RequestChain::begin(chain.release(), completion);
}

void CapturedChain::launch(
    orStream_t stream, const CollectiveCall& call, const std::vector<std::shared_ptr<CollectiveRequest>>& requests) {
  auto chain = std::make_unique<CapturedChain>(call.group, call.type, call.sequence);
  for (const auto& request : requests) {
    CollectiveRequest& own = chain->requests.emplace_back(*request);
    std::transform(own.inputs.begin(), own.inputs.end(), own.inputs.begin(), &without_owner);
    std::transform(own.outputs.begin(), own.outputs.end(), own.outputs.begin(), &without_owner);
  }
  const auto visit = [](void* data, orOperandFn_t visit, void* context) {
    for (const CollectiveRequest& request : static_cast<const CapturedChain*>(data)->requests) {
      visit_request(request, visit, context);
    }
  };
  orStreamCaptureStatus status = orStreamCaptureStatusNone;
  orGraph_t graph = nullptr;
  OPENREG_CHECK(orStreamGetCaptureInfo(stream, &status, nullptr, &graph));
  CapturedChain* const node = c10::openreg::retain(graph, std::move(chain));
  const orKernel kernel{name_of(node->type), visit, node};
  OPENREG_CHECK(orLaunchDeferred(stream, &begin_replay, node, &kernel));
}

void CollectiveCall::note(const CollectiveRequest& request, const std::exception_ptr& exception) {
  const std::lock_guard lock(mutex);
  if (request.source >= 0) {
    state->source = request.source;
  }
  if (exception && !failure) {
    failure = explain(request, exception);
  }
}

// If a rank is out of memory, the calls of two ranks do not match, or the group was aborted, the error already says
// everything. Any other error may name only a connection or a rank, so this function adds the description of the
// collective.
std::exception_ptr CollectiveCall::explain(
    const CollectiveRequest& request, const std::exception_ptr& exception) const {
  try {
    std::rethrow_exception(exception);
  } catch (const c10::OutOfMemoryError&) {
    return exception;
  } catch (const occl::Error& error) {
    if (error.code == occl::Error::Code::duplicateDevice) {
      return backend_error(
          c10::str(
              c10::openreg::identity.collectives,
              " error: invalid usage. Duplicate ",
              c10::openreg::identity.out_of_memory.device,
              " detected : ",
              error.what(),
              " Call set_device() with LOCAL_RANK before the first collective."));
    }
    if (error.keepsStep()) {
      return backend_error(error.what());
    }
    return describe(request, error.what(), error.code == occl::Error::Code::timeout);
  } catch (const c10::Error& error) {
    return describe(request, error.what_without_backtrace(), /*timed_out=*/false);
  } catch (const std::exception& error) {
    return describe(request, error.what(), /*timed_out=*/false);
  }
}

std::exception_ptr CollectiveCall::describe(const CollectiveRequest& request, const char* error, bool timed_out) const {
  group->error = timed_out ? ErrorType::TIMEOUT : ErrorType::COMM_ERROR;
  return backend_error(
      c10::str(
          "[Rank ",
          group->rank,
          timed_out ? "] collective operation timeout: Work" : "] collective operation failed: Work",
          c10::openreg::identity.collectives,
          "(SeqNum=",
          request.sequence,
          ", OpType=",
          opTypeToString(request.type),
          ", TensorShape=",
          c10::IntArrayRef(request.shape),
          ", Timeout(ms)=",
          request.timeout.count(),
          "). ",
          timed_out ? "Another rank has not called this collective, has called a different one, or has exited. "
                    : "Another rank has exited, or its part of the collective has timed out or was aborted. ",
          error));
}

void CollectiveCall::finish(orCompletion_t completion) {
  if (--running != 0) {
    orCompletionSignal(completion, nullptr);
    return;
  }
  const auto keep = group; // all other references to the GroupState may be dropped before this function returns
  if (failure && keep->error == ErrorType::SUCCESS) {
    keep->error = ErrorType::COMM_ERROR;
  }
  keep->extension.end_call(owned_extension);
  state->finish(failure);
  if (keep->hook) {
    keep->hook.add(
        std::make_shared<WorkInfo>(
            type,
            sequence,
            state->started,
            state->finished,
            std::chrono::duration<float>(state->finished - state->started)));
  }
  orCompletionSignal(completion, replayed && failure && state->raised->may_raise(failure) ? &failure : nullptr);
  state->complete_futures();
  if (keep->hook) {
    keep->hook.call();
  }
}

} // namespace c10d::openreg
