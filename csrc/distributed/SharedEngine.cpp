#include "SharedEngine.h"

#include <linux/futex.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <fstream>
#include <sstream>

#include "Reduce.h"
#include "Threads.h"
#include "runtime/OpenRegException.h"

namespace c10d::openreg {
namespace {

constexpr size_t kHalf = 512 << 10; // bytes; it fits into the processor's cache
constexpr size_t kPlan = 16 << 10;  // bytes
constexpr int kMaxRanks = 256;      // the plan of a larger group would not fit into kPlan
constexpr std::chrono::microseconds kSpin{50};
constexpr std::chrono::milliseconds kLivenessInterval{200}; // the time between two checks whether the other rank lives

struct Counter {
  alignas(64) std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;
};

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds time) {
  const timespec limit{time.count() / 1'000'000'000, time.count() % 1'000'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void advance(Counter& counter, uint32_t value) {
  counter.value.store(value);
  if (counter.sleepers.load() != 0) {
    futex_wake(counter.value);
  }
}

bool reached(uint32_t counter, uint32_t stage) {
  return static_cast<int32_t>(counter - stage) >= 0;
}

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

// A text that is the same for all processes that see each other in /proc.
std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat status{};
  stat("/proc/self/ns/pid", &status);
  return boot + "/" + std::to_string(status.st_ino);
}

// What a rank tells the others through the store.
struct RankInfo {
  int process;
  orIpcMemHandle_t handle;
};

} // namespace

struct SharedEngine::Mailbox {
  Counter posted;
  Counter taken;
  std::atomic<uint32_t> failed;
  alignas(64) char plan[kPlan];
  alignas(4096) char halves[2][kHalf];
};

bool SharedEngine::supports(Verb verb) {
  switch (verb) {
    case Verb::broadcast:
    case Verb::allreduce:
    case Verb::allgather:
    case Verb::reduce_scatter:
    case Verb::alltoall:
    case Verb::barrier:
      return true;
    default:
      return false;
  }
}

SharedEngine::SharedEngine(int rank, int size)
    : rank_(rank), size_(size), memory_(size), mailboxes_(size), processes_(size) {}

std::shared_ptr<SharedEngine> SharedEngine::make(Store& store, int rank, int size, std::chrono::milliseconds timeout) {
  std::shared_ptr<SharedEngine> engine(new SharedEngine(rank, size));
  const bool opened = engine->open(store, timeout);
  store.set("opened/" + std::to_string(rank), std::vector<uint8_t>{opened});
  bool all = true;
  for (int other = 0; other < size; ++other) {
    const std::string key = "opened/" + std::to_string(other);
    store.wait({key}, timeout);
    all = all && store.get(key).at(0) != 0;
  }
  return all ? engine : nullptr;
}

bool SharedEngine::open(Store& store, std::chrono::milliseconds timeout) {
  RankInfo info{getpid(), {}};
  const bool made = size_ <= kMaxRanks && orMalloc(&memory_[rank_], sizeof(Mailbox)) == orSuccess &&
                    orIpcGetMemHandle(&info.handle, memory_[rank_]) == orSuccess;
  if (made) {
    mailboxes_[rank_] = new (orGetKernelPointer(memory_[rank_])) Mailbox(); // NOLINT: freed with the memory
  }
  const std::string own_host = made ? host_identity() : "";
  std::vector<uint8_t> text(sizeof(RankInfo));
  std::memcpy(text.data(), &info, sizeof(RankInfo));
  text.insert(text.end(), own_host.begin(), own_host.end());
  store.set("rank/" + std::to_string(rank_), text);
  bool opened = made;
  for (int other = 0; other < size_; ++other) {
    const std::string key = "rank/" + std::to_string(other);
    store.wait({key}, timeout);
    const std::vector<uint8_t> theirs = store.get(key);
    const std::string their_host(theirs.begin() + sizeof(RankInfo), theirs.end());
    std::memcpy(&info, theirs.data(), sizeof(RankInfo));
    processes_[other] = info.process;
    if (opened && other != rank_) {
      opened = their_host == own_host && orIpcOpenMemHandle(&memory_[other], info.handle, 0) == orSuccess;
      if (opened) {
        mailboxes_[other] = static_cast<Mailbox*>(orGetKernelPointer(memory_[other]));
      }
    }
  }
  return opened;
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
    mailboxes_[rank_]->failed = 1;
    futex_wake(mailboxes_[rank_]->posted.value);
    futex_wake(mailboxes_[rank_]->taken.value);
  }
}

char* SharedEngine::half(int rank, uint32_t stage) const {
  return mailboxes_[rank]->halves[stage % 2];
}

void SharedEngine::wait(std::atomic<uint32_t>& value, uint32_t stage, int rank, const Deadline& deadline) {
  Mailbox& other = *mailboxes_[rank];
  Counter& counter = &value == &other.posted.value ? other.posted : other.taken;
  const auto begin = std::chrono::steady_clock::now();
  bool slept = false;
  for (;;) {
    const uint32_t seen = counter.value.load();
    if (reached(seen, stage)) {
      return;
    }
    if (std::chrono::steady_clock::now() - begin < kSpin) {
      sched_yield();
      continue;
    }
    if (aborted_) {
      throw Refusal({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, "The process group was aborted");
    }
    if (other.failed.load() != 0 || (slept && !lives(processes_[rank]))) {
      TORCH_CHECK(
          reached(counter.value.load(), stage), // it may have reached the stage before it failed
          "Rank ",
          rank,
          " (process ",
          processes_[rank],
          other.failed.load() != 0 ? ") has given up" : ") has ended");
      return;
    }
    TORCH_CHECK(!deadline.passed(), "Timed out waiting for rank ", rank);
    ++counter.sleepers;
    if (counter.value.load() == seen) {
      futex_wait(counter.value, seen, std::min<std::chrono::nanoseconds>(kLivenessInterval, deadline.left()));
    }
    --counter.sleepers;
    slept = true;
  }
}

void SharedEngine::post(uint32_t stage) {
  advance(mailboxes_[rank_]->posted, stage);
}

void SharedEngine::take(uint32_t stage) {
  advance(mailboxes_[rank_]->taken, stage);
}

void SharedEngine::run(Request& request) {
  const std::lock_guard lock(mutex_); // needed if a group uses two devices, and so two streams
  try {
    transfer(request, Deadline(request.timeout));
  } catch (const Refusal&) {
    throw; // all ranks find the mismatch, in the same stage: the counters agree
  } catch (...) {
    mailboxes_[rank_]->failed = 1;
    throw;
  }
}

void SharedEngine::transfer(Request& request, const Deadline& deadline) {
  const auto sends = [&](int rank) { return request.verb != Verb::broadcast || rank == request.root; };
  if (!sends(rank_)) {
    request.inputs.clear();
  }
  const Plan own = make_plan(request, size_);
  const bool per_rank = request.inputs.size() > 1; // whether each receiver gets other data
  const bool reduces = request.verb == Verb::allreduce || request.verb == Verb::reduce_scatter;
  const size_t chunk = (per_rank ? kHalf / size_ : kHalf) / 64 * 64;
  const auto input = [&](int to) -> const at::Tensor& { return request.inputs[per_rank ? to : 0]; };
  const auto output = [&](int from) -> const at::Tensor& {
    return request.outputs[request.outputs.size() > 1 ? from : 0];
  };
  const auto part = [&](uint64_t bytes, size_t index) -> size_t {
    return std::min<uint64_t>(chunk, bytes - std::min<uint64_t>(bytes, index * chunk));
  };
  const auto copy = [](void* to, const void* from, size_t bytes) {
    if (bytes != 0 && to != from) {
      std::memcpy(to, from, bytes);
    }
  };

  size_t stages = 1;
  std::vector<Plan> plans(size_);
  std::exception_ptr refusal;
  for (size_t index = 0; index < stages; ++index) {
    const uint32_t stage = ++stage_;
    for (int other = 0; other < size_; ++other) {
      if (other != rank_) {
        wait(mailboxes_[other]->taken.value, stage - 2, other, deadline);
        if (index == 0) { // there is only one place for the plan, not two
          wait(mailboxes_[other]->taken.value, stage - 1, other, deadline);
        }
      }
    }
    if (index == 0) {
      write_plan(own, mailboxes_[rank_]->plan);
    }
    if (!request.inputs.empty()) {
      for (int to = 0; to < (per_rank ? size_ : 1); ++to) {
        if (!per_rank || to != rank_) {
          copy(
              half(rank_, stage) + to * chunk,
              static_cast<char*>(input(to).data_ptr()) + index * chunk,
              part(input(to).nbytes(), index));
        }
      }
    }
    post(stage);

    for (int from = 0; from < size_; ++from) {
      if (from != rank_ && sends(from)) {
        wait(mailboxes_[from]->posted.value, stage, from, deadline);
      }
    }
    if (index == 0) {
      uint64_t longest = 0;
      for (int from = 0; from < size_; ++from) {
        plans[from] = from == rank_ ? own : sends(from) ? read_plan(mailboxes_[from]->plan, size_) : Plan{};
        for (const uint64_t bytes : plans[from].sends) {
          longest = std::max(longest, bytes);
        }
      }
      stages = std::max<size_t>(1, (longest + chunk - 1) / chunk);
      try {
        check_plans(rank_, plans);
      } catch (const Refusal&) {
        const bool goes_on = request.verb == Verb::broadcast && plans[request.root].header.type == own.header.type &&
                             plans[request.root].header.root == own.header.root;
        if (!goes_on) {
          take(stage);
          throw;
        }
        refusal = std::current_exception(); // the root does not know of it, and needs its bytes taken
        request.outputs.clear();
      }
    }
    const auto data_of = [&](int from) -> const char* {
      return from == rank_ ? static_cast<const char*>(input(rank_).data_ptr()) + index * chunk
                           : half(from, stage) + (per_rank ? rank_ * chunk : 0);
    };
    for (int from = 0; from < size_ && !request.outputs.empty(); ++from) {
      const size_t bytes = part(own.expects[from], index);
      char* const target = static_cast<char*>(output(from).data_ptr()) + index * chunk;
      if (!reduces || size_ == 1) {
        if (sends(from)) {
          copy(target, data_of(from), bytes);
        }
        continue;
      }
      if (from == 0) {
        continue; // the first operand of the next step
      }
      // The last step alone writes the output: that may be the input, which the steps before still need.
      sums_.resize(kHalf);
      const auto type = request.outputs[0].scalar_type();
      const auto numel = static_cast<int64_t>(bytes / c10::elementSize(type));
      const bool is_last = from == size_ - 1;
      char* const into = is_last ? target : sums_.data();
      combine(request.reduction.op, type, into, from == 1 ? data_of(0) : sums_.data(), data_of(from), numel);
      if (is_last) {
        finish_reduction(request.reduction, type, target, numel);
      }
    }
    take(stage);
  }
  if (refusal) {
    std::rethrow_exception(refusal);
  }
}

} // namespace c10d::openreg
