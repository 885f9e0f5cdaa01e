#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <mutex>

#include "distributed/ThreadedEngine.h"
#include "runtime/OpenRegException.h"
#include "simulator/transport/GlooConnection.h"

// LITERALINCLUDE START: GLOO RULES
// The engine that uses PyTorch's ProcessGroupGloo. It works across machines.
//
// If a message is larger than the receiver's buffer, gloo ends the receiver's process: gloo's thread throws an
// exception that nobody catches. So the engine gives gloo only messages for which the receiver has room. Data of up to
// kInline bytes comes in one message with its header: every receiver has room for that. For more data the first message
// is the header alone, which tells the receiver how much room it needs. All the data follows as a second message.
//
// A collective in which every rank waits for all others begins with a message from every rank to every other. This
// message has a plan (occl_transport.h) instead of the header. If the data is small, these messages are the whole
// collective. Send, recv, broadcast, gather, scatter and reduce send in one direction only: a sender waits until the
// receiver has taken the data, but gets no message from it. The receiver compares the sender's header with its own. A
// receiver that finds a mismatch receives the data all the same; otherwise the sender would wait until its timeout.
//
// If several ranks run on one host and others elsewhere, a large all_reduce has three steps: the ranks of each host
// reduce through shared memory, the first ranks of all hosts reduce through gloo, and each first rank gives the result
// to the other ranks of its host. So only one rank of each host exchanges data with other hosts.
// LITERALINCLUDE END: GLOO RULES
namespace c10d::openreg {

// Makes a gloo group. Only Python can do this, because PyTorch does not ship gloo's headers. The bindings set the
// function.
using MakeGloo = std::function<c10::intrusive_ptr<Backend>(
    c10::intrusive_ptr<Store> store, int rank, int size, std::chrono::milliseconds timeout)>;
OPENREG_API void set_make_gloo(MakeGloo make);

class GlooEngine final : public ThreadedEngine {
 public:
  // What the three steps of a large all_reduce use.
  struct Hosts {
    std::shared_ptr<occl::Communicator> own; // of this host's ranks
    c10::intrusive_ptr<Backend> leaders;     // gloo between the first ranks of the hosts; null on the other ranks
  };

  // Without `hosts.own`, a large all_reduce uses `gloo` alone.
  GlooEngine(c10::intrusive_ptr<Backend> gloo, Hosts hosts);
  void abort() override;

 private:
  void run(CollectiveRequest& request) override;
  void give_up();
  void broadcast(CollectiveRequest& request, const Deadline& deadline);
  void reduce(CollectiveRequest& request, const Deadline& deadline);
  void gather(CollectiveRequest& request, const Deadline& deadline);
  void scatter(CollectiveRequest& request, const Deadline& deadline);
  void all_with_all(const CollectiveRequest& request, const Deadline& deadline);
  void reduce_between(
      const c10::intrusive_ptr<Backend>& ranks, const CollectiveRequest& request, const Deadline& deadline);
  void reduce_by_hosts(const CollectiveRequest& request, const Deadline& deadline);
  void send_message(
      const CollectiveRequest& request,
      const at::Tensor& data,
      int to,
      int tag,
      const Deadline& deadline,
      bool all_data = true);
  std::pair<int, Header> receive_message(
      const CollectiveRequest& request,
      at::Tensor& data,
      int from,
      int tag,
      const Deadline& deadline,
      bool all_data = true);

  GlooConnection connection_;
  Hosts hosts_;          // give_up() resets `leaders`
  const bool is_leader_; // this rank is the first one of its host
  const int rank_;
  const int size_;
  std::mutex mutex_; // guards `hosts_.leaders`
};

} // namespace c10d::openreg
