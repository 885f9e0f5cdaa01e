#include "occl/communicator.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <utility>

namespace occl {
namespace {

constexpr int kMaxRanks = 256;               // the plan of 256 ranks fits into Mailbox::kPlan
constexpr uint32_t kLongestPipe = 256 << 10; // bytes; a power of two
constexpr uint32_t kPipes = 4 << 20;         // bytes for the pipes to all ranks of a large group; a power of two
constexpr std::chrono::microseconds kSpin{50};
constexpr std::chrono::milliseconds kLivenessInterval{200}; // the time between two checks whether the other rank lives

// Whether the process runs. False for a zombie: a process that has ended, but whose parent has not waited for it.
bool lives(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(file, line)) {
    return false;
  }
  const size_t nameEnd = line.rfind(')');
  return nameEnd != std::string::npos && line[nameEnd + 2] != 'Z' && line[nameEnd + 2] != 'X';
}

[[noreturn]] void throwAborted() {
  throw Error(Error::Code::aborted, "The process group was aborted");
}

[[noreturn]] void throwFailed(const std::string& what) {
  throw Error(Error::Code::failed, what);
}

// A text that is the same for all processes that see each other in /proc. With different values of
// OCCL_HOSTID, ranks on one machine count as ranks of several hosts, as with NCCL_HOSTID.
std::string hostIdentity() {
  static const std::string machine = [] {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    struct stat status{};
    stat("/proc/self/ns/pid", &status);
    return boot + "/" + std::to_string(status.st_ino) + "/";
  }();
  const char* const id = std::getenv("OCCL_HOSTID");
  return machine + (id == nullptr ? "" : id);
}

std::string keyOf(const char* what, int rank) {
  return std::string(what) + "/" + std::to_string(rank);
}

} // namespace

RankPlace placeOf(int device) {
  orDeviceProp properties;
  if (allowsSharedDevices() || orGetDeviceProperties(&properties, device) != orSuccess) {
    return {};
  }
  return {std::hash<std::string>()(hostIdentity()) | 1, properties.pciBusID - 1};
}

Placement connect(const Bootstrap& bootstrap, int rank, int size) {
  // The hosts are not known yet, so there is room for a pipe to every rank.
  const uint32_t pipeBytes = std::min(kLongestPipe, kPipes / std::bit_ceil(static_cast<uint32_t>(size)));
  void* memory = nullptr;
  Introduction own{};
  own.rank = rank;
  own.process = getpid();
  own.hasMemory = size <= kMaxRanks &&
                  orMalloc(&memory, sizeof(Mailbox) + size * (sizeof(Pipe) + pipeBytes)) == orSuccess &&
                  orIpcGetMemHandle(&own.memory, memory) == orSuccess;
  hostIdentity().copy(own.host, sizeof(own.host) - 1);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&own);
  bootstrap.set(keyOf("rank", rank), {bytes, bytes + sizeof(own)});

  Placement placement;
  std::vector<std::string> hosts;
  std::vector<Introduction> neighbours; // the ranks of this host
  int index = 0;
  for (int other = 0; other < size; ++other) {
    Introduction theirs{};
    std::memcpy(&theirs, bootstrap.get(keyOf("rank", other)).data(), sizeof(theirs));
    if (std::find(hosts.begin(), hosts.end(), theirs.host) == hosts.end()) {
      hosts.emplace_back(theirs.host);
      placement.leaders.push_back(other);
    }
    if (std::string_view(theirs.host) == own.host) {
      index = other == rank ? static_cast<int>(neighbours.size()) : index;
      neighbours.push_back(theirs);
    }
  }
  const auto made = std::make_shared<SharedCommunicator>(index, pipeBytes, memory, std::move(neighbours));
  bootstrap.set(keyOf("opened", rank), {made->open()});
  bool all = true;
  for (int other = 0; other < size; ++other) {
    all = bootstrap.get(keyOf("opened", other)).at(0) != 0 && all;
  }
  if (all) {
    placement.communicator = made;
  }
  return placement;
}

SharedCommunicator::SharedCommunicator(int rank, uint32_t pipeBytes, void* memory, std::vector<Introduction> ranks)
    : ranks_(std::move(ranks)),
      rank_(rank),
      size_(static_cast<int>(ranks_.size())),
      pipeBytes_(pipeBytes),
      memory_(size_),
      mailboxes_(size_),
      peers_(size_) {
  memory_[rank_] = memory;
  if (ranks_[rank_].hasMemory) {
    mailboxes_[rank_] = new (orGetKernelPointer(memory)) Mailbox; // NOLINT: freed with the memory
    for (int to = 0; to < size_; ++to) {
      new (&pipe(rank_, to)) Pipe; // NOLINT: freed with the memory
    }
  }
}

bool SharedCommunicator::open() {
  for (int other = 0; other < size_; ++other) {
    if (!ranks_[other].hasMemory) {
      return false;
    }
    if (other != rank_) {
      if (orIpcOpenMemHandle(&memory_[other], ranks_[other].memory, 0) != orSuccess) {
        return false;
      }
      mailboxes_[other] = static_cast<Mailbox*>(orGetKernelPointer(memory_[other]));
    }
  }
  return true;
}

SharedCommunicator::~SharedCommunicator() {
  abort();
  // On another thread: both calls wait for the device, and the device may be waiting for this thread.
  runOnThread([memory = memory_, rank = rank_] {
    for (size_t other = 0; other < memory.size(); ++other) {
      if (memory[other] != nullptr) {
        static_cast<int>(other) == rank ? orFree(memory[other]) : orIpcCloseMemHandle(memory[other]);
      }
    }
  });
}

void SharedCommunicator::abort() {
  aborted_ = true;
  if (mailboxes_[rank_] != nullptr) {
    giveUp();
  }
}

void SharedCommunicator::giveUp() {
  Mailbox& own = *mailboxes_[rank_];
  own.failed = 1;
  own.posted.wake();
  own.taken.wake();
  for (Mailbox* const mailbox : mailboxes_) {
    if (mailbox != nullptr) {
      mailbox->bell.increment();
    }
  }
}

Pipe& SharedCommunicator::pipe(int from, int to) const {
  char* const pipes = reinterpret_cast<char*>(mailboxes_[from] + 1);
  return *reinterpret_cast<Pipe*>(pipes + to * (sizeof(Pipe) + pipeBytes_));
}

// Throws if this rank has given up: another rank could take the data of this collective for data of the one that
// failed.
void SharedCommunicator::checkStep() const {
  if (mailboxes_[rank_]->failed != 0) {
    throwFailed("An earlier collective of this rank failed");
  }
}

bool SharedCommunicator::hasLeft(int other, bool checksProcesses) const {
  return mailboxes_[other]->failed.load() != 0 || (checksProcesses && !lives(ranks_[other].process));
}

// Throws if the rank has failed or exited. `rank` -1: all other ranks have.
void SharedCommunicator::throwLeft(int rank) const {
  if (rank < 0) {
    throwFailed("All other ranks have exited, or have failed in a collective");
  }
  throwFailed(
      "Rank " + std::to_string(ranks_[rank].rank) + " (process " + std::to_string(ranks_[rank].process) +
      (mailboxes_[rank]->failed.load() != 0 ? ") has failed in a collective" : ") has exited"));
}

// Waits until `isReady()` is true. Another rank makes it true, and changes `counter` afterwards. Throws if that cannot
// happen any more, because the rank `rank` has exited or has failed. If `rank` is -1, any other rank can make it true,
// and the function throws when all of them have exited or failed.
void SharedCommunicator::wait(
    Counter& counter, int rank, const Deadline& deadline, const std::function<bool()>& isReady) {
  const auto begin = std::chrono::steady_clock::now();
  bool slept = false;
  for (;;) {
    const uint32_t seen = counter.value.load();
    if (isReady()) {
      return;
    }
    if (std::chrono::steady_clock::now() - begin < kSpin) {
      sched_yield();
      continue;
    }
    if (aborted_) {
      throwAborted();
    }
    bool haveLeft = size_ > 1;
    for (int other = rank < 0 ? 0 : rank; haveLeft && other < (rank < 0 ? size_ : rank + 1); ++other) {
      haveLeft = (rank < 0 && other == rank_) || hasLeft(other, slept);
    }
    if (haveLeft) {
      if (!isReady()) { // the other rank may have made isReady() true before it exited
        throwLeft(rank);
      }
      return;
    }
    if (deadline.passed()) {
      throw Error(
          Error::Code::timeout,
          "Timed out waiting for " + (rank < 0 ? "any rank" : "rank " + std::to_string(ranks_[rank].rank)));
    }
    counter.sleep(seen, std::min<std::chrono::nanoseconds>(kLivenessInterval, deadline.left()));
    slept = true;
  }
}

void SharedCommunicator::run(Request& request) {
  try {
    if (aborted_) {
      throwAborted();
    }
    if (request.verb == Verb::send) {
      send(request);
    } else if (request.verb == Verb::recv) {
      receive(request);
    } else {
      const std::lock_guard lock(mutex_); // needed if a group uses two devices, and so two streams
      checkStep();
      runCollective(request, Deadline(request.timeout));
    }
  } catch (const Error& error) {
    if (!error.keepsStep()) { // abort() calls giveUp() itself
      giveUp();
    }
    throw;
  } catch (...) {
    giveUp();
    throw;
  }
}

} // namespace occl
