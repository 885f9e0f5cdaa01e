#pragma once

#include <atomic>
#include <mutex>

#include "occl/mailbox.h"
#include "occl_transport.h"

// LITERALINCLUDE START: SHARED RULES
// The communicator of the ranks of one host. It moves the bytes through device memory that the ranks share
// (orIpcGetMemHandle).
//
// Collectives: each rank has a mailbox with its plan (occl_transport.h), two halves for data, and two counters,
// `posted` and `taken`. No other rank writes these. A collective runs in stages. In each stage a rank writes one chunk
// of its data into one half, and the other ranks read this chunk:
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
namespace occl {

// What a rank tells the others through the Bootstrap.
struct Introduction {
  int rank; // of the group, whose ranks may be on several hosts
  int process;
  bool hasMemory;
  orIpcMemHandle_t memory;
  char host[128];
};

class SharedCommunicator final : public Communicator {
 public:
  // `memory`: this rank's device memory, which the communicator frees. `ranks`: those of this host.
  SharedCommunicator(int rank, uint32_t pipeBytes, void* memory, std::vector<Introduction> ranks);
  ~SharedCommunicator() override;

  // Opens the memory of the other ranks. Returns false if a rank has no memory, or if its memory cannot be opened.
  bool open();

  void run(Request& request) override;
  void giveUp() override;
  void abort() override;

 private:
  // Locks that are held for a whole message: a pipe is a stream of bytes, and does not know where a message ends.
  struct Peer {
    std::mutex sending;
    std::mutex receiving;
  };

  void checkStep() const;
  bool hasLeft(int other, bool checksProcesses) const;
  void throwLeft(int rank) const;
  void wait(Counter& counter, int rank, const Deadline& deadline, const std::function<bool()>& isReady);

  // Collectives: collective.cpp.
  class Collective;
  void runCollective(Request& request, const Deadline& deadline);

  // Messages: messages.cpp.
  void send(const Request& request);
  void receive(Request& request);
  std::unique_lock<std::mutex> awaitAnySender(int& from, const Deadline& deadline);
  void write(int to, const void* data, size_t bytes, const Deadline& deadline);
  void read(int from, void* data, size_t bytes, const Deadline& deadline);
  Pipe& pipe(int from, int to) const;

  const std::vector<Introduction> ranks_; // those of this host
  const int rank_;                        // the index of this process in `ranks_`
  const int size_;
  const uint32_t pipeBytes_;  // a power of two
  std::vector<void*> memory_; // device addresses, one for each rank
  std::vector<Mailbox*> mailboxes_;
  std::mutex mutex_; // held for a whole collective
  uint32_t stage_ = 0;
  std::vector<char> sums_; // one stage of a reduction: the sums over the ranks so far
  std::vector<Peer> peers_;
  std::atomic<bool> aborted_{false};
};

} // namespace occl
