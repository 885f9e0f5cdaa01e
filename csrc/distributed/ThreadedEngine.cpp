#include "distributed/ThreadedEngine.h"

#include <ATen/ATen.h>

#include <utility>

#include "distributed/InterpreterUse.h"
#include "distributed/OcclRequest.h"

namespace c10d::openreg {
namespace {

// Replaces the inputs by new tensors, which are multiplied by the reduction's factor. PyTorch's multiplication would
// start an OpenMP team for each thread that waits for other ranks.
void multiply_inputs(CollectiveRequest& request) {
  const CollectiveReduction& reduction = request.reduction;
  if (reduction.factor == 1 && !reduction.factor_tensor.defined()) {
    return;
  }
  const double factor = reduction.factor_tensor.defined() ? reduction.factor_tensor.item<double>() : reduction.factor;
  for (at::Tensor& input : request.inputs) {
    const at::Tensor result = at::empty_like(input);
    const occl::DataType type = to_occl(input.scalar_type()).value();
    occl::multiply(type, result.data_ptr(), input.data_ptr(), factor, input.numel());
    input = result;
  }
}

} // namespace

void ThreadedEngine::start(std::shared_ptr<CollectiveRequest> request, Done done) {
  occl::runOnThread([self = shared_from_this(), request = std::move(request), done = std::move(done)]() mutable {
    std::exception_ptr failure;
    try {
      multiply_inputs(*request);
      self->run(*request);
    } catch (...) {
      failure = std::current_exception();
    }
    release(request); // before `done`, which tells the caller that the tensors are not used any more
    done(failure);
    release(done);
  });
}

} // namespace c10d::openreg
