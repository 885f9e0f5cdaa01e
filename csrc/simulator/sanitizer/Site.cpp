#include "simulator/sanitizer/Site.h"

#include <openreg_activity.h>

#include <atomic>

namespace c10::openreg::sanitizer {
namespace {

std::atomic<Sites (*)(bool)> take_sites{nullptr};
std::atomic<std::string (*)(Site)> describe_site{nullptr};

// How many begin_calls() of each kind have not ended yet.
thread_local unsigned internal_calls = 0;
thread_local unsigned calls_under_lock = 0;
thread_local Site fixed_site = 0; // the answer of current_site() while calls_under_lock is not 0

} // namespace

void set_site_source(SiteSource source) {
  take_sites = source.take;
  describe_site = source.describe;
}

Sites current_sites(bool with_outer) {
  if (internal_calls != 0) {
    return {};
  }
  if (calls_under_lock != 0) {
    return {fixed_site, 0};
  }
  const auto fn = take_sites.load(std::memory_order_relaxed);
  return fn ? fn(with_outer) : Sites{};
}

void begin_calls(CallKind kind) {
  if (kind == CallKind::Internal) {
    ++internal_calls;
    return;
  }
  if (calls_under_lock == 0) {
    fixed_site = orIsObserved(orActivityLaunch) ? current_site() : 0;
  }
  ++calls_under_lock;
}

void end_calls(CallKind kind) {
  --(kind == CallKind::Internal ? internal_calls : calls_under_lock);
}

bool is_internal_call() {
  return internal_calls != 0;
}

std::string describe(Site site) {
  const auto fn = describe_site.load();
  return fn && site != 0 ? fn(site) : "an unknown line";
}

} // namespace c10::openreg::sanitizer
