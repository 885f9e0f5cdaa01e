#include "ipc_event.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device.h"
#include "error.h"
#include "memfd.h"
#include "scheduler.h"
#include "scheduler_state.h"
#include "stream.h"
#include "windows.h"

namespace openreg {

// How many of the latest records a SharedPage knows. A record that is older counts as reached.
constexpr size_t kRecords = 128;

struct SharedPage {
  struct Slot {                    // shared by the records whose numbers are equal modulo kRecords
    std::atomic<uint64_t> reached; // the highest number that was reached
    std::atomic<uint64_t> record;  // encoded as `last`: the latest of these records, except the event's last record
  };
  // The number of the event's last record, times kProcesses, plus the process that made it. Both change at once, so
  // each record has its process, even if the process ends within record().
  std::atomic<uint64_t> last;
  std::array<Slot, kRecords> slots;
};
constexpr uint64_t kProcesses = uint64_t{1} << 22; // Linux gives no process a higher number
static_assert(sizeof(SharedPage) <= kPageSize && std::atomic<uint64_t>::is_always_lock_free);

std::shared_ptr<SharedEvent> SharedEvent::map(int fd) {
  void* const page = mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) {
    const int reason = errno;
    close(fd);
    errno = reason;
    return nullptr;
  }
  return std::make_shared<SharedEvent>(fd, static_cast<SharedPage*>(page));
}

SharedEvent::~SharedEvent() {
  munmap(page_, kPageSize);
  close(fd);
}

uint64_t SharedEvent::record() {
  uint64_t last = page_->last, number = 0;
  do {
    number = last / kProcesses;
    std::atomic<uint64_t>& record = page_->slots[number % kRecords].record;
    for (uint64_t before = record; before < last && !record.compare_exchange_weak(before, last);) {
    }
    ++number;
  } while (!page_->last.compare_exchange_weak(last, number * kProcesses + getpid()));
  return number;
}

void SharedEvent::reach(uint64_t number) {
  std::atomic<uint64_t>& reached = page_->slots[number % kRecords].reached;
  uint64_t before = reached;
  while (before < number && !reached.compare_exchange_weak(before, number)) {
  }
}

uint64_t SharedEvent::last() const {
  return page_->last / kProcesses;
}

bool SharedEvent::isReached(uint64_t number) const {
  return number == 0 || page_->slots[number % kRecords].reached >= number || last() >= number + kRecords;
}

bool SharedEvent::isAbandoned(uint64_t number) const {
  const uint64_t last = page_->last;
  const uint64_t record = last / kProcesses == number ? last : page_->slots[number % kRecords].record.load();
  const auto process = static_cast<int>(record % kProcesses);
  char path[32], text[512];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", process);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return errno == ENOENT;
  }
  const ssize_t length = read(file, text, sizeof(text) - 1);
  close(file);
  text[length > 0 ? length : 0] = '\0';
  const char* const name = std::strrchr(text, ')'); // the state follows the name: "12 (python3) Z"
  return name == nullptr || name[1] == '\0' || name[2] == 'Z' || name[2] == 'X';
}

namespace {

struct Awaited {
  std::shared_ptr<SharedEvent> event;
  uint64_t number;
  orCompletion_t completion = nullptr;
};

// The thread that polls the records of other processes, and completes the items of the hidden streams that stand for
// them. It polls because no process tells it that another process has ended.
class Watcher {
 public:
  void add(Awaited&& awaited) {
    const std::lock_guard lock(mutex_);
    awaited_.push_back(std::move(awaited));
    if (!isRunning_) {
      sigset_t all, previous; // the host's own threads handle signals
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &previous);
      try {
        std::thread([this] { run(); }).detach();
      } catch (...) {
        pthread_sigmask(SIG_SETMASK, &previous, nullptr);
        awaited_.pop_back();
        throw;
      }
      pthread_sigmask(SIG_SETMASK, &previous, nullptr);
      isRunning_ = true;
    }
  }

 private:
  static constexpr std::chrono::microseconds kPause{100};
  static constexpr int kLooksPerCheck = 500; // about 50 ms

  void run() { // returns when no record is awaited any more
    for (int look = 1;; ++look) {
      std::vector<std::pair<orCompletion_t, std::exception_ptr>> done;
      {
        const std::lock_guard lock(mutex_);
        std::erase_if(awaited_, [&](const Awaited& each) {
          std::exception_ptr failure;
          if (!each.event->isReached(each.number)) {
            if (look % kLooksPerCheck != 0 || !each.event->isAbandoned(each.number) ||
                each.event->isReached(each.number)) {
              return false;
            }
            failure = std::make_exception_ptr(
                std::runtime_error("the process that recorded an event ended before its device reached the record"));
          }
          done.emplace_back(each.completion, std::move(failure));
          return true;
        });
        isRunning_ = !awaited_.empty() || !done.empty();
        if (!isRunning_) {
          return;
        }
      }
      for (auto& [completion, failure] : done) {
        complete(completion, std::move(failure));
      }
      std::this_thread::sleep_for(kPause);
    }
  }

  std::mutex mutex_;
  std::vector<Awaited> awaited_;
  bool isRunning_ = false;
};

void await(void* data, orCompletion_t completion) {
  static auto* const watcher = new Watcher(); // never deleted: its thread may run while the process exits
  const std::unique_ptr<Awaited> awaited(static_cast<Awaited*>(data));
  awaited->completion = completion;
  watcher->add(std::move(*awaited));
}

} // namespace

orError_t followOtherProcesses(const std::shared_ptr<Event>& event) {
  if (!event->shared) {
    return orSuccess;
  }
  const uint64_t number = event->shared->last();
  {
    const Locked locked;
    if (event->number == number) { // the last record is of this process, or the mark stands for it already
      return orSuccess;
    }
  }
  Mark mark;
  if (!event->shared->isReached(number)) {
    mark = {std::make_shared<Stream>(event->device, 0), 1};
    Work work{Engine::hostFunction, nullptr, new Awaited{event->shared, number}};
    work.deferred = &await;
    if (orError_t error = launch(mark.stream, work, orLaunchDefault); error != orSuccess) {
      delete static_cast<Awaited*>(work.data);
      return error;
    }
  }
  const Locked locked;
  if (event->number < number) {
    event->number = number;
    event->mark = mark;
  }
  return orSuccess;
}

} // namespace openreg
