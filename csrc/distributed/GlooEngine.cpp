#include "GlooEngine.h"

#include <ATen/ATen.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/ScopeExit.h>

#include <cstring>

#include "Reduce.h"

namespace c10d::openreg {
namespace {

// Data of up to this many bytes is sent in the same message as its header.
constexpr size_t kInline = 4096;

// An all_reduce of at least this many bytes uses the steps by hosts (GlooEngine.h), if several ranks run on one host.
// These steps took 0.55 of gloo's time at 64 KB, and 0.62 at 64 MB (2 ranks on each of 2 hosts, which were one machine
// with 2 cores).
constexpr size_t kByHosts = 64 << 10;

// The gloo tag of a collective. The user's send and recv have the tag 0: they match in their order, as NCCL's do.
int tag_of(const Request& request) {
  return static_cast<int>((1U << 30) | (request.sequence & ((1U << 30) - 1)));
}

at::Tensor make_buffer(size_t bytes) {
  return at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte));
}

at::Tensor as_bytes(const at::Tensor& tensor) {
  return at::from_blob(
      tensor.data_ptr(), {static_cast<int64_t>(tensor.nbytes())}, [tensor](void*) {}, at::TensorOptions(at::kByte));
}

char* chars(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.data_ptr());
}

const at::Tensor& input_for(const Request& request, int to) {
  return request.inputs[request.inputs.size() == 1 ? 0 : to];
}

const at::Tensor& output_for(const Request& request, int from) {
  return request.outputs[request.outputs.size() == 1 ? 0 : from];
}

[[noreturn]] void refuse_aborted() {
  throw Refusal({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, "The process group was aborted");
}

void copy(const at::Tensor& to, const void* from) {
  if (to.data_ptr() != from && to.nbytes() != 0) {
    std::memcpy(to.data_ptr(), from, to.nbytes());
  }
}

} // namespace

GlooEngine::GlooEngine(c10::intrusive_ptr<Backend> gloo, Hosts hosts)
    : gloo_(std::move(gloo)),
      hosts_(std::move(hosts)),
      is_leader_(hosts_.leaders),
      rank_(gloo_->getRank()),
      size_(gloo_->getSize()) {}

void GlooEngine::abort() {
  std::set<c10::intrusive_ptr<Work>> pending;
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    pending = pending_;
  }
  for (const auto& work : pending) {
    work->abort();
  }
  if (hosts_.own) {
    hosts_.own->abort();
  }
}

c10::intrusive_ptr<Work> GlooEngine::send(const at::Tensor& data, int to, int tag) {
  std::vector<at::Tensor> tensors{data};
  return gloo_->send(tensors, to, tag);
}

c10::intrusive_ptr<Work> GlooEngine::recv(const at::Tensor& data, int from, int tag) {
  std::vector<at::Tensor> tensors{data};
  return from < 0 ? gloo_->recvAnysource(tensors, tag) : gloo_->recv(tensors, from, tag);
}

void GlooEngine::wait(const c10::intrusive_ptr<Work>& work, const Deadline& deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) {
      refuse_aborted();
    }
    pending_.insert(work);
  }
  const auto forget = c10::make_scope_exit([&] {
    const std::lock_guard lock(mutex_);
    pending_.erase(work);
  });
  bool completed = false;
  try {
    completed = work->wait(deadline.left());
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!aborted_) {
      throw;
    }
  }
  if (!completed) {
    refuse_aborted();
  }
}

void GlooEngine::run(Request& request) {
  const Deadline deadline(request.timeout);
  switch (request.verb) {
    case Verb::send:
      return send_message(request, request.inputs[0], request.root, 0, deadline);
    case Verb::recv:
      request.source = receive_message(request, request.outputs[0], request.root, 0, deadline).first;
      return;
    case Verb::broadcast:
      return broadcast(request, deadline);
    case Verb::reduce:
      return reduce(request, deadline);
    case Verb::gather:
      return gather(request, deadline);
    case Verb::scatter:
      return scatter(request, deadline);
    default:
      break;
  }
  try {
    all_with_all(request, deadline);
  } catch (const Refusal&) {
    throw; // All ranks find the same mismatch.
  } catch (...) {
    give_up();
    throw;
  }
}

// Makes a collective by hosts fail on the other ranks, if they wait for this rank.
void GlooEngine::give_up() {
  if (hosts_.own) {
    hosts_.own->give_up();
  }
  c10::intrusive_ptr<Backend> leaders; // its destructor closes the connections; ProcessGroupGloo::abort() does nothing
  const std::lock_guard lock(mutex_);
  leaders = std::move(hosts_.leaders);
}

// Sends the header, and the data to the rank `to`. With `all_data` false, leaves out data that does not fit into the
// message of the header.
void GlooEngine::send_message(
    const Request& request, const at::Tensor& data, int to, int tag, const Deadline& deadline, bool all_data) {
  Header header = make_header(request);
  header.total = data.nbytes();
  header.inlined = header.total <= kInline ? header.total : 0;
  const at::Tensor message = make_buffer(sizeof(Header) + header.inlined);
  std::memcpy(chars(message), &header, sizeof(Header));
  std::memcpy(chars(message) + sizeof(Header), chars(data), header.inlined);
  const auto first = send(message, to, tag);
  if (all_data && header.inlined != header.total) {
    wait(send(as_bytes(data), to, tag), deadline);
  }
  wait(first, deadline);
}

// Receives a message into `data`. Returns the sender and its header. If the header does not match the request, receives
// all data and then throws. With `all_data` false, the caller receives the data that is not in the first message, and
// the function does not throw: if the header does not match, `data` becomes a buffer into which the caller receives the
// data.
std::pair<int, Header> GlooEngine::receive_message(
    const Request& request, at::Tensor& data, int from, int tag, const Deadline& deadline, bool all_data) {
  const at::Tensor message = make_buffer(sizeof(Header) + kInline);
  const auto first = recv(message, from, tag);
  wait(first, deadline);
  if (from < 0) {
    from = first->sourceRank();
  }
  Header header;
  std::memcpy(&header, chars(message), sizeof(Header));
  const Header own = make_header(request, header);
  const bool fits = openreg::fits(own, header, data.nbytes());
  if (header.inlined == header.total) {
    if (fits) {
      std::memcpy(chars(data), chars(message) + sizeof(Header), header.inlined);
    }
  } else if (all_data) {
    wait(recv(fits ? as_bytes(data) : make_buffer(header.total), from, tag), deadline);
  }
  if (!fits) {
    if (!all_data) {
      data = make_buffer(header.total);
      return {from, header};
    }
    throw_mismatch(rank_, own, from, header);
  }
  return {from, header};
}

void GlooEngine::broadcast(Request& request, const Deadline& deadline) {
  at::Tensor data = request.outputs[0];
  const int tag = tag_of(request);
  Header header = make_header(request);
  header.total = data.nbytes();
  if (rank_ == request.root) {
    for (int offset = 1; offset < size_; ++offset) {
      send_message(request, data, (rank_ + offset) % size_, tag, deadline, false);
    }
  } else {
    header = receive_message(request, data, request.root, tag, deadline, false).second;
  }
  if (header.total > kInline && size_ > 1) {
    std::vector<at::Tensor> tensors{as_bytes(data)};
    BroadcastOptions options;
    options.rootRank = request.root;
    options.timeout = deadline.left();
    wait(gloo_->broadcast(tensors, options), deadline);
  }
  if (data.data_ptr() != request.outputs[0].data_ptr()) {
    throw_mismatch(rank_, make_header(request), request.root, header);
  }
}

void GlooEngine::reduce(Request& request, const Deadline& deadline) {
  const at::Tensor& input = request.inputs[0];
  const int tag = tag_of(request);
  if (rank_ != request.root) {
    return send_message(request, input, request.root, tag, deadline);
  }
  // The data is combined in the order of the ranks, so that repeated runs give the same bits.
  at::Tensor result;
  std::exception_ptr failure;
  for (int from = 0; from < size_; ++from) {
    at::Tensor part = from == rank_ ? (from == 0 ? input.clone() : input) : at::empty_like(input);
    try {
      if (from != rank_) {
        receive_message(request, part, from, tag, deadline);
      }
    } catch (const Refusal&) { // goes on, because the other ranks must not wait for this one
      failure = failure ? failure : std::current_exception();
      continue;
    }
    if (!result.defined()) {
      result = part;
    } else {
      combine(
          request.reduction.op,
          input.scalar_type(),
          result.data_ptr(),
          result.data_ptr(),
          part.data_ptr(),
          input.numel());
    }
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  finish_reduction(request.reduction, input.scalar_type(), result.data_ptr(), input.numel());
  copy(request.outputs[0], result.data_ptr());
}

void GlooEngine::gather(Request& request, const Deadline& deadline) {
  const int tag = tag_of(request);
  if (rank_ != request.root) {
    return send_message(request, request.inputs[0], request.root, tag, deadline);
  }
  std::exception_ptr failure;
  for (int from = 0; from < size_; ++from) {
    try {
      if (from == rank_) {
        copy(request.outputs[from], request.inputs[0].data_ptr());
      } else {
        receive_message(request, request.outputs[from], from, tag, deadline);
      }
    } catch (const Refusal&) {
      failure = failure ? failure : std::current_exception();
    }
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

void GlooEngine::scatter(Request& request, const Deadline& deadline) {
  const int tag = tag_of(request);
  if (rank_ != request.root) {
    receive_message(request, request.outputs[0], request.root, tag, deadline);
    return;
  }
  for (int to = 0; to < size_; ++to) {
    if (to == rank_) {
      copy(request.outputs[0], request.inputs[to].data_ptr());
    } else {
      send_message(request, request.inputs[to], to, tag, deadline);
    }
  }
}

// Reduces the output of each rank of `ranks`, in place.
void GlooEngine::reduce_between(
    const c10::intrusive_ptr<Backend>& ranks, const Request& request, const Deadline& deadline) {
  std::vector<at::Tensor> tensors{request.outputs[0]};
  AllreduceOptions options;
  options.reduceOp = request.reduction.op;
  options.timeout = deadline.left();
  wait(ranks->allreduce(tensors, options), deadline);
}

// Has the same result as reduce_between() over all ranks, but takes the three steps by hosts (GlooEngine.h). The plans
// have been compared, so no step finds a mismatch.
void GlooEngine::reduce_by_hosts(const Request& request, const Deadline& deadline) {
  Request step = request;
  step.reduction.divisor = 1; // the caller divides
  step.inputs = step.outputs;
  step.timeout = deadline.left();
  hosts_.own->run(step);
  if (is_leader_) {
    const auto leaders = [&] {
      const std::lock_guard lock(mutex_);
      return hosts_.leaders;
    }();
    TORCH_CHECK(leaders, "An earlier collective of this group has failed");
    reduce_between(leaders, request, deadline);
  }
  step.verb = Verb::broadcast;
  step.root = 0;
  step.inputs = step.outputs = {as_bytes(request.outputs[0])};
  step.timeout = deadline.left();
  hosts_.own->run(step);
}

// Sends this rank's plan to every rank, with the data for that rank if it is small, and receives the same from every
// rank.
GlooEngine::Received GlooEngine::exchange_plans(
    const Request& request, const Plan& own, int tag, const Deadline& deadline) {
  const size_t head = plan_bytes(size_);
  std::vector<at::Tensor> messages(size_);
  std::vector<c10::intrusive_ptr<Work>> receives(size_);
  std::vector<c10::intrusive_ptr<Work>> works;
  // If a rank has exited, the others get this rank's plan all the same. Otherwise they would wait until their timeouts.
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
    attempt([&] { receives[from] = recv(messages[from], from, tag); });
  }
  for (int offset = 1; offset < size_; ++offset) {
    const int to = (rank_ + offset) % size_;
    const size_t inlined = own.sends[to] <= kInline ? own.sends[to] : 0;
    const at::Tensor message = make_buffer(head + inlined);
    write_plan(own, chars(message));
    if (inlined != 0) {
      std::memcpy(chars(message) + head, chars(input_for(request, to)), inlined);
    }
    attempt([&] { works.push_back(send(message, to, tag)); });
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  Received received{std::vector<Plan>(size_), std::vector<at::Tensor>(size_)};
  received.plans[rank_] = own;
  for (int offset = 1; offset < size_; ++offset) {
    const int from = (rank_ - offset + size_) % size_;
    wait(receives[from], deadline);
    received.plans[from] = read_plan(chars(messages[from]), size_);
    received.small_data[from] = messages[from].narrow(0, static_cast<int64_t>(head), kInline);
  }
  for (const auto& work : works) {
    wait(work, deadline);
  }
  return received;
}

void GlooEngine::all_with_all(Request& request, const Deadline& deadline) {
  const int tag = tag_of(request);
  const Plan own = make_plan(request, size_);
  const Received received = exchange_plans(request, own, tag, deadline);
  check_plans(rank_, received.plans);
  if (request.inputs.empty()) { // a barrier
    return;
  }
  if (request.verb == Verb::allreduce && own.sends[rank_] > kInline && size_ > 1) {
    const at::Tensor& output = request.outputs[0];
    copy(output, request.inputs[0].data_ptr());
    if (hosts_.own && own.sends[rank_] >= kByHosts) {
      reduce_by_hosts(request, deadline);
    } else {
      reduce_between(gloo_, request, deadline);
    }
    return finish_reduction(request.reduction, output.scalar_type(), output.data_ptr(), output.numel());
  }
  const std::vector<at::Tensor> parts = exchange_data(request, own, received, tag, deadline);
  if (reduces(request.verb)) {
    return reduce_parts(request, parts);
  }
  for (int from = 0; from < size_; ++from) {
    copy(output_for(request, from), parts[from].data_ptr());
  }
}

// Returns the data of each rank for this rank. Small data came with the plan. Larger data comes as a separate message.
// If nothing is reduced, that message is received directly into the output.
std::vector<at::Tensor> GlooEngine::exchange_data(
    const Request& request, const Plan& own, const Received& received, int tag, const Deadline& deadline) {
  std::vector<at::Tensor> parts(size_);
  std::vector<c10::intrusive_ptr<Work>> works;
  for (int from = 0; from < size_; ++from) {
    const uint64_t bytes = own.expects[from];
    if (from == rank_) {
      parts[from] = input_for(request, rank_);
    } else if (received.plans[from].sends[rank_] <= kInline) {
      parts[from] = received.small_data[from].narrow(0, 0, static_cast<int64_t>(bytes));
    } else {
      parts[from] = reduces(request.verb) ? make_buffer(bytes) : as_bytes(output_for(request, from));
      works.push_back(recv(parts[from], from, tag));
    }
  }
  for (int offset = 1; offset < size_; ++offset) {
    const int to = (rank_ + offset) % size_;
    if (own.sends[to] > kInline) {
      works.push_back(send(as_bytes(input_for(request, to)), to, tag));
    }
  }
  for (const auto& work : works) {
    wait(work, deadline);
  }
  return parts;
}

// Reduces the parts in the order of the ranks.
void GlooEngine::reduce_parts(const Request& request, const std::vector<at::Tensor>& parts) const {
  const at::Tensor& output = request.outputs[0];
  const auto type = output.scalar_type();
  const at::Tensor result = rank_ == 0 && size_ > 1 ? parts[0].clone() : parts[0]; // an input is not changed
  for (int from = 1; from < size_; ++from) {
    combine(request.reduction.op, type, result.data_ptr(), result.data_ptr(), parts[from].data_ptr(), output.numel());
  }
  copy(output, result.data_ptr());
  finish_reduction(request.reduction, type, output.data_ptr(), output.numel());
}

} // namespace c10d::openreg
