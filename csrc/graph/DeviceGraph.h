#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/GraphImplInterface.h>
#include <c10/core/Stream.h>
#include <openreg_graph.h>

#include <exception>
#include <string>
#include <vector>

#include "runtime/OpenRegException.h"
#include "runtime/OpenRegIdentity.h"

// Graphs of the device for PyTorch, as at::cuda::CUDAGraph. torch.accelerator.Graph makes an object of this class.
//
// Rules:
//   - While a stream captures, executes_inline() is false in all threads. So operators launch their kernels, and the
//     device library makes a node of each launch on that stream. It refuses a kernel that the calling thread computes.
//   - A node keeps addresses, sizes and strides, and no memory of the device. Memory that is allocated in the capture
//     comes from the graph's pool, which keeps the addresses as long as the graph lives.
//   - A kernel that draws random numbers draws them when it runs. So each replay continues the sequence of its
//     generator, as eager calls would. The graph orders its replays with all other uses of the generator. As on CUDA,
//     the default generator of the device takes part, and those that register_generator_state() names; since PyTorch
//     2.14, all that draw.
namespace c10::openreg {

class OPENREG_API DeviceGraph final : public at::GraphImplInterface {
 public:
  explicit DeviceGraph(const at::GraphImplArgs& args) : keep_graph_(args.keep_graph) {}
  ~DeviceGraph() override;
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode mode) override;
  void capture_end() override;
  // The two halves of capture_end(): between them the graph is instantiated, unless it is kept.
  void capture_end_pre();
  void capture_end_post();
  void instantiate() override;
  void replay() override;
  void reset() override;
  at::MempoolId_t pool() const override;
  void enable_debug_mode() override {
    debug_ = true;
  }
  void debug_dump(const std::string& path) override;

  // The id of a pool that belongs to graphs only (PoolSet::is_of_graph()).
  static at::MempoolId_t new_pool();

  // What torch.cuda.CUDAGraph has besides. A generator must be registered before the capture, and until reset().
  void register_generator_state(const at::Generator& generator);
  // A kernel of this capture draws from a generator that is not registered. Registers the generator's state.
  static void register_state(uint64_t capture, at::Generator state);
  // The graph that captures on the current stream. Throws if there is none.
  static DeviceGraph& currently_capturing();
  // Until reset(), the pool does not give its memory back, as the graph's own pool.
  void retain_pool(at::MempoolId_t pool);
  std::vector<at::MempoolId_t> pools() const; // the graph's own pool first
  // A conditional node: a replay skips what is captured between the two calls if `predicate` is false then. Here random
  // numbers are refused.
  void begin_conditional(const at::Tensor& predicate);
  void end_conditional();
  bool keeps_graph() const {
    return keep_graph_;
  }
  orGraph_t graph() const { // null: not captured yet, or not kept
    return graph_;
  }
  orGraphExec_t exec() const { // null: not instantiated
    return exec_;
  }

 private:
  const bool keep_graph_;
  bool debug_ = false;
  Stream stream_{Stream::DEFAULT, Device(identity.type, 0)}; // of the capture
  at::MempoolId_t pool_{0, 0};                               // {0, 0}: nothing is captured
  uint64_t capture_ = 0;                                     // the number of the running capture; 0: none runs
  std::vector<at::Generator> generators_;                    // after the capture, those from which its kernels draw
  std::vector<c10::DataPtr> random_states_;                  // CUDA's seed and offset of each generator; never read
  std::vector<at::MempoolId_t> retained_;                    // pools
  std::vector<uint64_t> draws_before_bodies_;                // captured_draws(), of the open conditional nodes
  orGraph_t graph_ = nullptr;
  orGraphExec_t exec_ = nullptr;

  void check_captured(const char* call) const;
  void order_with_draws(Stream stream) const;
  void make_random_states();
  uint64_t captured_draws() const;
  std::exception_ptr end_capture();
  void release_graph();
  void release_pools();
};

} // namespace c10::openreg
