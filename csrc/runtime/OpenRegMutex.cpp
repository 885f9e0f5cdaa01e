#include "OpenRegMutex.h"

#include <pthread.h>

#include <vector>

namespace c10::openreg {
namespace {

// All ForkSafeMutexes. One thread fills the list while the library loads; it is never destroyed.
std::vector<ForkSafeMutex*>& held_across_fork() {
  static auto* all = [] {
    pthread_atfork(
        [] {
          for (ForkSafeMutex* each : held_across_fork()) {
            each->lock();
          }
        },
        [] {
          for (ForkSafeMutex* each : held_across_fork()) {
            each->unlock();
          }
        },
        [] {
          for (ForkSafeMutex* each : held_across_fork()) {
            each->unlock();
          }
        });
    return new std::vector<ForkSafeMutex*>;
  }();
  return *all;
}

} // namespace

ForkSafeMutex::ForkSafeMutex() {
  held_across_fork().push_back(this);
}

} // namespace c10::openreg
