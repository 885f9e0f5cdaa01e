#include "distributed/SharedEngine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "distributed/Threads.h"
#include "runtime/OpenRegException.h"
#include "runtime/OpenRegObserver.h"

namespace c10d::openreg {
namespace {

constexpr int kMaxRanks = 256;               // larger groups use gloo; the plan of 256 ranks fits into Mailbox::kPlan
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
  const size_t name_end = line.rfind(')');
  return name_end != std::string::npos && line[name_end + 2] != 'Z' && line[name_end + 2] != 'X';
}

[[noreturn]] void refuse_aborted() {
  throw Refusal({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, "The process group was aborted");
}

// A text that is the same for all processes that see each other in /proc. With different values of
// OCCL_HOSTID, ranks on one machine count as ranks of several hosts, as with NCCL_HOSTID.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat status{};
  stat("/proc/self/ns/pid", &status);
  const char* const id = std::getenv("OCCL_HOSTID");
  return c10::str(boot, "/", status.st_ino, "/", id == nullptr ? "" : id);
}

} // namespace

SharedEngine::Placement SharedEngine::make(Store& store, int rank, int size, std::chrono::milliseconds timeout) {
  const auto tell = [&](const char* what, const void* value, size_t bytes) {
    const auto* const begin = static_cast<const uint8_t*>(value);
    store.set(c10::str(what, "/", rank), std::vector<uint8_t>(begin, begin + bytes));
  };
  const auto hear = [&](const char* what, int other) {
    const std::string key = c10::str(what, "/", other);
    store.wait({key}, timeout);
    return store.get(key);
  };

  // The hosts are not known yet, so there is room for a pipe to every rank.
  const uint32_t pipe_bytes = std::min(kLongestPipe, kPipes / std::bit_ceil(static_cast<uint32_t>(size)));
  void* memory = nullptr;
  Introduction own{};
  own.rank = rank;
  own.process = getpid();
  {
    const c10::openreg::ObservedCalls calls(
        c10::openreg::CallKind::Internal); // no leak of the program: the group frees the memory
    own.has_memory = size <= kMaxRanks &&
                     orMalloc(&memory, sizeof(Mailbox) + size * (sizeof(Pipe) + pipe_bytes)) == orSuccess &&
                     orIpcGetMemHandle(&own.memory, memory) == orSuccess;
  }
  host_identity().copy(own.host, sizeof(own.host) - 1);
  tell("rank", &own, sizeof(own));

  Placement placement;
  std::vector<std::string> hosts;
  std::vector<Introduction> neighbours; // the ranks of this host
  int index = 0;
  for (int other = 0; other < size; ++other) {
    Introduction theirs{};
    std::memcpy(&theirs, hear("rank", other).data(), sizeof(theirs));
    if (std::find(hosts.begin(), hosts.end(), theirs.host) == hosts.end()) {
      hosts.emplace_back(theirs.host);
      placement.leaders.push_back(other);
    }
    if (std::string_view(theirs.host) == own.host) {
      index = other == rank ? static_cast<int>(neighbours.size()) : index;
      neighbours.push_back(theirs);
    }
  }
  placement.engine.reset(new SharedEngine(index, pipe_bytes, memory, std::move(neighbours)));
  const uint8_t opened = placement.engine->open();
  tell("opened", &opened, 1);
  bool all = true;
  for (int other = 0; other < size; ++other) {
    all = hear("opened", other).at(0) != 0 && all;
  }
  if (!all) {
    placement.engine = nullptr;
  }
  return placement;
}

SharedEngine::SharedEngine(int rank, uint32_t pipe_bytes, void* memory, std::vector<Introduction> ranks)
    : ranks_(std::move(ranks)),
      rank_(rank),
      size_(static_cast<int>(ranks_.size())),
      pipe_bytes_(pipe_bytes),
      memory_(size_),
      mailboxes_(size_),
      peers_(size_) {
  memory_[rank_] = memory;
  if (ranks_[rank_].has_memory) {
    mailboxes_[rank_] = new (orGetKernelPointer(memory)) Mailbox; // NOLINT: freed with the memory
    for (int to = 0; to < size_; ++to) {
      new (&pipe(rank_, to)) Pipe; // NOLINT: freed with the memory
    }
  }
}

bool SharedEngine::open() {
  for (int other = 0; other < size_; ++other) {
    if (!ranks_[other].has_memory) {
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

SharedEngine::~SharedEngine() {
  abort();
  // On another thread: both calls wait for the device, and the device may be waiting for this thread.
  run_on_thread([memory = memory_, rank = rank_] {
    for (size_t other = 0; other < memory.size(); ++other) {
      if (memory[other] != nullptr) {
        static_cast<int>(other) == rank ? orFree(memory[other]) : orIpcCloseMemHandle(memory[other]);
      }
    }
  });
}

void SharedEngine::abort() {
  aborted_ = true;
  if (mailboxes_[rank_] != nullptr) {
    give_up();
  }
}

void SharedEngine::give_up() {
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

Pipe& SharedEngine::pipe(int from, int to) const {
  char* const pipes = reinterpret_cast<char*>(mailboxes_[from] + 1);
  return *reinterpret_cast<Pipe*>(pipes + to * (sizeof(Pipe) + pipe_bytes_));
}

// Waits until `is_ready()` is true. Another rank makes it true, and changes `counter` afterwards. Throws if that cannot
// happen any more, because the rank `rank` has exited or has failed. If `rank` is -1, any other rank can make it true,
// and the function throws when all of them have exited or failed.
void SharedEngine::wait(Counter& counter, int rank, const Deadline& deadline, c10::function_ref<bool()> is_ready) {
  const auto begin = std::chrono::steady_clock::now();
  bool slept = false;
  const auto has_left = [&](int other) {
    return mailboxes_[other]->failed.load() != 0 || (slept && !lives(ranks_[other].process));
  };
  for (;;) {
    const uint32_t seen = counter.value.load();
    if (is_ready()) {
      return;
    }
    if (std::chrono::steady_clock::now() - begin < kSpin) {
      sched_yield();
      continue;
    }
    if (aborted_) {
      refuse_aborted();
    }
    bool have_left = size_ > 1;
    for (int other = rank < 0 ? 0 : rank; have_left && other < (rank < 0 ? size_ : rank + 1); ++other) {
      have_left = (rank < 0 && other == rank_) || has_left(other);
    }
    if (have_left) {
      const bool became_ready = is_ready(); // the other rank may have made is_ready() true before it exited
      TORCH_CHECK(became_ready || rank >= 0, "All other ranks have exited, or have failed in a collective");
      TORCH_CHECK(
          became_ready,
          "Rank ",
          ranks_[rank].rank,
          " (process ",
          ranks_[rank].process,
          mailboxes_[rank]->failed.load() != 0 ? ") has failed in a collective" : ") has exited");
      return;
    }
    TORCH_CHECK(
        !deadline.passed(), "Timed out waiting for ", rank < 0 ? "any rank" : c10::str("rank ", ranks_[rank].rank));
    counter.sleep(seen, std::min<std::chrono::nanoseconds>(kLivenessInterval, deadline.left()));
    slept = true;
  }
}

void SharedEngine::run(Request& request) {
  try {
    if (aborted_) {
      refuse_aborted();
    }
    if (request.verb == Verb::send) {
      send(request);
    } else if (request.verb == Verb::recv) {
      receive(request);
    } else {
      const std::lock_guard lock(mutex_); // needed if a group uses two devices, and so two streams
      // Without this check, another rank could take this collective's data for data of the collective that failed.
      TORCH_CHECK(mailboxes_[rank_]->failed == 0, "An earlier collective of this rank failed");
      run_collective(request, Deadline(request.timeout));
    }
  } catch (const Refusal&) {
    throw; // All ranks find a mismatch in the same stage, so their counters agree. abort() calls give_up() itself.
  } catch (...) {
    give_up();
    throw;
  }
}

} // namespace c10d::openreg
