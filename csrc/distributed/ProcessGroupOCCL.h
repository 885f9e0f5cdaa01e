#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <limits>
#include <map>

#include "CompletionHook.h"
#include "Engine.h"
#include "WorkOCCL.h"
#include "runtime/OpenRegFunctions.h"
#include "runtime/TorchVersion.h"

// LITERALINCLUDE START: PROCESS GROUP RULES
// torch.distributed's backend for the device, with the semantics of ProcessGroupNCCL.
//
// Each group has a communication stream, on which its collectives run in the order of their calls. It has another
// stream for each peer and direction of send and recv. A call makes the communication stream wait for the current
// stream, and queues one deferred item there (orLaunchDeferred). The item starts the engine when the stream comes to
// it, and completes when the engine is done. A coalesced call queues an item on each stream that it needs, so messages
// between two ranks arrive in the order of the calls.
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
  // The settings of NCCL's communicators that programs change. They have no effect here.
  struct Config {
    static constexpr int kUndefined = std::numeric_limits<int>::min(); // NCCL_CONFIG_UNDEF_INT
    int blocking = kUndefined;
    int cga_cluster_size = kUndefined;
    int min_ctas = kUndefined;
    int max_ctas = kUndefined;
    int split_share = kUndefined;
    int traffic_class = kUndefined;
    std::string net_name;
  };

  struct OPENREG_API Options : Backend::Options {
    explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout) : Backend::Options("occl", timeout) {}
    bool is_high_priority_stream = false;
    Config config;
#if OPENREG_TORCH_AT_LEAST(2, 14)
    // When PyTorch splits a group, it copies the group's options, sets the new group's name in the copy, and passes the
    // copy to split().
    c10::intrusive_ptr<Backend::Options> clone() const override {
      return c10::make_intrusive<Options>(*this);
    }
#endif
  };

  // `gloo` is a process group of the same ranks.
  ProcessGroupOCCL(
      c10::intrusive_ptr<Store> store,
      c10::intrusive_ptr<Backend> gloo,
      int rank,
      int size,
      c10::intrusive_ptr<Options> options);
  ~ProcessGroupOCCL() override;

  // Makes a gloo group. Python sets the function, because only Python can make a gloo group.
  using MakeGloo = std::function<c10::intrusive_ptr<Backend>(
      c10::intrusive_ptr<Store> store, int rank, int size, std::chrono::milliseconds timeout)>;
  static MakeGloo make_gloo;

  // The prefix of a group's keys in the store.
  static std::string store_prefix();

  const std::string getBackendName() const override {
    return "occl";
  }
  c10::intrusive_ptr<Backend::Options> getBackendOptions() override {
    return options_;
  }
  c10::intrusive_ptr<Options> options() {
    return options_;
  }
  bool supportsSplitting() const override {
    return true;
  }
  // How many groups were split from this one.
  uint64_t split_count() const {
    return split_count_;
  }
  bool supportsCoalescing() const override {
    return true;
  }
  void setTimeout(std::chrono::milliseconds timeout) override;
  // Adds this time to the timeout of the next collective only.
  void add_ephemeral_timeout(std::chrono::milliseconds timeout) {
    ephemeral_timeout_ += timeout;
  }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override {
    return sequence_;
  }
  ErrorType getError() override {
    return error_;
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
  void startCoalescing() override;
  c10::intrusive_ptr<Work> endCoalescing() override;

  c10::intrusive_ptr<Work> broadcast(std::vector<at::Tensor>& tensors, const BroadcastOptions& options) override;
  c10::intrusive_ptr<Work> allreduce(std::vector<at::Tensor>& tensors, const AllreduceOptions& options) override;
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
  // A chain is a list of requests that run one after the other. Each chain has a key, which is the key of its stream.
  // The chains of one call run at the same time.
  using Chains = std::map<std::string, std::vector<std::shared_ptr<Request>>>;
  struct Call;  // CollectiveCall.h
  struct Chain; // CollectiveCall.h

  static constexpr const char* kCollectives = ""; // the key of the stream and the chain of collectives

  std::shared_ptr<Request> make_request(
      Verb verb, OpType type, const at::Tensor& example, std::chrono::milliseconds timeout);
  c10::intrusive_ptr<Work> submit(
      const std::string& key, c10::Device device, std::shared_ptr<Request> request, std::vector<at::Tensor> outputs);
  c10::intrusive_ptr<Work> enqueue(
      OpType type, c10::Device device, uint64_t sequence, Chains chains, std::vector<at::Tensor> outputs);
  Engine& engine_for(const Request& request);
  orStream_t stream(const std::string& key, c10::Device device);
  std::vector<std::exception_ptr> end_raising();
  c10::intrusive_ptr<Work> coalesced(const std::function<void()>& calls);

  const c10::intrusive_ptr<Store> store_;
  const c10::intrusive_ptr<Backend> gloo_;
  const c10::intrusive_ptr<Options> options_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Engine> shared_engine_; // null unless all ranks share memory
  std::mutex mutex_;
  std::map<std::string, orStream_t> streams_;
  std::map<std::string, uint64_t> peer_sequences_;
  std::shared_ptr<RaisedFailures> raised_ = std::make_shared<RaisedFailures>();
  uint64_t sequence_ = 0;
  uint64_t split_count_ = 0;
  std::chrono::milliseconds ephemeral_timeout_{0};
  std::atomic<ErrorType> error_{ErrorType::SUCCESS};
  CompletionHook hook_;

  bool coalescing_ = false;
  Chains coalesced_;
  std::vector<at::Tensor> coalesced_outputs_;
  std::optional<c10::Device> coalesced_device_;
};

} // namespace c10d::openreg
