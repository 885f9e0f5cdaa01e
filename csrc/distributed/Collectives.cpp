#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <utility>

#include "distributed/Arguments.h"
#include "distributed/ProcessGroupOCCL.h"
#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegIdentity.h"

// The collectives of ProcessGroupOCCL. Each function checks its arguments, and submits a request for an engine.
namespace c10d::openreg {

// ---- reductions

c10::intrusive_ptr<Work> ProcessGroupOCCL::allreduce(
    std::vector<at::Tensor>& tensors, const AllreduceOptions& options) {
  const at::Tensor& tensor = check_single(tensors);
  const TypedReduction how = reduction_of(options.reduceOp, tensor, size_, "all_reduce");
  auto request = queue_.make_request(Verb::allreduce, OpType::ALLREDUCE, tensor, options.timeout);
  set_reduction(*request, options.reduceOp, how);
  request->inputs = request->outputs = {flat_view(tensor, how.dtype)};
  return queue_.submit({}, tensor.device(), std::move(request), tensors);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::allreduce_sparse(
    std::vector<at::Tensor>& /*tensors*/, const AllreduceOptions& /*options*/) {
  TORCH_CHECK(
      false,
      c10::openreg::identity.collectives,
      " does not support all_reduce with sparse tensors. Please use dense tensors instead.");
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::allreduce_coalesced(
    std::vector<at::Tensor>& tensors, const AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "Tensor list must be nonempty");
  return queue_.coalesced([&] {
    for (const at::Tensor& tensor : tensors) {
      std::vector<at::Tensor> one{tensor};
      allreduce(one, options);
    }
  });
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::reduce(std::vector<at::Tensor>& tensors, const ReduceOptions& options) {
  const at::Tensor& tensor = check_single(tensors);
  check_root(options.rootRank, size_);
  const TypedReduction how = reduction_of(options.reduceOp, tensor, size_, "reduce");
  auto request = queue_.make_request(Verb::reduce, OpType::REDUCE, tensor, options.timeout);
  set_reduction(*request, options.reduceOp, how);
  request->root = static_cast<int>(options.rootRank);
  request->inputs = request->outputs = {flat_view(tensor, how.dtype)};
  return queue_.submit({}, tensor.device(), std::move(request), tensors);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const ReduceScatterOptions& options) {
  TORCH_CHECK_TYPE(input.dtype() == output.dtype(), "input tensor must be the same type as the output tensor.");
  TORCH_CHECK_VALUE(
      input.numel() == output.numel() * size_, "input tensor must be the same size as output size times world size");
  check_tensor(output);
  check_tensor(input);
  const TypedReduction how = reduction_of(options.reduceOp, input, size_, "reduce_scatter_tensor");
  auto request = queue_.make_request(Verb::reduce_scatter, OpType::_REDUCE_SCATTER_BASE, output, options.timeout);
  set_reduction(*request, options.reduceOp, how);
  request->inputs = pieces(flat_view(input, how.dtype), {}, size_, size_);
  request->outputs = {flat_view(output, how.dtype)};
  return queue_.submit({}, output.device(), std::move(request), {output});
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::reduce_scatter(
    std::vector<at::Tensor>& outputs,
    std::vector<std::vector<at::Tensor>>& inputs,
    const ReduceScatterOptions& options) {
  const at::Tensor& output = check_single(outputs);
  TORCH_CHECK_VALUE(inputs.size() == 1, "Expecting one list of tensors only but got ", inputs.size());
  check_list(inputs[0], size_, output.scalar_type());
  TORCH_CHECK_VALUE(
      inputs[0][rank_].numel() == output.numel(),
      "Tensor operand to reduce_scatter must have the size of the output: input ",
      rank_,
      " has ",
      inputs[0][rank_].numel(),
      " elements and the output ",
      output.numel());
  const TypedReduction how = reduction_of(options.reduceOp, output, size_, "reduce_scatter");
  auto request = queue_.make_request(Verb::reduce_scatter, OpType::REDUCE_SCATTER, output, options.timeout);
  set_reduction(*request, options.reduceOp, how);
  for (const at::Tensor& input : inputs[0]) {
    request->inputs.push_back(flat_view(input, how.dtype));
  }
  request->outputs = {flat_view(output, how.dtype)};
  return queue_.submit({}, output.device(), std::move(request), outputs);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::reduce_scatter_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs, const ReduceScatterOptions& options) {
  return queue_.coalesced([&] {
    for (size_t i = 0; i < outputs.size(); ++i) {
      _reduce_scatter_base(outputs[i], inputs.at(i), options);
    }
  });
}

// ---- movement of bytes

c10::intrusive_ptr<Work> ProcessGroupOCCL::broadcast(
    std::vector<at::Tensor>& tensors, const BroadcastOptions& options) {
  const at::Tensor& tensor = check_single(tensors);
  check_root(options.rootRank, size_);
  auto request = queue_.make_request(Verb::broadcast, OpType::BROADCAST, tensor, options.timeout);
  request->root = static_cast<int>(options.rootRank);
  request->inputs = request->outputs = {bytes_of(tensor)};
  return queue_.submit({}, tensor.device(), std::move(request), tensors);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::_allgather_base(
    at::Tensor& output, at::Tensor& input, const AllgatherOptions& options) {
  check_tensor(input);
  check_tensor(output);
  TORCH_CHECK_TYPE(input.dtype() == output.dtype(), "output tensor must have the same type as input tensor");
  TORCH_CHECK_VALUE(
      input.numel() * size_ == output.numel(),
      "output tensor size must be equal to world_size times input tensor size");
  auto request = queue_.make_request(Verb::allgather, OpType::_ALLGATHER_BASE, input, options.timeout);
  request->inputs = {bytes_of(input)};
  request->outputs = pieces(bytes_of(output), {}, size_, size_);
  return queue_.submit({}, output.device(), std::move(request), {output});
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::allgather_into_tensor_coalesced(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs, const AllgatherOptions& options) {
  return queue_.coalesced([&] {
    for (size_t i = 0; i < outputs.size(); ++i) {
      _allgather_base(outputs[i], inputs.at(i), options);
    }
  });
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::allgather(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs, const AllgatherOptions& options) {
  const at::Tensor& input = check_single(inputs);
  TORCH_CHECK_VALUE(outputs.size() == 1, "Expecting one list of tensors only but got ", outputs.size());
  check_list(outputs[0], size_, input.scalar_type());
  auto request = queue_.make_request(Verb::allgather, OpType::ALLGATHER, input, options.timeout);
  request->inputs = {bytes_of(input)};
  request->outputs = bytes_of(outputs[0]);
  return queue_.submit({}, input.device(), std::move(request), outputs[0]);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::gather(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs, const GatherOptions& options) {
  const at::Tensor& input = check_single(inputs);
  check_root(options.rootRank, size_);
  auto request = queue_.make_request(Verb::gather, OpType::GATHER, input, options.timeout);
  request->root = static_cast<int>(options.rootRank);
  request->inputs = {bytes_of(input)};
  std::vector<at::Tensor> results;
  if (rank_ == request->root) {
    TORCH_CHECK_VALUE(
        outputs.size() == 1, "requires a single-element output list containing a list with ", size_, " tensors.");
    check_list(outputs[0], size_, input.scalar_type());
    results = outputs[0];
    request->outputs = bytes_of(results);
  } else {
    TORCH_CHECK_VALUE(outputs.empty(), "requires empty output on non-root");
  }
  return queue_.submit({}, input.device(), std::move(request), std::move(results));
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::scatter(
    std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs, const ScatterOptions& options) {
  const at::Tensor& output = check_single(outputs);
  check_root(options.rootRank, size_);
  auto request = queue_.make_request(Verb::scatter, OpType::SCATTER, output, options.timeout);
  request->root = static_cast<int>(options.rootRank);
  if (rank_ == request->root) {
    TORCH_CHECK_VALUE(
        inputs.size() == 1, "requires a single-element input list containing a list with ", size_, " tensors.");
    check_list(inputs[0], size_, output.scalar_type());
    TORCH_CHECK_VALUE(
        inputs[0][rank_].numel() == output.numel(), "Tensor operand to scatter must have the size of the output");
    request->inputs = bytes_of(inputs[0]);
  } else {
    TORCH_CHECK_VALUE(inputs.empty(), "requires empty input on non-root");
  }
  request->outputs = {bytes_of(output)};
  return queue_.submit({}, output.device(), std::move(request), outputs);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::alltoall_base(
    at::Tensor& output,
    at::Tensor& input,
    std::vector<int64_t>& output_splits,
    std::vector<int64_t>& input_splits,
    const AllToAllOptions& options) {
  check_tensor(output);
  check_tensor(input);
  TORCH_CHECK_TYPE(input.dtype() == output.dtype(), "output tensor must have the same type as input tensor");
  c10d::checkSplitSizes(input_splits, input, size_);
  c10d::checkSplitSizes(output_splits, output, size_);
  auto request = queue_.make_request(Verb::alltoall, OpType::ALLTOALL_BASE, input, options.timeout);
  request->inputs = pieces(bytes_of(input), input_splits, input.size(0), size_);
  request->outputs = pieces(bytes_of(output), output_splits, output.size(0), size_);
  return queue_.submit({}, output.device(), std::move(request), {output});
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::alltoall(
    std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs, const AllToAllOptions& options) {
  TORCH_CHECK_VALUE(
      !inputs.empty() && inputs.size() == outputs.size() && inputs.size() == static_cast<size_t>(size_),
      "Tensor list input to all_to_all must match number of ranks");
  check_list(inputs, size_, inputs[0].scalar_type());
  check_list(outputs, size_, inputs[0].scalar_type());
  auto request = queue_.make_request(Verb::alltoall, OpType::ALLTOALL, inputs[0], options.timeout);
  request->inputs = bytes_of(inputs);
  request->outputs = bytes_of(outputs);
  return queue_.submit({}, outputs[0].device(), std::move(request), outputs);
}

// As in NCCL, tags are ignored: the messages between two ranks match in their order.
c10::intrusive_ptr<Work> ProcessGroupOCCL::send(std::vector<at::Tensor>& tensors, int to, int /*tag*/) {
  const at::Tensor& tensor = check_single(tensors);
  check_root(to, size_);
  auto request = queue_.make_request(Verb::send, OpType::SEND, tensor, kUnsetTimeout);
  request->root = to;
  request->inputs = {bytes_of(tensor)};
  return queue_.submit({StreamKey::Kind::send, to}, tensor.device(), std::move(request), tensors);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::recv(std::vector<at::Tensor>& tensors, int from, int /*tag*/) {
  const at::Tensor& tensor = check_single(tensors);
  check_root(from, size_);
  auto request = queue_.make_request(Verb::recv, OpType::RECV, tensor, kUnsetTimeout);
  request->root = from;
  request->outputs = {bytes_of(tensor)};
  return queue_.submit({StreamKey::Kind::recv, from}, tensor.device(), std::move(request), tensors);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::recvAnysource(std::vector<at::Tensor>& tensors, int /*tag*/) {
  const at::Tensor& tensor = check_single(tensors);
  auto request = queue_.make_request(Verb::recv, OpType::RECVANYSOURCE, tensor, kUnsetTimeout);
  request->outputs = {bytes_of(tensor)};
  return queue_.submit({StreamKey::Kind::recv, -1}, tensor.device(), std::move(request), tensors);
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::barrier(const BarrierOptions& options) {
  c10::DeviceIndex index = c10::openreg::current_device();
  if (options.device) {
    index = options.device->index() >= 0 ? options.device->index() : index;
  } else if (!options.device_ids.empty()) {
    index = static_cast<c10::DeviceIndex>(options.device_ids[0]);
  } else if (bound_device_id_) {
    index = bound_device_id_->index();
  }
  const c10::Device device(c10::openreg::identity.type, index);
  c10::openreg::check_device_index(index);
  auto request = queue_.make_request(Verb::barrier, OpType::BARRIER, at::Tensor(), options.timeout);
  return queue_.submit({}, device, std::move(request), {});
}

} // namespace c10d::openreg
