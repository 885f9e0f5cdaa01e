#include "Session.h"

#include <ATen/record_function.h>
#include <c10/util/StringUtil.h>
#include <openreg_activity.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "../runtime/OpenRegException.h"
#include "../runtime/OpenRegKept.h"
#include "../runtime/OpenRegKernel.h"
#include "../runtime/OpenRegMutex.h"
#include "../runtime/OpenRegStream.h"
#include "../runtime/memory/OpenRegDeviceAllocator.h"
#include "../runtime/memory/OpenRegRedZone.h"
#include "HostAccess.h"
#include "InitCheck.h"
#include "MemoryCheck.h"
#include "RaceCheck.h"
#include "Shadow.h"

namespace c10::openreg::sanitizer {
namespace {

struct Handle {
  const char* name; // of the function that made it
  Site site;
};

// A free that is a race unless the block's stream waits for `user` before it allocates again.
struct EarlyFree {
  Access free;
  Access user;
  size_t size;
  Site allocated;
};

// A kernel that is queued.
struct Launch {
  Site site;
  uint64_t order; // of the last allocation before it
};

struct Session {
  unsigned checks = 0;
  bool raises = false;
  Clocks clocks;
  Shadow shadow;
  std::deque<Report> reports;
  std::set<std::tuple<Site, Site, const void*, const void*>> known; // what was reported
  std::map<const void*, Handle> handles;
  std::vector<EarlyFree> early_frees;
  std::map<uint64_t, Launch> launches; // by correlation: of kernels that have not ended
  uint64_t order = 0;
};

ForkSafeMutex mutex; // a leaf
std::unique_ptr<Session> session;
std::atomic<bool> running{false};
std::atomic<uint64_t> generation{0};
orSubscriber_t subscriber = nullptr;
std::atomic<void (*)(size_t)> raiser{nullptr};

// Of the calling thread: the finding that its next work is to be stopped with.
struct Pending {
  uint64_t generation = 0;
  size_t finding = 0;
  bool exists = false;
};
thread_local Pending pending;

bool has_pending() {
  return pending.exists && pending.generation == generation.load(std::memory_order_relaxed);
}

void raise_pending() {
  if (has_pending()) {
    pending.exists = false;
    orGetLastError();
    if (const auto raise = raiser.load()) {
      raise(pending.finding);
    }
  }
}

// Under the lock.
void keep(std::vector<Report>& found) {
  for (Report& each : found) {
    const Access& first = each.accesses.front();
    const Access& last = each.accesses.back();
    if (!session->known.emplace(first.site, last.site, first.name, last.name).second) {
      continue;
    }
    if (session->raises && !has_pending()) {
      pending = {generation, session->reports.size(), true};
    }
    session->reports.push_back(std::move(each));
  }
  found.clear();
}

// Under the lock. Of the stream of `actor`, or of all: whoever has not waited by now is too late.
void settle_early_frees(std::optional<Actor> actor, std::vector<Report>& found) {
  std::erase_if(session->early_frees, [&](const EarlyFree& each) {
    if (actor && each.free.actor != *actor) {
      return false;
    }
    if (!session->clocks.is_before(each.user.actor, each.user.time, each.free.actor)) {
      found.push_back(make_early_free(each.free, each.user, each.size, each.allocated));
    }
    return true;
  });
}

// ---- operands

Access to_access(const orOperand& operand) {
  Access access;
  access.extent = Extent(operand);
  access.verb = operand.access & orAccessWrite ? Access::Verb::Write : Access::Verb::Read;
  access.reads = operand.access & orAccessRead;
  access.shape.assign(operand.sizes, operand.sizes + operand.dims);
  access.item = operand.itemSize;
  return access;
}

// An orOperandFn_t, whose context is a vector of accesses.
void collect_operand(const orOperand* operand, void* context) {
  auto* const accesses = static_cast<std::vector<Access>*>(context);
  accesses->push_back(to_access(*operand));
  if (accesses->back().extent.empty()) {
    accesses->pop_back();
  }
}

// Valid until the thread's next activity.
std::vector<Access>& collect(const orActivity& activity) {
  thread_local std::vector<Access> accesses;
  accesses.clear();
  orActivityVisitOperands(&activity, collect_operand, &accesses);
  return accesses;
}

void stamp(std::vector<Access>& accesses, const orActivity& activity, Actor actor, uint64_t time, Site site) {
  for (Access& access : accesses) {
    access.actor = actor;
    access.time = time;
    access.site = site;
    access.name = activity.name;
    access.stream = activity.stream;
    access.device = activity.device;
  }
}

// ---- what happens

thread_local int kernels_within = 0; // kernels, copies and fills that this thread computes at the moment
thread_local const CustomOperands* custom_operands = nullptr;
thread_local Site kernel_site = 0; // of the kernel that this thread has begun

bool is_on_this_thread(const orActivity& activity) {
  return activity.kind == orActivityKernel && activity.correlation == 0;
}

void stop_if_pending() {
  if (has_pending()) {
    orActivityStop(orErrorAssert);
  }
}

// Such a copy is done when the call returns, also if it was asked not to wait.
bool is_copy_to_pageable_memory(const orActivity& activity, const std::vector<Access>& accesses) {
  if (std::strcmp(activity.name, "memcpy") != 0) {
    return false;
  }
  return std::any_of(accesses.begin(), accesses.end(), [](const Access& access) {
    orPointerAttributes attributes{};
    orPointerGetAttributes(&attributes, reinterpret_cast<const void*>(access.extent.begin));
    return access.writes() && attributes.type == orMemoryTypeUnregistered;
  });
}

// Work begins, in the order of the program.
void begin_work(const orActivity& activity, bool tells_results) {
  const Site site = kernel_site = current_site();
  std::vector<Access>& accesses = collect(activity);
  if (!activity.operands && custom_operands) {
    for (const auto& [tensor, is_written] : *custom_operands) {
      const unsigned access = is_written ? orAccessRead | orAccessWrite : orAccessRead;
      visit_tensor(*tensor.unsafeGetTensorImpl(), access, collect_operand, &accesses);
    }
  }
  {
    const std::lock_guard lock(mutex);
    if (!session) {
      return;
    }
    std::vector<Report> found;
    if (session->checks & kMemory && tells_results) {
      session->launches[activity.correlation] = {site, session->order};
    }
    const Actor actor = session->clocks.actor_of(activity.stream);
    stamp(accesses, activity, actor, session->clocks.step(actor), site);
    if (session->checks & kInit) {
      if (activity.operands) {
        check_reads(session->shadow, activity.name, accesses, found);
        if (tells_results) {
          note_writes(session->shadow, activity.name, accesses);
        }
      } else {
        forget_unwritten(session->shadow);
      }
    }
    if (session->checks & kMemory) {
      for (const Access& access : accesses) {
        if (session->shadow.find(access.extent.begin)) {
          continue;
        }
        if (const auto* const freed = session->shadow.find_freed(access.extent.begin)) {
          found.push_back(make_use_after_free(access, freed->size, freed->allocated, freed->freed));
        }
      }
    }
    const bool waits = is_copy_to_pageable_memory(activity, accesses);
    if (session->checks & kRace) {
      for (Access& access : accesses) {
        if (Block* const block = session->shadow.find(access.extent.begin)) {
          check_access(*block, std::move(access), session->clocks, found);
        }
      }
    }
    if (waits) {
      session->clocks.host_waits(actor);
    }
    keep(found);
  }
  stop_if_pending();
}

// The red zones of the blocks that a kernel of this thread has in its hands; of all blocks, if it did not tell which.
struct Suspects {
  std::vector<uintptr_t> addresses;
  bool all = false;
};
thread_local std::vector<Suspects> suspects; // one for each kernel that this thread is in

void begin_watch(const orActivity& activity) {
  if (kernels_within == 1) {
    suspects.clear(); // of a session that ended within a kernel
  }
  Suspects& mine = suspects.emplace_back();
  mine.all = !activity.operands;
  for (const Access& access : collect(activity)) {
    mine.addresses.push_back(access.extent.begin);
  }
}

void end_watch(const orActivity& activity) {
  if (suspects.empty()) { // it began before the session
    return;
  }
  const Suspects mine = std::move(suspects.back());
  suspects.pop_back();
  const std::lock_guard lock(mutex);
  if (!session) {
    return;
  }
  const auto launch = session->launches.find(activity.correlation);
  Access kernel{
      .verb = Access::Verb::Write, .name = activity.name, .stream = activity.stream, .device = activity.device};
  kernel.site = kernel_site;
  uint64_t order = session->order;
  if (launch != session->launches.end()) {
    kernel.site = launch->second.site;
    order = launch->second.order;
    session->launches.erase(launch);
  }
  std::vector<Report> found;
  const auto look = [&](Block& block) {
    if (block.order > order) { // made since then of the same memory: its pattern is not written yet
      return;
    }
    block.is_armed |= block.stream == activity.stream;
    if (block.has_red_zone && block.is_armed && !is_red_zone_whole(block)) {
      kernel.extent = red_zone_of(block);
      found.push_back(make_overrun(block, kernel));
    }
  };
  if (mine.all) {
    for (auto& [begin, block] : session->shadow.blocks()) {
      look(block);
    }
  }
  for (const uintptr_t address : mine.addresses) {
    if (Block* const block = session->shadow.find(address)) {
      look(*block);
    }
  }
  keep(found);
}

// A kernel of this thread has ended, and tells of its results.
void end_work(const orActivity& activity) {
  if (!activity.operands) {
    return;
  }
  std::vector<Access>& accesses = collect(activity);
  const std::lock_guard lock(mutex);
  if (!session) {
    return;
  }
  std::vector<Report> found;
  const Actor actor = session->clocks.actor_of(activity.stream);
  stamp(accesses, activity, actor, session->clocks.now(actor), kernel_site);
  if (session->checks & kInit) {
    note_writes(session->shadow, activity.name, accesses);
  }
  if (session->checks & kRace) {
    for (Access& access : accesses) {
      if (access.writes()) {
        if (Block* const block = session->shadow.find(access.extent.begin)) {
          check_access(*block, std::move(access), session->clocks, found);
        }
      }
    }
  }
  keep(found);
}

void allocate(const orActivity& activity) {
  if (std::strcmp(activity.name, "orMalloc") == 0) { // the allocator's, who tells of its blocks
    return;
  }
  const Site site = current_site();
  const std::vector<Access>& memory = collect(activity);
  if (memory.empty()) {
    return;
  }
  const Extent& extent = memory.front().extent;
  const bool has_red_zone = red_zone.load(std::memory_order_relaxed) != 0 && activity.stream;
  if (has_red_zone) {
    Block block;
    block.begin = extent.begin;
    block.size = extent.run;
    fill_red_zone(red_zone_of(block), activity.stream);
  }
  const std::lock_guard lock(mutex);
  if (!session) {
    return;
  }
  if (session->checks & kRace && activity.stream) {
    std::vector<Report> found;
    settle_early_frees(session->clocks.actor_of(activity.stream), found);
    keep(found);
  }
  Block& block = session->shadow.add(reinterpret_cast<const void*>(extent.begin), extent.run);
  block.stream = activity.stream;
  block.device = activity.device;
  block.site = site;
  block.order = ++session->order;
  block.has_red_zone = has_red_zone;
  if (session->checks & kInit && activity.device >= 0) {
    block.unwritten.add(extent);
  }
}

void free(const orActivity& activity) {
  if (std::strcmp(activity.name, "orFree") == 0) {
    return;
  }
  const Site site = red_zone.load(std::memory_order_relaxed) != 0 ? current_site() : 0;
  const std::vector<Access>& memory = collect(activity);
  std::vector<EarlyFree> early;
  {
    const std::lock_guard lock(mutex);
    Block* const block = session && !memory.empty() ? session->shadow.find(memory.front().extent.begin) : nullptr;
    if (!block) {
      return;
    }
    if (session->checks & kRace && block->stream) {
      Access access{.verb = Access::Verb::Free, .name = "the last reference", .stream = block->stream};
      access.actor = session->clocks.actor_of(block->stream);
      access.device = block->device;
      access.extent = Extent(reinterpret_cast<const void*>(block->begin), block->size);
      for (Access& user : find_users(*block, access, session->clocks)) {
        early.push_back({access, std::move(user), block->size, block->site});
      }
    }
    session->shadow.remove(*block, site);
  }
  if (!early.empty()) { // so rare that only they pay for the line
    const Site line = current_site();
    const std::lock_guard lock(mutex);
    for (EarlyFree& each : early) {
      each.free.site = line;
      if (session) {
        session->early_frees.push_back(std::move(each));
      }
    }
  }
}

void note_use(const orActivity& activity) {
  const std::vector<Access>& memory = collect(activity);
  const std::lock_guard lock(mutex);
  if (session && !memory.empty()) {
    if (Block* const block = session->shadow.find(memory.front().extent.begin)) {
      block->users.push_back(session->clocks.actor_of(activity.stream));
    }
  }
}

void synchronize(const orActivity& activity) {
  const std::string_view name(activity.name);
  const auto event = static_cast<orEvent_t>(const_cast<void*>(activity.object));
  const std::lock_guard lock(mutex);
  if (!session) {
    return;
  }
  Clocks& clocks = session->clocks;
  if (name == "orEventRecord") {
    clocks.record(event, clocks.actor_of(activity.stream));
  } else if (name == "orStreamWaitEvent") {
    clocks.wait(clocks.actor_of(activity.stream), event);
  } else if (name == "orDeviceSynchronize") {
    clocks.host_waits_for_device(activity.device);
  } else if (event) { // orEventSynchronize, orNoteWait
    clocks.wait(kHost, event);
  } else if (activity.stream) { // orStreamSynchronize, orNoteWait, and copies that wait
    clocks.host_waits(clocks.actor_of(activity.stream));
  }
}

void note_handle(const orActivity& activity) {
  const Site site = activity.phase == orActivityBegin ? current_site() : 0;
  const std::lock_guard lock(mutex);
  if (!session) {
    return;
  }
  if (activity.phase == orActivityBegin) {
    if (makes_kept_handle) {
      return;
    }
    session->handles[activity.object] = {activity.name, site};
    return;
  }
  session->handles.erase(activity.object);
  session->clocks.forget(static_cast<orEvent_t>(const_cast<void*>(activity.object)));
}

bool is_wait(std::string_view name) {
  return name == "orStreamSynchronize" || name == "orDeviceSynchronize" || name == "orEventSynchronize" ||
         name == "orMemcpy" || name == "orMemset" || name == "orMemcpyWithStream";
}

// An order of streams holds for what is launched after the call; the host knows of work after the wait.
bool orders(const orActivity& activity) {
  if (activity.phase == orActivityPoint) {
    return true;
  }
  return is_wait(activity.name) ? activity.phase == orActivityEnd
                                : activity.phase == orActivityBegin && activity.object != nullptr;
}

void observe(const orActivity* activity, void*) {
  switch (activity->kind) {
    case orActivityLaunch:
      return begin_work(*activity, true);
    case orActivityKernel:
      if (activity->phase == orActivityBegin) {
        ++kernels_within;
        if (red_zone.load(std::memory_order_relaxed) != 0) {
          begin_watch(*activity);
        }
        if (is_on_this_thread(*activity)) {
          begin_work(*activity, false);
        }
      } else {
        kernels_within -= kernels_within > 0;
        if (red_zone.load(std::memory_order_relaxed) != 0) {
          end_watch(*activity);
        }
        if (is_on_this_thread(*activity)) {
          end_work(*activity);
        }
      }
      return;
    case orActivityAllocation:
      return allocate(*activity);
    case orActivityFree:
      return free(*activity);
    case orActivityUse:
      return note_use(*activity);
    case orActivityHandle:
      return note_handle(*activity);
    case orActivityCall:
    case orActivitySynchronization:
      if (orders(*activity)) {
        synchronize(*activity);
      }
      return;
    default:
      return;
  }
}

constexpr unsigned kObserved = orActivityLaunch | orActivityKernel | orActivityAllocation | orActivityFree |
                               orActivityUse | orActivityHandle | orActivityCall | orActivitySynchronization;

// The blocks that exist already.
void take_stock(Session& fresh) {
  for (const auto& segment : device_allocator()->snapshot({0, 0}, false).segments) {
    size_t address = segment.address;
    for (const auto& each : segment.blocks) {
      if (each.active) {
        Block& block = fresh.shadow.add(reinterpret_cast<const void*>(address), each.size);
        block.device = segment.device;
        block.stream = stream_handle(Stream(
            Stream::UNSAFE,
            Device(DeviceType::PrivateUse1, segment.device),
            reinterpret_cast<StreamId>(segment.stream)));
      }
      address += each.size;
    }
  }
}

} // namespace

void start(unsigned checks, bool raises) {
  TORCH_CHECK(!running, "The sanitizer is enabled already.");
  for (DeviceIndex device = 0; detail::started && device < device_count();
       ++device) { // a device that rests stays at rest
    device_synchronize(device);
  }
  auto fresh = std::make_unique<Session>();
  fresh->checks = checks;
  fresh->raises = raises;
  take_stock(*fresh);
  {
    const std::lock_guard lock(mutex);
    session = std::move(fresh);
  }
  ++generation;
  running = true;
  red_zone = checks & kMemory ? kRedZone : 0;
  set_stop_handler(&raise_pending);
  OPENREG_CHECK(orActivitySubscribe(&subscriber, observe, nullptr, kObserved));
  if (checks & kRace) {
    watch_host_accesses(true);
  }
}

void stop() {
  if (running.exchange(false)) {
    watch_host_accesses(false);
    OPENREG_CHECK(orActivityUnsubscribe(subscriber));
    set_stop_handler(nullptr);
    red_zone = 0;
    const std::lock_guard lock(mutex);
    std::vector<Report> found;
    settle_early_frees(std::nullopt, found);
    keep(found);
    session->shadow = {};
    session->clocks = {};
    session->handles.clear();
  }
}

std::vector<Finding> findings(size_t first, bool settles) {
  std::vector<Report> reports;
  {
    const std::lock_guard lock(mutex);
    if (session && settles) {
      std::vector<Report> found;
      settle_early_frees(std::nullopt, found);
      keep(found);
    }
    for (size_t i = first; session && i < session->reports.size(); ++i) {
      reports.push_back(session->reports[i]);
    }
  }
  std::vector<Finding> result;
  for (const Report& report : reports) {
    Finding& finding = result.emplace_back();
    finding.kind = name_of(report.kind);
    finding.text = to_text(report);
    for (const Access& access : report.accesses) {
      const char* const action = access.verb == Access::Verb::Free ? "frees" : access.writes() ? "writes" : "reads";
      finding.parts.push_back(
          {access.name,
           action,
           name_of_stream(access.stream, access.device),
           describe(access.site),
           {access.shape.begin(), access.shape.end()},
           access.extent.end - access.extent.begin});
    }
  }
  return result;
}

void look_for_leaks() {
  const std::lock_guard lock(mutex);
  if (!session || !(session->checks & kLeak)) {
    return;
  }
  struct Leak {
    size_t count = 0;
    size_t bytes = 0;
  };
  std::map<std::pair<bool, Site>, Leak> leaks; // pinned or not
  for (const auto& [begin, block] : session->shadow.blocks()) {
    if (block.order != 0) {
      Leak& leak = leaks[{block.device < 0, block.site}];
      ++leak.count;
      leak.bytes += block.size;
    }
  }
  std::vector<Report> found;
  for (const auto& [key, leak] : leaks) {
    const char* const what = key.first ? "of pinned memory" : "of device memory";
    Report report{.kind = Kind::Leak};
    report.problem = c10::str(
        leak.bytes,
        " bytes ",
        what,
        " in ",
        leak.count,
        " blocks are still allocated. They were allocated at the line below.");
    Access access{.verb = Access::Verb::Write, .site = key.second, .name = key.first ? "pinned memory" : "a tensor"};
    access.extent = Extent(nullptr, leak.bytes);
    report.accesses.push_back(access);
    report.remedy = "Drop what refers to them: lists and caches that grow, closures, reference cycles, stored graphs.";
    found.push_back(std::move(report));
  }
  std::map<std::pair<std::string, Site>, size_t> handles;
  for (const auto& [object, handle] : session->handles) {
    if (std::strcmp(handle.name, "orMallocHost") != 0) { // the allocator's cache
      ++handles[{handle.name, handle.site}];
    }
  }
  for (const auto& [key, count] : handles) {
    Report report{.kind = Kind::Leak};
    report.problem = c10::str(count, " results of ", key.first, " were never given back.");
    Access access{.verb = Access::Verb::Write, .site = key.second, .name = "a handle"};
    report.accesses.push_back(access);
    found.push_back(std::move(report));
  }
  keep(found);
}

void set_raiser(void (*raise)(size_t finding)) {
  raiser = raise;
}

const CustomOperands* exchange_custom_operands(const CustomOperands* operands) {
  return std::exchange(custom_operands, operands);
}

void note_host_access(const char* name, const at::Tensor& tensor, bool writes) {
  if (!running || kernels_within > 0 || tensor.numel() == 0) {
    return;
  }
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const auto find = [&] { return session ? session->shadow.find(address) : nullptr; };
  {
    const std::lock_guard lock(mutex);
    if (!find()) { // ordinary memory
      return;
    }
  }
  const Site site = current_site();
  std::vector<Access> accesses;
  visit_tensor(*tensor.unsafeGetTensorImpl(), writes ? orAccessWrite : orAccessRead, collect_operand, &accesses);
  const std::lock_guard lock(mutex);
  Block* const block = find();
  if (!block || block->device >= 0 || accesses.empty()) {
    return;
  }
  std::vector<Report> found;
  Access& access = accesses.front();
  access.time = session->clocks.step(kHost);
  access.site = site;
  access.name = name;
  check_access(*block, std::move(access), session->clocks, found);
  keep(found);
}

} // namespace c10::openreg::sanitizer
