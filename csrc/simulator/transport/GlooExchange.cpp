#include "simulator/transport/GlooExchange.h"

#include <ATen/ATen.h>
#include <c10/util/FunctionRef.h>

#include <cstring>
#include <exception>

#include "distributed/OcclRequest.h"

namespace c10d::openreg {
namespace {

const at::Tensor& input_for(const CollectiveRequest& request, int to) {
  return request.inputs[request.inputs.size() == 1 ? 0 : to];
}

const at::Tensor& output_for(const CollectiveRequest& request, int from) {
  return request.outputs[request.outputs.size() == 1 ? 0 : from];
}

} // namespace

GlooExchange::GlooExchange(GlooConnection& connection, const CollectiveRequest& request, const Deadline& deadline)
    : connection_(connection),
      request_(request),
      deadline_(deadline),
      rank_(connection.gloo()->getRank()),
      size_(connection.gloo()->getSize()),
      tag_(tag_of(request)),
      own_(occl::makePlan(to_occl(request), size_)),
      plans_(size_),
      small_data_(size_) {}

void GlooExchange::exchange_plans() {
  const size_t head = occl::planBytes(size_);
  std::vector<at::Tensor> messages(size_);
  std::vector<c10::intrusive_ptr<Work>> receives(size_);
  std::vector<c10::intrusive_ptr<Work>> works;
  // If a rank has exited, this rank still sends its plan to the others. Otherwise they would wait until their timeouts.
  std::exception_ptr failure;
  const auto attempt = [&](c10::function_ref<void()> post) {
    try {
      post();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  for (int offset = 1; offset < size_; ++offset) {
    const int from = (rank_ - offset + size_) % size_;
    messages[from] = make_buffer(head + kInline);
    attempt([&] { receives[from] = connection_.recv(messages[from], from, tag_); });
  }
  for (int offset = 1; offset < size_; ++offset) {
    const int to = (rank_ + offset) % size_;
    const size_t inlined = own_.sends[to] <= kInline ? own_.sends[to] : 0;
    const at::Tensor message = make_buffer(head + inlined);
    occl::writePlan(own_, chars(message));
    if (inlined != 0) {
      std::memcpy(chars(message) + head, chars(input_for(request_, to)), inlined);
    }
    attempt([&] { works.push_back(connection_.send(message, to, tag_)); });
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  plans_[rank_] = own_;
  for (int offset = 1; offset < size_; ++offset) {
    const int from = (rank_ - offset + size_) % size_;
    connection_.wait(receives[from], deadline_);
    plans_[from] = occl::readPlan(chars(messages[from]), size_);
    small_data_[from] = messages[from].narrow(0, static_cast<int64_t>(head), kInline);
  }
  for (const auto& work : works) {
    connection_.wait(work, deadline_);
  }
  occl::checkPlans(rank_, plans_);
}

void GlooExchange::exchange_data() {
  const std::vector<at::Tensor> parts = receive_parts();
  if (occl::reduces(request_.verb)) {
    return reduce_parts(parts);
  }
  for (int from = 0; from < size_; ++from) {
    copy(output_for(request_, from), parts[from].data_ptr());
  }
}

// Returns the data of each rank for this rank. Small data came with the plan. Larger data comes as a separate message.
// If nothing is reduced, that message is received directly into the output.
std::vector<at::Tensor> GlooExchange::receive_parts() {
  std::vector<at::Tensor> parts(size_);
  std::vector<c10::intrusive_ptr<Work>> works;
  for (int from = 0; from < size_; ++from) {
    const uint64_t bytes = own_.expects[from];
    if (from == rank_) {
      parts[from] = input_for(request_, rank_);
    } else if (plans_[from].sends[rank_] <= kInline) {
      parts[from] = small_data_[from].narrow(0, 0, static_cast<int64_t>(bytes));
    } else {
      parts[from] = occl::reduces(request_.verb) ? make_buffer(bytes) : as_bytes(output_for(request_, from));
      works.push_back(connection_.recv(parts[from], from, tag_));
    }
  }
  for (int offset = 1; offset < size_; ++offset) {
    const int to = (rank_ + offset) % size_;
    if (own_.sends[to] > kInline) {
      works.push_back(connection_.send(as_bytes(input_for(request_, to)), to, tag_));
    }
  }
  for (const auto& work : works) {
    connection_.wait(work, deadline_);
  }
  return parts;
}

// Reduces the parts in the order of the ranks.
void GlooExchange::reduce_parts(const std::vector<at::Tensor>& parts) const {
  const at::Tensor& output = request_.outputs[0];
  const occl::Reduction how = to_occl(request_.reduction, output.scalar_type());
  const at::Tensor result = rank_ == 0 && size_ > 1 ? parts[0].clone() : parts[0]; // an input is not changed
  for (int from = 1; from < size_; ++from) {
    occl::combine(how, result.data_ptr(), result.data_ptr(), parts[from].data_ptr(), output.numel());
  }
  copy(output, result.data_ptr());
  occl::finishReduction(how, output.data_ptr(), output.numel());
}

} // namespace c10d::openreg
