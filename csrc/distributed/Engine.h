#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

// LITERALINCLUDE START: ENGINE
// An engine moves the bytes between ranks. ProcessGroupOCCL turns each call of torch.distributed into a Request, and
// gives the Request to an engine when the communication stream reaches it. The engine knows nothing about streams. It
// gets the data as CPU tensors.
//
// Rule: start() returns at once. `done` is called exactly once, on any thread: with nullptr when the outputs are
// complete and the inputs may change, or with the failure. If start() waited, it would delay the host functions of all
// other streams. Two ranks would hang if the first transfer of each rank waited for the second transfer of the other.
namespace c10d::openreg {

struct Reduction {
  ReduceOp::RedOpType op = ReduceOp::UNUSED; // SUM, PRODUCT, MIN or MAX
  int64_t divisor = 1;                       // the result is divided by this number (AVG of integers)
  double factor = 1;                         // the inputs are multiplied by this number (PREMUL_SUM, AVG) ...
  at::Tensor factor_tensor;                  // ... or by this tensor of one element, if it is defined
};

// The tensors are flat CPU tensors over the device's bytes. n: a vector with one tensor for each rank.
//
//              inputs            outputs
//   broadcast  {tensor}          {tensor}          input and output are the same bytes; from `root`
//   allreduce  {tensor}          {tensor}          input and output are the same bytes
//   reduce     {tensor}          {tensor}          input and output are the same bytes; written at `root` only
//   allgather  {tensor}          n                 their sizes may differ
//   reduce_scatter  n            {tensor}          their sizes may differ
//   alltoall   n                 n                 their sizes may differ
//   gather     {tensor}          n at `root`
//   scatter    n at `root`       {tensor}
//   send       {tensor}                            to the rank `root`
//   recv                         {tensor}          from the rank `root`; -1: from any
//   barrier
//
// If the reduction has a factor, ThreadedEngine replaces the inputs by multiplied copies before the engine runs.
enum class Verb : uint8_t {
  broadcast,
  allreduce,
  reduce,
  allgather,
  reduce_scatter,
  alltoall,
  gather,
  scatter,
  send,
  recv,
  barrier
};

// Whether a rank that gets data computes it from the data of all ranks.
constexpr bool reduces(Verb verb) {
  return verb == Verb::allreduce || verb == Verb::reduce_scatter || verb == Verb::reduce;
}

// Whether only the root sends data.
constexpr bool is_from_root(Verb verb) {
  return verb == Verb::broadcast || verb == Verb::scatter;
}

// Whether only the root gets data.
constexpr bool is_to_root(Verb verb) {
  return verb == Verb::reduce || verb == Verb::gather;
}

struct Request {
  Verb verb;
  OpType type;           // the function that was called; the ranks compare it
  uint64_t sequence = 0; // the same on all ranks; send and recv are numbered for each peer and direction
  int root = -1;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  Reduction reduction{};
  std::chrono::milliseconds timeout{};
  std::vector<int64_t> shape; // the shape of the user's tensor, for messages
  at::ScalarType dtype = at::ScalarType::Undefined;
  ReduceOp::RedOpType op = ReduceOp::UNUSED;
  int source = -1; // the sender; the engine sets it in recv
};

class Engine {
 public:
  using Done = std::function<void(std::exception_ptr)>;

  virtual ~Engine() = default;
  virtual void start(std::shared_ptr<Request> request, Done done) = 0;
  // Makes all pending requests fail, and all requests that are started later.
  virtual void abort() = 0;
};

} // namespace c10d::openreg
// LITERALINCLUDE END: ENGINE
