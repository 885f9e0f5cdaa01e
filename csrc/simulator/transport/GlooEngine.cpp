#include "simulator/transport/GlooEngine.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <cstring>

#include "distributed/OcclRequest.h"
#include "simulator/transport/GlooExchange.h"

namespace c10d::openreg {
namespace {

// An all_reduce of at least this many bytes uses the steps by hosts (GlooEngine.h), if several ranks run on one host
// and others elsewhere. These steps took 0.55 of gloo's time at 64 KB, and 0.62 at 64 MB (2 ranks on each of 2 hosts,
// which were one machine with 2 cores).
constexpr size_t kByHosts = 64 << 10;

MakeGloo& make_gloo() {
  static auto* const make = new MakeGloo(); // never destroyed: a group may outlive the interpreter
  return *make;
}

// The engine of a group whose ranks share no memory, or that was asked for by name. All_reduce has steps by hosts if
// the ranks run on several hosts, and several of them on one.
std::shared_ptr<CollectiveEngine> make_gloo_engine(const Ranks& ranks) {
  GlooEngine::Hosts hosts;
  const std::vector<int>& leaders = ranks.placement.leaders;
  if (ranks.placement.communicator && leaders.size() < static_cast<size_t>(ranks.size)) {
    hosts.own = ranks.placement.communicator;
    if (const auto own = std::find(leaders.begin(), leaders.end(), ranks.rank); own != leaders.end()) {
      hosts.leaders = make_gloo()(
          c10::make_intrusive<PrefixStore>("leaders", ranks.store),
          static_cast<int>(own - leaders.begin()),
          static_cast<int>(leaders.size()),
          ranks.timeout);
    }
  }
  return std::make_shared<GlooEngine>(
      make_gloo()(ranks.store, ranks.rank, ranks.size, ranks.timeout), std::move(hosts));
}

const bool gloo_is_registered = [] {
  register_transport("gloo", &make_gloo_engine);
  return true;
}();

} // namespace

void set_make_gloo(MakeGloo make) {
  make_gloo() = std::move(make);
}

GlooEngine::GlooEngine(c10::intrusive_ptr<Backend> gloo, Hosts hosts)
    : connection_(std::move(gloo)),
      hosts_(std::move(hosts)),
      is_leader_(hosts_.leaders),
      rank_(connection_.gloo()->getRank()),
      size_(connection_.gloo()->getSize()) {}

void GlooEngine::abort() {
  connection_.abort();
  if (hosts_.own) {
    hosts_.own->abort();
  }
}

void GlooEngine::run(CollectiveRequest& request) {
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
  } catch (const occl::Error& error) {
    if (!error.keepsStep()) {
      give_up();
    }
    throw;
  } catch (...) {
    give_up();
    throw;
  }
}

// Makes a collective by hosts fail on the other ranks, if they wait for this rank.
void GlooEngine::give_up() {
  if (hosts_.own) {
    hosts_.own->giveUp();
  }
  c10::intrusive_ptr<Backend> leaders; // its destructor closes the connections; ProcessGroupGloo::abort() does nothing
  const std::lock_guard lock(mutex_);
  leaders = std::move(hosts_.leaders);
}

// Sends the header and the data to the rank `to`. With `all_data` false, leaves out data that does not fit into the
// message of the header.
void GlooEngine::send_message(
    const CollectiveRequest& request,
    const at::Tensor& data,
    int to,
    int tag,
    const Deadline& deadline,
    bool all_data) {
  Header header = to_occl(request).header;
  header.total = data.nbytes();
  header.inlined = header.total <= kInline ? header.total : 0;
  const at::Tensor message = make_buffer(sizeof(Header) + header.inlined);
  std::memcpy(chars(message), &header, sizeof(Header));
  std::memcpy(chars(message) + sizeof(Header), chars(data), header.inlined);
  const auto first = connection_.send(message, to, tag);
  if (all_data && header.inlined != header.total) {
    connection_.wait(connection_.send(as_bytes(data), to, tag), deadline);
  }
  connection_.wait(first, deadline);
}

// Receives a message into `data`. Returns the sender and its header. If the header does not match the request, receives
// all data and then throws. With `all_data` false, the caller receives the data that is not in the first message, and
// the function does not throw: if the header does not match, `data` becomes a buffer into which the caller receives the
// data.
std::pair<int, Header> GlooEngine::receive_message(
    const CollectiveRequest& request, at::Tensor& data, int from, int tag, const Deadline& deadline, bool all_data) {
  const at::Tensor message = make_buffer(sizeof(Header) + kInline);
  const auto first = connection_.recv(message, from, tag);
  connection_.wait(first, deadline);
  if (from < 0) {
    from = first->sourceRank();
  }
  Header header;
  std::memcpy(&header, chars(message), sizeof(Header));
  const Header own = occl::headerFor(to_occl(request), header);
  const bool fits = occl::fits(own, header, data.nbytes());
  if (header.inlined == header.total) {
    if (fits) {
      std::memcpy(chars(data), chars(message) + sizeof(Header), header.inlined);
    }
  } else if (all_data) {
    connection_.wait(connection_.recv(fits ? as_bytes(data) : make_buffer(header.total), from, tag), deadline);
  }
  if (!fits) {
    if (!all_data) {
      data = make_buffer(header.total);
      return {from, header};
    }
    occl::throwMismatch(rank_, own, from, header);
  }
  return {from, header};
}

void GlooEngine::broadcast(CollectiveRequest& request, const Deadline& deadline) {
  at::Tensor data = request.outputs[0];
  const int tag = tag_of(request);
  Header header = to_occl(request).header;
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
    connection_.wait(connection_.gloo()->broadcast(tensors, options), deadline);
  }
  if (data.data_ptr() != request.outputs[0].data_ptr()) {
    occl::throwMismatch(rank_, to_occl(request).header, request.root, header);
  }
}

void GlooEngine::reduce(CollectiveRequest& request, const Deadline& deadline) {
  const at::Tensor& input = request.inputs[0];
  const int tag = tag_of(request);
  if (rank_ != request.root) {
    return send_message(request, input, request.root, tag, deadline);
  }
  const occl::Reduction how = to_occl(request.reduction, input.scalar_type());
  // The data is combined in the order of the ranks, so that repeated runs give the same bits.
  at::Tensor result;
  std::exception_ptr failure;
  for (int from = 0; from < size_; ++from) {
    at::Tensor part = from == rank_ ? (from == 0 ? input.clone() : input) : at::empty_like(input);
    try {
      if (from != rank_) {
        receive_message(request, part, from, tag, deadline);
      }
    } catch (const occl::Error& error) {
      if (!error.keepsStep()) {
        throw;
      }
      failure = failure ? failure : std::current_exception(); // goes on: the other ranks must not wait for this one
      continue;
    }
    if (!result.defined()) {
      result = part;
    } else {
      occl::combine(how, result.data_ptr(), result.data_ptr(), part.data_ptr(), input.numel());
    }
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  occl::finishReduction(how, result.data_ptr(), input.numel());
  copy(request.outputs[0], result.data_ptr());
}

void GlooEngine::gather(CollectiveRequest& request, const Deadline& deadline) {
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
    } catch (const occl::Error& error) {
      if (!error.keepsStep()) {
        throw;
      }
      failure = failure ? failure : std::current_exception();
    }
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
}

void GlooEngine::scatter(CollectiveRequest& request, const Deadline& deadline) {
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
    const c10::intrusive_ptr<Backend>& ranks, const CollectiveRequest& request, const Deadline& deadline) {
  std::vector<at::Tensor> tensors{request.outputs[0]};
  AllreduceOptions options;
  options.reduceOp = request.reduction.op;
  options.timeout = deadline.left();
  connection_.wait(ranks->allreduce(tensors, options), deadline);
}

// Has the same result as reduce_between() over all ranks, but takes the three steps by hosts (GlooEngine.h). The plans
// have been compared (unless OCCL_CHECK=0), so no step finds a mismatch.
void GlooEngine::reduce_by_hosts(const CollectiveRequest& request, const Deadline& deadline) {
  const occl::Request all = to_occl(request);
  occl::Request step = all;
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
  step = all;
  step.verb = Verb::broadcast;
  step.root = 0;
  step.inputs = step.outputs;
  step.timeout = deadline.left();
  hosts_.own->run(step);
}

void GlooEngine::all_with_all(const CollectiveRequest& request, const Deadline& deadline) {
  GlooExchange exchange(connection_, request, deadline);
  exchange.exchange_plans();
  if (request.inputs.empty()) { // a barrier
    return;
  }
  if (request.verb == Verb::allreduce && exchange.own_bytes() > kInline && size_ > 1) {
    const at::Tensor& output = request.outputs[0];
    copy(output, request.inputs[0].data_ptr());
    if (hosts_.own && exchange.own_bytes() >= kByHosts) {
      reduce_by_hosts(request, deadline);
    } else {
      reduce_between(connection_.gloo(), request, deadline);
    }
    return occl::finishReduction(to_occl(request.reduction, output.scalar_type()), output.data_ptr(), output.numel());
  }
  exchange.exchange_data();
}

} // namespace c10d::openreg
