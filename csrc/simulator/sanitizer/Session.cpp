#include "simulator/sanitizer/Session.h"

#include <c10/util/StringUtil.h>
#include <openreg_activity.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/OpenRegException.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegKernel.h"
#include "runtime/OpenRegStream.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"
#include "simulator/sanitizer/HostAccess.h"
#include "simulator/sanitizer/MemoryCheck.h"
#include "simulator/sanitizer/Observer.h"
#include "simulator/sanitizer/RaceCheck.h"
#include "simulator/sanitizer/SessionState.h"

namespace c10::openreg::sanitizer {
namespace {

orSubscriber_t subscriber = nullptr;

// Adds the blocks that are allocated already.
void take_stock(SessionState& fresh) {
  for (const auto& segment : device_allocator()->snapshot({0, 0}, false).segments) {
    size_t address = segment.address;
    if (segment.owner_private_pool_id.first != 0) {
      ShadowBlock& block = fresh.shadow.add(reinterpret_cast<const void*>(address), segment.total_size);
      block.device = segment.device;
      block.is_of_graph = true;
      continue;
    }
    for (const auto& each : segment.blocks) {
      if (each.active) {
        ShadowBlock& block = fresh.shadow.add(reinterpret_cast<const void*>(address), each.size);
        block.device = segment.device;
        block.stream =
            OpenRegStream(
                Stream(
                    Stream::UNSAFE, Device(identity.type, segment.device), reinterpret_cast<StreamId>(segment.stream)))
                .stream();
      }
      address += each.size;
    }
  }
}

// How long the end of a session waits for queued kernels. There is a limit because a kernel may itself wait for
// something that the program no longer does, such as a message of another process.
constexpr std::chrono::seconds kLongestWait{10};

// Waits until the streams of the session have run their work. Asks instead of synchronizing, because a call that waits
// would take the failures of the work, which are for the program, and would order the work before what the host does.
void wait_for_streams() {
  std::vector<orStream_t> streams;
  {
    const std::lock_guard lock(session_mutex);
    for (Actor actor = 1; actor < session->clocks.actors(); ++actor) {
      streams.push_back(session->clocks.stream_of(actor));
    }
  }
  const auto limit = std::chrono::steady_clock::now() + kLongestWait;
  for (const orStream_t stream : streams) {
    orError_t error = orStreamQuery(stream);
    while (error == orErrorNotReady && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      error = orStreamQuery(stream);
    }
    if (error != orSuccess && error != orErrorNotReady) { // the stream was destroyed, or its device is lost
      orGetLastError();
    }
  }
}

} // namespace

void start(unsigned checks, bool raises) {
  TORCH_CHECK(!running, "The sanitizer is enabled already.");
  auto fresh = std::make_unique<SessionState>();
  fresh->checks = checks;
  fresh->raises = raises;
  if (detail::started) { // otherwise there is no work and no memory yet, and the sanitizer does not start the devices
    for (DeviceIndex device = 0; device < device_count(); ++device) {
      device_synchronize(device);
    }
    take_stock(*fresh);
  }
  {
    const std::lock_guard lock(session_mutex);
    session = std::move(fresh);
  }
  forget_pending();
  running = true;
  watches_growth = (checks & kLeak) != 0;
  watch_ends_of_blocks(checks & kMemory);
  OPENREG_CHECK(orActivitySubscribe(&subscriber, observe, nullptr, kObserved));
  if (checks & (kRace | kInit | kGraph)) {
    watch_host_accesses(true);
  }
}

void stop_raising() {
  {
    const std::lock_guard lock(session_mutex);
    if (session) {
      session->raises = false;
      session->last_leak = std::min(session->last_leak, session->order);
      std::vector<Report> found; // now, because a wait of the host would order the uses before the frees
      settle_early_frees(std::nullopt, found);
      add_new_reports(found);
    }
  }
  forget_pending();
}

void stop() {
  if (!running) {
    return;
  }
  stop_raising();
  if (session->checks & kMemory && detail::started && !orIsInBadFork()) { // the end of each kernel is checked
    wait_for_streams();
  }
  if (running.exchange(false)) {
    watch_host_accesses(false);
    OPENREG_CHECK(orActivityUnsubscribe(subscriber));
    watches_growth = false;
    watch_ends_of_blocks(false);
    const std::lock_guard lock(session_mutex);
    std::vector<Report> found;
    settle_early_frees(std::nullopt, found);
    session->pinned_sources.check_all(found);
    add_new_reports(found);
    session->shadow = {};
    session->clocks = {};
    session->graphs = {};
    session->handles.clear();
  }
}

std::vector<Finding> findings(size_t first, bool settles) {
  std::vector<Report> reports;
  {
    const std::lock_guard lock(session_mutex);
    if (session && settles) {
      std::vector<Report> found;
      settle_early_frees(std::nullopt, found);
      add_new_reports(found);
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
      finding.parts.push_back(
          {access.name,
           in_words(access.action),
           place_of(access),
           describe(access.site),
           {access.shape.begin(), access.shape.end()},
           access.extent.end - access.extent.begin});
    }
  }
  return result;
}

void fail_at_exit(bool fails) {
  static std::atomic<bool> is_failed;
  [[maybe_unused]] static const int registered = on_exit(
      [](int status, void*) {
        if (status == 0 && is_failed) {
          std::fflush(nullptr);
          _exit(1);
        }
      },
      nullptr);
  is_failed = fails;
}

void look_for_leaks() {
  const std::lock_guard lock(session_mutex);
  if (!session || !(session->checks & kLeak)) {
    return;
  }
  std::vector<Report> found;
  find_leaks(session->shadow, session->handles, session->last_leak, found);
  add_new_reports(found);
}

std::vector<GrowthCheck::Growing> growing(const std::set<uintptr_t>& owned) {
  const std::lock_guard lock(session_mutex);
  return session ? session->growth.find(session->shadow, owned) : std::vector<GrowthCheck::Growing>{};
}

} // namespace c10::openreg::sanitizer
