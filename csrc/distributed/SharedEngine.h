#pragma once

#include <openreg.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <mutex>

#include "Header.h"
#include "ThreadedEngine.h"

// LITERALINCLUDE START: SHARED RULES
// The engine for ranks on one host. It runs the collectives in which all ranks take part, through device memory that the
// ranks share (orIpcGetMemHandle). Send, recv, reduce, gather and scatter stay with gloo.
//
// Each rank has a mailbox, which no other rank writes: its plan (Header.h), two halves for data, and two counters.
//
//     stage k of the writer:  wait until all have taken stage k - 2; write the half k % 2; posted = k
//     stage k of a reader:    wait until posted >= k for each rank; read; taken = k
//
// So a rank writes one stage while the others still read the one before. The first stage has the plans, which tell
// every rank how many stages follow. Every rank computes reductions itself, in the order of the ranks, so all ranks get
// the same bits. In a broadcast a rank reads only what the root wrote. So the root does not wait until the others call
// broadcast, but it waits for those that have not yet read what it wrote two stages before.
//
// Rule: counters only grow. A rank that gives up sets `failed`. The others check whether a rank lives only after a long
// wait.
// LITERALINCLUDE END: SHARED RULES
namespace c10d::openreg {

class SharedEngine final : public ThreadedEngine {
 public:
  // Waits for the other ranks. Returns null on all ranks if one rank cannot reach the memory of another.
  static std::shared_ptr<SharedEngine> make(Store& store, int rank, int size, std::chrono::milliseconds timeout);

  ~SharedEngine() override;
  void abort() override;

  static bool supports(Verb verb);

 private:
  struct Mailbox;

  SharedEngine(int rank, int size);
  bool open(Store& store, std::chrono::milliseconds timeout);
  void run(Request& request) override;
  void transfer(Request& request, const Deadline& deadline);
  void wait(std::atomic<uint32_t>& counter, uint32_t stage, int rank, const Deadline& deadline);
  void post(uint32_t stage);
  void take(uint32_t stage);
  char* half(int rank, uint32_t stage) const;

  const int rank_;
  const int size_;
  std::vector<void*> memory_; // device addresses, one for each rank
  std::vector<Mailbox*> mailboxes_;
  std::vector<int> processes_;
  std::mutex mutex_;
  uint32_t stage_ = 0;
  std::vector<char> sums_; // of the ranks before the last one, for one stage
  std::atomic<bool> aborted_{false};
};

} // namespace c10d::openreg
