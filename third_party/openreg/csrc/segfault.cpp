#include "segfault.h"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>

#include "device_memory.h"
#include "pinned_memory.h"
#include "scheduler.h"
#include "windows.h"

// All code here, except HeldWriters and installSegfaultHandler(), runs in a signal handler. It must not allocate
// memory, use stdio, or wait for a lock.

namespace openreg {
namespace {

struct sigaction previous;

// One line for stderr.
class Sentence {
 public:
  Sentence& operator<<(const char* text) {
    while (*text != '\0' && length_ < text_.size()) {
      text_[length_++] = *text++;
    }
    return *this;
  }

  Sentence& operator<<(size_t number) {
    return append(number, 10);
  }

  Sentence& operator<<(const void* address) {
    return (*this << "0x").append(reinterpret_cast<uintptr_t>(address), 16);
  }

  void write() {
    *this << "\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text_.data(), length_);
  }

 private:
  Sentence& append(size_t number, unsigned base) {
    std::array<char, 24> digits;
    char* digit = digits.end();
    *--digit = '\0';
    do {
      *--digit = "0123456789abcdef"[number % base];
      number /= base;
    } while (number != 0);
    return *this << digit;
  }

  std::array<char, 1024> text_;
  size_t length_ = 0;
};

const void* placeOf(uintptr_t address) {
  return reinterpret_cast<const void*>(address);
}

// The address of the fault that caused this signal; 0 if there is none.
//
// Python's faulthandler may have been installed over our handler. It restores ours and sends the signal again with
// raise(), which carries no address. The interrupted context still holds the address of the thread's last fault.
uintptr_t faultAddress(const siginfo_t& info, const ucontext_t& context) {
  if (info.si_code == SEGV_MAPERR || info.si_code == SEGV_ACCERR) {
    return reinterpret_cast<uintptr_t>(info.si_addr);
  }
  if (info.si_code <= 0) {
#if defined(__x86_64__)
    return static_cast<uintptr_t>(context.uc_mcontext.gregs[REG_CR2]);
#elif defined(__aarch64__)
    return static_cast<uintptr_t>(context.uc_mcontext.fault_address);
#endif
  }
  return 0;
}

void explainHostAccess(uintptr_t address) {
  const int device = windows.deviceOf(address);
  Sentence sentence;
  sentence << "openreg: the host accessed device memory at " << placeOf(address);
  std::optional<Allocation> allocation;
  if (!deviceMemory(device).tryFind(address, allocation)) {
    sentence << " (device " << size_t(device) << ")";
  } else if (allocation) {
    sentence << " (allocation of " << allocation->size << " bytes at " << placeOf(allocation->begin) << " on device "
             << size_t(device) << ", offset " << address - allocation->begin << ")";
  } else {
    sentence << " (device " << size_t(device) << ", in no allocation: freed, or out of bounds)";
  }
  sentence
      << ". Device memory cannot be dereferenced on the host: copy it first, tensor.cpu() in PyTorch, or orMemcpy in "
         "C; kernels use orGetKernelPointer().";
  sentence.write();
}

// Whether the access that failed must be repeated. A kernel's access within an allocation, and each access to pinned
// memory, fails only while the memory is moved (HeldWriters). The thread that moves the memory holds the lock of the
// allocations. If tryFind() gives up because the lock stays taken, the memory may still be moving: the access is
// repeated, and this handler may run again.
bool wasHeld(uintptr_t address) {
  if (!windows.containsKernel(address)) {
    return mayBePinned(address);
  }
  std::optional<Allocation> allocation;
  return !deviceMemory(windows.deviceOf(address)).tryFind(windows.toDevice(address), allocation) || allocation;
}

void explain(uintptr_t address) {
  // If the previous handler returns without a remedy, the access faults again and again. The sentence is written once.
  static std::atomic<uintptr_t> last{0};
  if (windows.containsDevice(address)) {
    if (last.exchange(address) != address) {
      explainHostAccess(address);
    }
  } else if (windows.containsKernel(address)) {
    if (last.exchange(address) != address) {
      Sentence sentence;
      const char* const name = nameOfRunningKernel(); // NULL on a thread that helps a kernel (OpenMP)
      const int device = windows.deviceOf(address);
      const uintptr_t place = windows.toDevice(address);
      sentence << "openreg: " << (name ? "the kernel " : "a kernel") << (name ? name : "")
               << " accessed memory of device " << size_t(device) << " at " << placeOf(place);
      std::optional<Allocation> guarded;
      if (deviceMemory(device).tryFind(place, guarded, true) && guarded) {
        sentence << ", " << place - (guarded->begin + guarded->size) << " bytes past the end of an allocation of "
                 << guarded->size << " bytes: an index is out of bounds.";
      } else {
        sentence << " that is not allocated: it was freed before the kernel ran, or an index is out of bounds.";
      }
      sentence.write();
    }
  } else if (address - windows.inherited < 2 * windows.inheritedSpan) {
    if (last.exchange(address) != address) {
      Sentence sentence;
      sentence << "openreg: a forked child accessed device memory of its parent at " << placeOf(address)
               << ". A child has no device memory. To use OpenReg with multiprocessing, you must use the 'spawn' start "
                  "method.";
      sentence.write();
    }
  }
}

void passOn(const struct sigaction& next, int signal, siginfo_t* info, void* context) {
  if ((next.sa_flags & SA_SIGINFO) != 0) {
    next.sa_sigaction(signal, info, context);
    return;
  }
  if (next.sa_handler != SIG_DFL && next.sa_handler != SIG_IGN) {
    next.sa_handler(signal);
    return;
  }
  if (info->si_code <= 0 && next.sa_handler == SIG_IGN) {
    return; // raise() or kill() sent the signal, so it can be ignored
  }
  // `next` is the default action, or SIG_IGN for a fault: Linux treats both alike. The action follows when the handler
  // returns. Then either the access faults again, or the signal that is raised below is delivered: it is blocked only
  // while the handler runs.
  sigaction(SIGSEGV, &next, nullptr);
  if (info->si_code <= 0) {
    raise(signal);
  }
}

void handle(int signal, siginfo_t* info, void* context) {
  const int savedErrno = errno;
  const uintptr_t address = faultAddress(*info, *static_cast<const ucontext_t*>(context));
  const bool retry = wasHeld(address);
  if (!retry) {
    explain(address);
  }
  errno = savedErrno;
  if (!retry) {
    passOn(previous, signal, info, context);
  }
}

// The handler that HeldWriters replaced. It may be Python's faulthandler, installed over ours, which would report a
// crash before our handler runs.
struct sigaction displaced;

void handleFirst(int signal, siginfo_t* info, void* context) {
  const int savedErrno = errno;
  const bool retry = wasHeld(faultAddress(*info, *static_cast<const ucontext_t*>(context)));
  errno = savedErrno;
  if (!retry) {
    passOn(displaced, signal, info, context);
  }
}

} // namespace

HeldWriters::HeldWriters() {
  mutex_.lock();
  struct sigaction action{};
  action.sa_sigaction = handleFirst;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &displaced);
}

HeldWriters::~HeldWriters() {
  sigaction(SIGSEGV, &displaced, nullptr);
  mutex_.unlock();
}

void installSegfaultHandler() {
  struct sigaction action{};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  // The first call sets `previous`. The second call installs our handler before it writes `previous`. If another thread
  // faults in between, our handler finds the value of the first call.
  sigaction(SIGSEGV, nullptr, &previous);
  sigaction(SIGSEGV, &action, &previous);
}

} // namespace openreg
