#pragma once

#include <ATen/core/Tensor.h>
#include <occl.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// LITERALINCLUDE START: ENGINE
// An engine moves the bytes between ranks. ProcessGroupOCCL turns each call of torch.distributed into a
// CollectiveRequest, and gives it to an engine when the communication stream reaches it. The engine knows nothing about
// streams. It gets the data as CPU tensors.
//
// Rule: start() returns at once. `done` is called exactly once, on any thread: with nullptr when the outputs are
// complete and the inputs may change, or with the failure. If start() waited, it would delay the host functions of all
// other streams. Two ranks would hang if the first transfer of each rank waited for the second transfer of the other.
namespace c10d::openreg {

using occl::Verb;

struct CollectiveReduction {
  ReduceOp::RedOpType op = ReduceOp::UNUSED; // SUM, PRODUCT, MIN or MAX
  int64_t divisor = 1;                       // the result is divided by this number (AVG of integers)
  double factor = 1;                         // the inputs are multiplied by this number (PREMUL_SUM, AVG) ...
  at::Tensor factor_tensor;                  // ... or by this tensor of one element, if it is defined
};

// The tensors are flat CPU tensors over the device's bytes. occl.h says which tensors each verb has. The input and the
// output of an allreduce, a reduce and a broadcast are the same bytes.
struct CollectiveRequest {
  Verb verb;
  OpType type;           // the function that was called; the ranks compare it
  uint64_t sequence = 0; // the same on all ranks; send and recv are numbered for each peer and direction
  int root = -1;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  CollectiveReduction reduction{};
  std::chrono::milliseconds timeout{};
  c10::DeviceIndex device = 0;
  occl::RankPlace place{};    // of `device`
  std::vector<int64_t> shape; // the shape of the user's tensor, for messages
  at::ScalarType dtype = at::ScalarType::Undefined;
  ReduceOp::RedOpType op = ReduceOp::UNUSED;
  int source = -1; // the sender; the engine sets it in recv
};

class CollectiveEngine {
 public:
  // The failure is an occl::Error, which tells a timeout and a mismatch of two ranks' calls from other failures, or any
  // other exception.
  using Done = std::function<void(std::exception_ptr)>;

  virtual ~CollectiveEngine() = default;
  // Called by the thread of the program for each request, before the request is queued. What it throws, the program gets.
  virtual void prepare(const CollectiveRequest& /*request*/) {}
  virtual void start(std::shared_ptr<CollectiveRequest> request, Done done) = 0;
  // Whether start() calls `done` before it returns.
  virtual bool completes_at_once() const {
    return false;
  }
  // Makes all pending requests fail, and all requests that are started later.
  virtual void abort() = 0;
};

// The ranks of a new group. The constructor of a group fills this in, and waits for the other ranks.
struct Ranks {
  c10::intrusive_ptr<Store> store; // for keys of this group only
  int rank;
  int size;
  std::chrono::milliseconds timeout; // of the waits for other ranks while the group is made
  occl::Placement placement;         // the communicator is null if some ranks of one host cannot share memory
};

// Makes the engine of a new group. OCCL_TRANSPORT and the hosts of the ranks decide which engine it is. Waits for the
// other ranks.
std::shared_ptr<CollectiveEngine> make_engine(
    const c10::intrusive_ptr<Store>& store, int rank, int size, std::chrono::milliseconds timeout);

// Adds a transport for ranks that share no memory, under its name in OCCL_TRANSPORT. To be called while the library is
// loaded.
using MakeEngine = std::shared_ptr<CollectiveEngine> (*)(const Ranks& ranks);
void register_transport(const char* name, MakeEngine make);

// Sets a function that gets each new engine, and returns the engine that the group uses in its place. To be called
// while the library is loaded.
using WrapEngine = std::shared_ptr<CollectiveEngine> (*)(std::shared_ptr<CollectiveEngine> engine);
void set_engine_wrapper(WrapEngine wrap);

// Sets the function that makes the engine of each group from now on, whatever OCCL_TRANSPORT says.
void set_engine_maker(MakeEngine make);

} // namespace c10d::openreg
// LITERALINCLUDE END: ENGINE
