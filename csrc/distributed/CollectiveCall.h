#pragma once

#include "ProcessGroupOCCL.h"

// One call of torch.distributed, which is one deferred item of a communication stream (orLaunchDeferred).
namespace c10d::openreg {

// "occl:all_reduce" and its like, for profiles.
const char* name_of(OpType type);

struct ProcessGroupOCCL::Call {
  c10::intrusive_ptr<ProcessGroupOCCL> group;
  c10::DeviceIndex device;
  OpType type;
  uint64_t sequence;
  Chains chains;
  std::shared_ptr<WorkState> state;
  orCompletion_t completion = nullptr;
  std::atomic<size_t> running{0}; // chains that are not done
  std::mutex mutex{};             // guards `failure` and the source in `state`
  std::exception_ptr failure{};   // the first one of the requests

  // An orKernel's `operands`: all tensors of all requests.
  static void visit(void* data, orOperandFn_t visit, void* context);

  // An orDeferredFn_t: starts all chains. `data` is a Call, and begin() takes it over.
  static void begin(void* data, orCompletion_t completion);

 private:
  // Starts request number `index` of a chain; when it is done, the one after it. After the last one, finishes the call
  // if all other chains are done as well.
  static void next(const std::shared_ptr<Call>& call, std::vector<std::shared_ptr<Request>> requests, size_t index);

  // Whether an injected fault drops this message (openreg_faults.h). Throws the failure of a fault.
  static bool meets_fault(c10::DeviceIndex device, const Request& request);

  // A request is done; `exception` is null, or says why it failed.
  void note(const Request& request, const std::exception_ptr& exception);

  // The exception that the user gets for the failure of an engine.
  std::exception_ptr explain(const Request& request, const std::exception_ptr& exception) const;

  // All requests are done: completes the work, the item of the stream, and the futures.
  void finish();
};

} // namespace c10d::openreg
