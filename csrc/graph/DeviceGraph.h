#pragma once

#include <ATen/core/GraphImplInterface.h>
#include <openreg_graph.h>

#include <string>

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
//     only the default generator of the device takes part.
namespace c10::openreg {

class DeviceGraph final : public at::GraphImplInterface {
 public:
  explicit DeviceGraph(const at::GraphImplArgs& args) : keep_graph_(args.keep_graph) {}
  ~DeviceGraph() override;

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode mode) override;
  void capture_end() override;
  void instantiate() override;
  void replay() override;
  void reset() override;
  at::MempoolId_t pool() const override;
  void enable_debug_mode() override {
    debug_ = true;
  }
  void debug_dump(const std::string& path) override;

 private:
  const bool keep_graph_;
  bool debug_ = false;
  Stream stream_{Stream::DEFAULT, Device(identity.type, 0)}; // of the capture
  at::MempoolId_t pool_{0, 0};                               // {0, 0}: nothing is captured
  uint64_t capture_ = 0;                                     // the number of the running capture; 0: none runs
  bool draws_ = false;                                       // from the default generator
  orGraph_t graph_ = nullptr;
  orGraphExec_t exec_ = nullptr;

  void check_captured(const char* call) const;
  orError_t end_capture();
  void release_graph();
};

} // namespace c10::openreg
