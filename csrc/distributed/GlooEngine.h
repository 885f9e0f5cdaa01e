#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <mutex>
#include <set>

#include "Header.h"
#include "ThreadedEngine.h"

// LITERALINCLUDE START: GLOO RULES
// The engine on PyTorch's ProcessGroupGloo, which spans machines.
//
// Gloo ends the process if the ranks' sizes differ: its thread throws what nobody catches. So only messages whose receiver
// has room for them are given to gloo. A message is a header and up to kInline bytes of data, and its receiver always has
// room for that; more data follows as a second message, for which the receiver makes room as the header says.
//
// Collectives in which all ranks wait for all begin with such a message from every rank to every other, which is the whole
// collective if the data is small. Send, recv, broadcast, gather, scatter and reduce send in one direction only: nobody
// waits for a rank that needs nothing from it, and the receiver checks. A receiver that refuses takes the data all the
// same, or the sender would wait until its timeout.
// LITERALINCLUDE END: GLOO RULES
namespace c10d::openreg {

class GlooEngine final : public ThreadedEngine {
 public:
  explicit GlooEngine(c10::intrusive_ptr<Backend> gloo);
  void abort() override;

 private:
  void run(Request& request) override;
  void broadcast(Request& request, const Deadline& deadline);
  void reduce(Request& request, const Deadline& deadline);
  void gather(Request& request, const Deadline& deadline);
  void scatter(Request& request, const Deadline& deadline);
  void all_with_all(Request& request, const Deadline& deadline);
  void send_message(
      const Request& request, const at::Tensor& data, int to, int tag, const Deadline& deadline, bool all_data = true);
  std::pair<int, Header> receive_message(
      const Request& request, at::Tensor& data, int from, int tag, const Deadline& deadline, bool all_data = true);

  c10::intrusive_ptr<Work> send(const at::Tensor& data, int to, int tag);
  c10::intrusive_ptr<Work> recv(const at::Tensor& data, int from, int tag);
  void wait(const c10::intrusive_ptr<Work>& work, const Deadline& deadline);

  const c10::intrusive_ptr<Backend> gloo_;
  const int rank_;
  const int size_;
  std::mutex mutex_;
  std::set<c10::intrusive_ptr<Work>> pending_; // what abort() ends
  bool aborted_ = false;
};

} // namespace c10d::openreg
