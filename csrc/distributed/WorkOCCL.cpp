#include "distributed/WorkOCCL.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/stack.h>
#include <c10/util/ScopeExit.h>
#include <openreg_activity.h>
#include <openreg_launch.h>
#include <openreg_progress.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <optional>

#include "distributed/InterpreterUse.h"
#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegIdentity.h"

namespace c10d::openreg {
namespace {

c10::intrusive_ptr<c10::ivalue::Future> tensor_future(std::vector<c10::Device> devices) {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
}

// The future of an all_gather, if the tensors of all ranks have the same shape. As in NCCL, its value is a list of one
// tensor, which stacks the tensors of all ranks. DDP's hooks that quantize need this.
c10::intrusive_ptr<c10::ivalue::Future> stacked(c10::ivalue::Future& gathered) {
  return gathered.then(
      [](c10::ivalue::Future& done) {
        return c10::IValue(std::vector<at::Tensor>{at::stack(done.value().toTensorVector())});
      },
      gathered.elementType());
}

bool have_one_size(const std::vector<at::Tensor>& tensors) {
  return std::all_of(
      tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) { return tensor.sizes() == tensors[0].sizes(); });
}

void complete(c10::ivalue::Future& future, const WorkState& state) {
  if (state.failure) {
    future.setError(state.failure);
  } else {
    future.markCompleted(c10::IValue(state.outputs));
  }
}

void complete_result(c10::ivalue::Future& future, const WorkState& state) {
  const WorkResult result = state.failure ? WorkResult::COMM_ERROR : WorkResult::SUCCESS;
  future.markCompleted(c10::IValue(static_cast<int64_t>(result)));
}

} // namespace

bool RaisedFailures::may_raise(const std::exception_ptr& failure) {
  const std::lock_guard lock(mutex_);
  if (ended_) {
    return false;
  }
  failures_.push_back(failure);
  return true;
}

std::vector<std::exception_ptr> RaisedFailures::end() {
  std::vector<std::exception_ptr> unreported;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    unreported.swap(failures_);
  }
  std::erase_if(unreported, [](const std::exception_ptr& failure) {
    int dropped = 0;
    OPENREG_CHECK(orDropFailure(failure, &dropped));
    return dropped == 0;
  });
  return unreported;
}

void WorkState::finish(std::exception_ptr exception) {
  bool unreported;
  {
    const std::lock_guard lock(mutex);
    failure = std::move(exception);
    finished = Clock::now();
    done = true;
    unreported = failure && dropped && !reported;
  }
  changed.notify_all();
  if (unreported) {
    raise_on_stream(caller, shared_from_this());
  }
}

void WorkState::complete_futures() {
  const InterpreterUse use; // until the futures and their callbacks have been destroyed
  c10::intrusive_ptr<c10::ivalue::Future> waiting;
  c10::intrusive_ptr<c10::ivalue::Future> waiting_result;
  {
    const std::lock_guard lock(mutex);
    waiting = std::move(future);
    waiting_result = std::move(result);
  }
  if (!use && (waiting || waiting_result)) {
    outlast_interpreter();
  }
  if (waiting) {
    orNoteWait(stream, nullptr); // notifies the observers of the device: the callbacks run after the collective
    complete(*waiting, *this);
  }
  if (waiting_result) {
    complete_result(*waiting_result, *this);
  }
}

void raise_on_stream(orStream_t stream, std::shared_ptr<WorkState> state) {
  auto* const kept = new std::shared_ptr<WorkState>(std::move(state));
  const auto raise = [](void* data) {
    const std::unique_ptr<std::shared_ptr<WorkState>> work(static_cast<std::shared_ptr<WorkState>*>(data));
    const auto end = c10::make_scope_exit([&] { release(*work); });
    if ((*work)->failure && (*work)->raised->may_raise((*work)->failure)) {
      std::rethrow_exception((*work)->failure);
    }
  };
  if (orLaunchHostFunc(stream, raise, kept) != orSuccess) {
    delete kept; // the stream was destroyed, or there is no memory or no thread for the function: the failure is lost
  }
}

WorkOCCL::WorkOCCL(
    int rank,
    OpType type,
    c10::Device device,
    uint64_t sequence,
    std::vector<at::Tensor> outputs,
    std::shared_ptr<WorkState> state,
    orEvent_t event,
    bool blocks,
    std::chrono::milliseconds timeout)
    : Work(rank, type),
      device_(device),
      sequence_(sequence),
      outputs_(std::move(outputs)),
      state_(std::move(state)),
      event_(event),
      blocks_(blocks),
      timeout_(timeout) {}

WorkOCCL::~WorkOCCL() {
  orEventDestroy(event_);
  bool unreported;
  {
    const std::lock_guard lock(state_->mutex);
    state_->dropped = true;
    unreported = state_->failure && !state_->reported;
  }
  if (unreported) {
    raise_on_stream(state_->caller, state_);
  }
}

bool WorkOCCL::isCompleted() {
  orEventQuery(event_); // lets a device run that only runs what is asked for: a program may poll
  bool done;
  {
    const std::lock_guard lock(state_->mutex);
    done = state_->done;
  }
  if (done) {
    orNoteWait(nullptr, event_); // notifies the observers of the device: the host knows: the collective is done
  }
  return done;
}

bool WorkOCCL::isSuccess() const {
  const std::lock_guard lock(state_->mutex);
  return state_->done && !state_->failure;
}

std::exception_ptr WorkOCCL::exception() const {
  const std::lock_guard lock(state_->mutex);
  state_->reported = state_->reported || state_->failure;
  return state_->failure;
}

int WorkOCCL::sourceRank() const {
  wait_on_host();
  return state_->source;
}

std::vector<at::Tensor> WorkOCCL::result() {
  return outputs_;
}

void WorkOCCL::wait_on_host() const {
  OPENREG_CHECK(orEventSynchronize(event_)); // releases Python's interpreter lock while it waits
  if (const std::exception_ptr failure = exception()) {
    std::rethrow_exception(failure);
  }
}

void WorkOCCL::synchronize() {
  wait_on_stream(/*raises=*/true);
}

// Makes the current stream wait for the collective. `raises`: a failure of the collective becomes a failure of the
// stream. With `host_waits` the host waits instead if `raises` is true, and throws the failure.
void WorkOCCL::wait_on_stream(bool raises) {
  c10::openreg::check_not_forked();
  if (c10d::allow_inflight_collective_as_graph_input()) {
    c10d::unregister_work(c10::intrusive_ptr<WorkOCCL>::unsafe_reclaim_from_nonowning(this));
  }
  bool has_succeeded;
  {
    const std::lock_guard lock(state_->mutex);
    state_->reported = true;
    has_succeeded = state_->done && !state_->failure;
  }
  // The stream waits also if the collective is done: observers of the device must learn the order from the program, and
  // not from the timing of this run.
  if (state_->host_waits) {
    if (raises) { // otherwise wait() waits
      wait_on_host();
    }
    return;
  }
  const orStream_t stream = c10::openreg::getCurrentOpenRegStream(device_.index()).stream();
  OPENREG_CHECK(orStreamWaitEvent(stream, event_, 0));
  if (state_->captured) {
    state_->operands.clear();
  } else if (raises && !has_succeeded) {
    raise_on_stream(stream, state_);
  }
}

void WorkOCCL::blockCurrentStream() {
  synchronize();
}

bool WorkOCCL::wait(std::chrono::milliseconds timeout) {
  const bool blocks = blocks_ || timeout != kNoTimeout;
  wait_on_stream(/*raises=*/!blocks);
  if (timeout != kNoTimeout) {
    OPENREG_CHECK(orEventFlush(event_));
    std::unique_lock lock(state_->mutex);
    const bool done = state_->changed.wait_for(lock, timeout, [&] { return state_->done; });
    lock.unlock();
    TORCH_CHECK_WITH(
        DistBackendError,
        done,
        "Work wait timed out after ",
        timeout.count(),
        " ms: Work",
        c10::openreg::identity.collectives,
        "(SeqNum=",
        sequence_,
        ", OpType=",
        opTypeToString(opType_),
        ").");
  }
  if (blocks) {
    wait_on_host();
  }
  return true;
}

void WorkOCCL::abort() {
  TORCH_CHECK(false, "WorkOCCL::abort not implemented."); // as in WorkNCCL
}

// As on CUDA, the future is complete at once for the host. Its values are valid on a stream of the pool that waits for
// the collective, and PyTorch makes the streams of callbacks and of the future's wait() wait for that stream. With
// `host_waits` the future completes with the collective, because nothing else would wait for the collective.
c10::intrusive_ptr<c10::ivalue::Future> WorkOCCL::getFuture() {
  const bool host_waits = state_->host_waits;
  const c10::intrusive_ptr<c10::ivalue::Future> completed = tensor_future({device_});
  {
    const std::lock_guard lock(state_->mutex);
    if (future_) {
      return future_;
    }
  }
  // Before `future_` is set: if this fails, the next call must not return a future that never completes.
  std::optional<c10::Stream> stream;
  if (!host_waits) {
    stream = c10::openreg::getStreamFromPool(/*priority=*/0, device_.index());
    OPENREG_CHECK(orStreamWaitEvent(c10::openreg::OpenRegStream(*stream).stream(), event_, 0));
  }
  {
    const std::lock_guard lock(state_->mutex);
    if (future_) {
      return future_;
    }
    future_ = opType_ == OpType::ALLGATHER && have_one_size(outputs_) ? stacked(*completed) : completed;
    state_->outputs = outputs_;
    state_->reported = state_->reported || host_waits; // the future then reports the failure
    if (host_waits && !state_->done) {
      state_->future = completed;
      return future_;
    }
  }
  if (host_waits) {
    orNoteWait(nullptr, event_);
    complete(*completed, *state_);
    return future_;
  }
  const auto before = c10::openreg::getCurrentOpenRegStream(device_.index());
  c10::openreg::setCurrentOpenRegStream(c10::openreg::OpenRegStream(*stream));
  completed->markCompleted(c10::IValue(outputs_));
  c10::openreg::setCurrentOpenRegStream(before);
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> WorkOCCL::getFutureResult() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->done) {
      return state_->result ? state_->result : (state_->result = future);
    }
  }
  complete_result(*future, *state_);
  return future;
}

float WorkOCCL::getDuration() const {
  const std::lock_guard lock(state_->mutex);
  return std::chrono::duration<float, std::milli>(state_->finished - state_->started).count();
}

uint64_t WorkOCCL::getSequencenumber() const {
  return sequence_;
}

std::chrono::milliseconds WorkOCCL::getTimeout() const {
  return timeout_;
}

} // namespace c10d::openreg
