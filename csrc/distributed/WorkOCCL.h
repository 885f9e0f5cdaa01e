#pragma once

#include <c10/core/Stream.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <mutex>

#include "runtime/OpenRegStream.h"

// LITERALINCLUDE START: WORK RULES
// A collective that was called, as ProcessGroupNCCL's Work has it.
//
// Rule: wait() makes the current stream wait, not the host; what is launched afterwards sees the result. The host waits only
// in inline execution, for a barrier, and if a timeout is given.
//
// A failure belongs to whoever waits: wait() also queues a launch that raises it, so the next call that synchronises with
// the stream, such as .item(), raises. If the Work has gone without wait(), the stream that was current in the call fails
// instead: DDP, which keeps only the future, must not train on with wrong gradients.
// LITERALINCLUDE END: WORK RULES
namespace c10d::openreg {

// What the Work and the running collective share.
struct WorkState : std::enable_shared_from_this<WorkState> {
  using Clock = std::chrono::steady_clock;

  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  bool heard = false;          // somebody waits, or has asked: the failure is theirs
  bool dropped = false;        // the Work has gone
  orStream_t caller = nullptr; // the stream that was current in the call
  std::exception_ptr failure;
  int source = -1;
  Clock::time_point started;
  Clock::time_point finished;
  c10::intrusive_ptr<c10::ivalue::Future> future; // to be completed at the end
  c10::intrusive_ptr<c10::ivalue::Future> result;
  std::vector<at::Tensor> outputs; // of the future

  void finish(std::exception_ptr exception);
  // Callbacks of the futures run here, and may call collectives and wait for them: the stream must have gone on before.
  void complete_futures();
};

class WorkOCCL final : public Work {
 public:
  // `event` is recorded behind the collective; the work destroys it. `blocks`: wait() waits on the host.
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

// Makes `stream` raise the failure of the work, if it fails, at the next call that waits for the stream.
void raise_on_stream(orStream_t stream, std::shared_ptr<WorkState> state);

} // namespace c10d::openreg
