#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "distributed/CollectiveQueue.h"
#include "distributed/GroupOptions.h"
#include "distributed/GroupState.h"

// LITERALINCLUDE START: PROCESS GROUP RULES
// torch.distributed's backend for the device, with the semantics of ProcessGroupNCCL.
//
// Each group has a communication stream on each device, on which its collectives run in the order of their calls. It
// has another stream for each peer and direction of send and recv. A call makes the communication stream wait for the
// current stream, and queues one deferred item there (orLaunchDeferred). The item starts the engine when the stream
// comes to it, and completes when the engine is done. A coalesced call queues an item on each stream that it needs, so
// messages between two ranks arrive in the order of the calls.
//
// Rule: no communication stream comes from PyTorch's pool, because two streams of the pool may share a queue. If a send
// and a recv shared a queue, the recv would wait for the send. Two ranks that send to each other before they receive
// could then hang.
//
// The engine holds the storages until it is done. So the caching allocator cannot reuse their memory too early, and
// nobody needs to call record_stream.
// LITERALINCLUDE END: PROCESS GROUP RULES
namespace c10d::openreg {

class OPENREG_API ProcessGroupOCCL final : public Backend {
 public:
  using Options = GroupOptions;
  using Config = Options::Config;

  // Waits for the other ranks. The group's keys in the store have a prefix.
  ProcessGroupOCCL(const c10::intrusive_ptr<Store>& store, int rank, int size, c10::intrusive_ptr<Options> options);
  ~ProcessGroupOCCL() override;

  const std::string getBackendName() const override {
    return "occl";
  }
  c10::intrusive_ptr<Backend::Options> getBackendOptions() override {
    return options_;
  }
  c10::intrusive_ptr<Options> options() {
    return options_;
  }
#ifdef C10D_HAS_BACKEND_CAPABILITIES
  BackendCapabilities capabilities() const override {
    return {BackendCapability::Splitting, BackendCapability::Coalescing};
  }
#else
  bool supportsSplitting() const override {
    return true;
  }
  bool supportsCoalescing() const override {
    return true;
  }
#endif
  // How many groups were split from this one.
  uint64_t split_count() const {
    return split_count_;
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    options_->timeout = timeout;
  }
  // Adds this time to the timeouts of later calls, until the first of them is complete. Virtual since PyTorch 2.14.
  void addEphemeralTimeout(const std::chrono::milliseconds& timeout) {
    group_->extension.add(timeout);
  }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override {
    return queue_.sequence();
  }
  ErrorType getError() override {
    return group_->error;
  }
  void registerOnCompletionHook(std::function<void(std::shared_ptr<WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override;
  void enableCollectivesTiming() override {}
  void abort() override;
  void shutdown() override;
  c10::intrusive_ptr<Backend> split(
      const c10::intrusive_ptr<Store>& store,
      const std::vector<int>& ranks,
      const c10::intrusive_ptr<Backend::Options>& options) override;
  void startCoalescing() override {
    queue_.start_coalescing();
  }
  c10::intrusive_ptr<Work> endCoalescing() override;

  c10::intrusive_ptr<Work> broadcast(std::vector<at::Tensor>& tensors, const BroadcastOptions& options) override;
  c10::intrusive_ptr<Work> allreduce(std::vector<at::Tensor>& tensors, const AllreduceOptions& options) override;
  // Throws, as ProcessGroupNCCL does.
  c10::intrusive_ptr<Work> allreduce_sparse(std::vector<at::Tensor>& tensors, const AllreduceOptions& options) override;
  c10::intrusive_ptr<Work> allreduce_coalesced(
      std::vector<at::Tensor>& tensors, const AllreduceCoalescedOptions& options) override;
  c10::intrusive_ptr<Work> reduce(std::vector<at::Tensor>& tensors, const ReduceOptions& options) override;
  c10::intrusive_ptr<Work> allgather(
      std::vector<std::vector<at::Tensor>>& outputs,
      std::vector<at::Tensor>& inputs,
      const AllgatherOptions& options) override;
  c10::intrusive_ptr<Work> _allgather_base(
      at::Tensor& output, at::Tensor& input, const AllgatherOptions& options) override;
  c10::intrusive_ptr<Work> allgather_into_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs, const AllgatherOptions& options) override;
  c10::intrusive_ptr<Work> reduce_scatter(
      std::vector<at::Tensor>& outputs,
      std::vector<std::vector<at::Tensor>>& inputs,
      const ReduceScatterOptions& options) override;
  c10::intrusive_ptr<Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const ReduceScatterOptions& options) override;
  c10::intrusive_ptr<Work> reduce_scatter_tensor_coalesced(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs, const ReduceScatterOptions& options) override;
  c10::intrusive_ptr<Work> alltoall_base(
      at::Tensor& output,
      at::Tensor& input,
      std::vector<int64_t>& output_splits,
      std::vector<int64_t>& input_splits,
      const AllToAllOptions& options) override;
  c10::intrusive_ptr<Work> alltoall(
      std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs, const AllToAllOptions& options) override;
  c10::intrusive_ptr<Work> gather(
      std::vector<std::vector<at::Tensor>>& outputs,
      std::vector<at::Tensor>& inputs,
      const GatherOptions& options) override;
  c10::intrusive_ptr<Work> scatter(
      std::vector<at::Tensor>& outputs,
      std::vector<std::vector<at::Tensor>>& inputs,
      const ScatterOptions& options) override;
  c10::intrusive_ptr<Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override;
  c10::intrusive_ptr<Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override;
  c10::intrusive_ptr<Work> recvAnysource(std::vector<at::Tensor>& tensors, int tag) override;
  c10::intrusive_ptr<Work> barrier(const BarrierOptions& options) override;

 private:
  const c10::intrusive_ptr<Store> store_; // of this group's keys
  const c10::intrusive_ptr<Options> options_;
  const std::shared_ptr<GroupState> group_;
  CollectiveQueue queue_;
  uint64_t split_count_ = 0;
};

} // namespace c10d::openreg
