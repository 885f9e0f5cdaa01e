#pragma once

#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <mutex>

#include "runtime/OpenRegStream.h"

// LITERALINCLUDE START: WORK RULES
// The Work of a collective, with the semantics of ProcessGroupNCCL's Work.
//
// Rule: wait() makes the current stream wait, and not the host. Kernels that are launched afterwards see the result.
// The host waits in three cases only: in inline execution, for a barrier, and if a timeout is given.
//
// If wait() makes the host wait, it raises the failure. Otherwise it queues a host function that raises the failure, so
// the next call that synchronises with the stream, such as .item(), raises the failure. If the Work was deleted before
// anybody waited for it or read its failure, the stream that was current in the call of the collective fails instead.
// DDP needs this: it keeps only the future, and must not train on with wrong gradients. After the group's end
// (destroy_process_group(), abort()) no stream raises a failure of a collective that was called before the end.
// LITERALINCLUDE END: WORK RULES
namespace c10d::openreg {

struct CollectiveRequest;

// The failures of a group's collectives that became failures of the program's streams. After the group's end no call
// may raise them, because the next work on those streams has nothing to do with the group.
class RaisedFailures final {
 public:
  // Returns whether a stream may raise the failure: true until end() is called. If true, keeps the failure for end().
  bool may_raise(const std::exception_ptr& failure);
  // The group calls this function when it ends. From then on no stream raises a failure of the collectives that share
  // this object. Returns the failures that no call has reported yet.
  std::vector<std::exception_ptr> end();

 private:
  std::mutex mutex_;
  std::vector<std::exception_ptr> failures_;
  bool ended_ = false;
};

// The state that the Work and the running collective share.
struct WorkState : std::enable_shared_from_this<WorkState> {
  using Clock = std::chrono::steady_clock;

  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  // Whether something reports the failure: a wait, the stream that waits, exception(), or, with `host_waits`, the future
  // of getFuture().
  bool reported = false;
  bool captured = false;       // a node of a graph, which runs at each replay; no part of this object changes then
  bool dropped = false;        // the Work was deleted
  orStream_t caller = nullptr; // the stream that was current in the call
  orStream_t stream = nullptr; // the collective's own stream
  // In inline execution, operators run in the calling thread, so the host waits for the collective.
  bool host_waits = false;
  std::shared_ptr<RaisedFailures> raised;
  std::exception_ptr failure;
  int source = -1;
  Clock::time_point started;
  Clock::time_point finished;
  c10::intrusive_ptr<c10::ivalue::Future> future; // of getFuture(), if it completes with the collective
  c10::intrusive_ptr<c10::ivalue::Future> result; // of getFutureResult()
  std::vector<at::Tensor> outputs;                // the values of `future`
  // In a capture, what keeps the tensors until a stream waits: until then no other tensor of the capture may get their
  // memory. Without a capture, the running collective keeps them.
  std::vector<std::shared_ptr<CollectiveRequest>> operands;

  void finish(std::exception_ptr exception);
  // Runs the callbacks of the futures. The callbacks may call collectives and wait for them. So the item that the
  // collective has in its stream's queue must be complete before this call (orCompletionSignal, see orLaunchDeferred).
  void complete_futures();
};

class WorkOCCL final : public Work {
 public:
  // `event` is recorded after the collective; the Work destroys it. `blocks`: wait() makes the host wait.
  WorkOCCL(
      int rank,
      OpType type,
      c10::Device device,
      uint64_t sequence,
      std::vector<at::Tensor> outputs,
      std::shared_ptr<WorkState> state,
      orEvent_t event,
      bool blocks,
      std::chrono::milliseconds timeout);
  ~WorkOCCL() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void blockCurrentStream() override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  uint64_t getSequencenumber() const override;
  std::chrono::milliseconds getTimeout() const; // virtual since PyTorch 2.14

 private:
  void wait_on_host() const;
  void wait_on_stream(bool raises);

  const c10::Device device_;
  const uint64_t sequence_;
  const std::vector<at::Tensor> outputs_;
  const std::shared_ptr<WorkState> state_;
  const orEvent_t event_;
  const bool blocks_;
  const std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// If the work fails, the next call that waits for `stream` raises the failure, unless the group has ended before.
void raise_on_stream(orStream_t stream, std::shared_ptr<WorkState> state);

} // namespace c10d::openreg
