#pragma once

#include <c10/util/FunctionRef.h>
#include <openreg.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <mutex>

#include "distributed/Header.h"
#include "distributed/Mailbox.h"
#include "distributed/ThreadedEngine.h"

// LITERALINCLUDE START: SHARED RULES
// The engine for ranks on one host. It moves the bytes through device memory that the ranks share (orIpcGetMemHandle).
//
// Collectives: each rank has a mailbox with its plan (Header.h), two halves for data, and two counters, `posted` and
// `taken`. No other rank writes these. A collective runs in stages. In each stage a rank writes one chunk of its data
// into one half, and the other ranks read this chunk:
//
//     stage k of the writer:  wait until all have taken stage k - 2; write the half k % 2; posted = k
//     stage k of a reader:    wait until posted >= k for each rank; read; taken = k
//
// So a rank writes one stage while the others still read the stage before. The first stage of a collective also has the
// plans, which tell every rank how many stages follow. A mailbox has room for one plan, so before its first stage a
// rank waits until all have taken the stage before. Every rank computes reductions itself, in the order of the ranks,
// so all ranks get the same bits. In a broadcast and in a scatter a rank reads only what the root wrote. So the root
// does not wait until the others call the collective, but it waits for those that have not yet read what it wrote
// earlier. In a reduce and in a gather, ranks that get no data read the plans, so that all ranks find a mismatch in the
// same stage.
//
// Messages: a pipe leads from each rank to each other rank. A pipe is a ring buffer of bytes, and a message is a header
// and its data. So a short message can be sent before its receiver calls recv. A rank that writes or reads a part of a
// message increments the counter `bell` of the other rank. So a rank can wait for messages from all other ranks at the
// same time. The receiver compares the headers. If they do not match, it reads the data all the same, and throws it
// away.
//
// Rule: counters only grow. A rank that gives up sets `failed`. Only after a long wait do the other ranks check whether
// a process has exited.
// LITERALINCLUDE END: SHARED RULES
namespace c10d::openreg {

class SharedEngine final : public ThreadedEngine {
 public:
  // Where the ranks of a group run.
  struct Placement {
    std::shared_ptr<SharedEngine> engine; // the engine of this host's ranks, numbered from 0 on each host
    std::vector<int> leaders;             // the first rank of each host
  };

  // Waits for the other ranks. The engine is null on all ranks if the group is too large, or if any rank cannot share
  // its memory or open that of another rank of its host.
  static Placement make(Store& store, int rank, int size, std::chrono::milliseconds timeout);

  ~SharedEngine() override;
  void abort() override;

  // Runs a request on the calling thread.
  void run(Request& request) override;
  // Makes the requests of other ranks fail if they wait for this rank.
  void give_up();

 private:
  // Locks that are held for a whole message: a pipe is a stream of bytes, and does not know where a message ends.
  struct Peer {
    std::mutex sending;
    std::mutex receiving;
  };

  // What a rank tells the others through the store.
  struct Introduction {
    int rank; // of the group, whose ranks may be on several hosts
    int process;
    bool has_memory;
    orIpcMemHandle_t memory;
    char host[128];
  };

  SharedEngine(int rank, uint32_t pipe_bytes, void* memory, std::vector<Introduction> ranks);
  bool open();
  void wait(Counter& counter, int rank, const Deadline& deadline, c10::function_ref<bool()> is_ready);

  // Collectives: SharedCollectives.cpp.
  class Collective;
  void run_collective(Request& request, const Deadline& deadline);

  // Messages: SharedMessages.cpp.
  void send(const Request& request);
  void receive(Request& request);
  void write(int to, const void* data, size_t bytes, const Deadline& deadline);
  void read(int from, void* data, size_t bytes, const Deadline& deadline);
  Pipe& pipe(int from, int to) const;

  const std::vector<Introduction> ranks_; // those of this host
  const int rank_;                        // the index of this process in `ranks_`
  const int size_;
  const uint32_t pipe_bytes_; // a power of two
  std::vector<void*> memory_; // device addresses, one for each rank
  std::vector<Mailbox*> mailboxes_;
  std::mutex mutex_; // held for a whole collective
  uint32_t stage_ = 0;
  std::vector<char> sums_; // one stage of a reduction: the sums over the ranks so far
  std::vector<Peer> peers_;
  std::atomic<bool> aborted_{false};
};

} // namespace c10d::openreg
