#pragma once

#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <mutex>

#include "runtime/OpenRegStream.h"

// LITERALINCLUDE START: WORK RULES
// The Work of a collective, with the semantics of ProcessGroupNCCL's.
//
// Rule: wait() makes the current stream wait, and not the host. Kernels that are launched afterwards see the result.
// The host waits in three cases only: in inline execution, for a barrier, and if a timeout is given.
//
// A failure is raised where the program waits. wait() also queues a launch that raises the failure, so the next call
// that synchronises with the stream raises it, such as .item(). If the Work was deleted without wait(), the stream that
// was current in the call of the collective fails instead. DDP needs this: it keeps only the future, and must not train
// on with wrong gradients.
// LITERALINCLUDE END: WORK RULES
namespace c10d::openreg {

// The state that the Work and the running collective share.
struct WorkState : std::enable_shared_from_this<WorkState> {
  using Clock = std::chrono::steady_clock;

  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  bool heard = false;          // somebody has waited or asked, and gets the failure
  bool dropped = false;        // the Work was deleted
  orStream_t caller = nullptr; // the stream that was current in the call
  orStream_t stream = nullptr; // the collective's own stream
  std::exception_ptr failure;
  int source = -1;
  Clock::time_point started;
  Clock::time_point finished;
  c10::intrusive_ptr<c10::ivalue::Future> future; // of getFuture(), if it completes with the collective
  c10::intrusive_ptr<c10::ivalue::Future> result; // of getFutureResult()
  std::vector<at::Tensor> outputs;                // the values of `future`

  void finish(std::exception_ptr exception);
  // Runs the callbacks of the futures. They may call collectives and wait for them, so the stream must have gone on
  // before.
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
      bool blocks);
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

 private:
  void wait_on_host() const;
  void wait_on_stream(bool raises);

  const c10::Device device_;
  const uint64_t sequence_;
  const std::vector<at::Tensor> outputs_;
  const std::shared_ptr<WorkState> state_;
  const orEvent_t event_;
  const bool blocks_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// If the work fails, the next call that waits for `stream` raises the failure.
void raise_on_stream(orStream_t stream, std::shared_ptr<WorkState> state);

} // namespace c10d::openreg
