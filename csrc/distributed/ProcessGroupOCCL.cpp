#include "distributed/ProcessGroupOCCL.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "runtime/OpenRegFunctions.h"

namespace c10d::openreg {
namespace {

// The store of a new group's keys: `store` with a prefix. The store may still have the keys of earlier groups of this name: torchrun restarts
// ranks on the same store, and a program may end its groups and make them again. So each attempt of torchrun has keys
// of its own, and so has each group within the attempt. The store keeps the number of groups that a rank has made,
// because a process that takes the place of a dead rank must go on with that rank's number. All members of a group have
// the same number, because every one of them makes each group of this name and size.
c10::intrusive_ptr<Store> new_store(const c10::intrusive_ptr<Store>& store, int rank, int size) {
  const char* attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  const std::string prefix = c10::str("occl/", attempt == nullptr ? "0" : attempt, "/", size, "/");
  return c10::make_intrusive<PrefixStore>(c10::str(prefix, store->add(c10::str(prefix, "made/", rank), 1)), store);
}

} // namespace

ProcessGroupOCCL::ProcessGroupOCCL(
    const c10::intrusive_ptr<Store>& store, int rank, int size, c10::intrusive_ptr<Options> options)
    : Backend(rank, size),
      store_(new_store(store, rank, size)),
      options_(std::move(options)),
      group_(std::make_shared<GroupState>(rank, make_engine(store_, rank, size, options_->timeout))),
      queue_(options_, group_) {
  init();
}

ProcessGroupOCCL::~ProcessGroupOCCL() {
  if (orIsInBadFork()) { // the memory is the parent's, and an engine may wait for threads that a child does not have
    new std::shared_ptr<GroupState>(group_); // NOLINT: a leak
  }
}

void ProcessGroupOCCL::registerOnCompletionHook(std::function<void(std::shared_ptr<WorkInfo>)>&& hook) {
  TORCH_CHECK_WITH(DistBackendError, !group_->hook, "ProcessGroupOCCL OnCompletion hook already registered");
  group_->hook.set(std::move(hook));
}

void ProcessGroupOCCL::waitForPendingWorks() {
  group_->streams.synchronize();
  group_->hook.wait();
}

void ProcessGroupOCCL::abort() {
  c10::openreg::check_not_forked();
  queue_.end_raising();
  group_->engine->abort();
}

void ProcessGroupOCCL::shutdown() {
  waitForPendingWorks();
  for (const std::exception_ptr& failure : queue_.end_raising()) {
    try {
      std::rethrow_exception(failure);
    } catch (const c10::Error& error) {
      TORCH_WARN(
          "A process group has ended, and the program never waited for a collective that failed: ",
          error.what_without_backtrace());
    }
  }
}

// The members meet in this group's store, and not in the one that PyTorch passes. The prefix of that one is the new
// group's name, which contains the number of groups that the process has made: ranks that have made different numbers
// of groups would not find each other. ncclCommSplit() uses the communicator of the group, and no store.
c10::intrusive_ptr<Backend> ProcessGroupOCCL::split(
    const c10::intrusive_ptr<Store>& /*store*/,
    const std::vector<int>& ranks,
    const c10::intrusive_ptr<Backend::Options>& options) {
  ++split_count_;
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (own == ranks.end()) {
    return nullptr;
  }
  const int rank = static_cast<int>(own - ranks.begin());
  const int size = static_cast<int>(ranks.size());
  auto store = c10::make_intrusive<PrefixStore>(c10::str("split/", split_count_, "/", c10::Join(",", ranks)), store_);
  return c10::make_intrusive<ProcessGroupOCCL>(store, rank, size, options_->for_split(ranks, options));
}

c10::intrusive_ptr<Work> ProcessGroupOCCL::endCoalescing() {
  return queue_.end_coalescing();
}

} // namespace c10d::openreg
