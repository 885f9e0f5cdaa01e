#include "aten/native/FallbackPolicy.h"

#include <fnmatch.h>

#include <algorithm>
#include <atomic>

#include "aten/native/OperatorTraits.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegMutex.h"

namespace at::openreg {
namespace {

c10::openreg::ForkSafeMutex policy_mutex; // guards current()
FallbackPolicy& current() {
  static auto* policy = new FallbackPolicy; // a thread of autograd may outlive static destruction
  return *policy;
}
std::atomic<bool> silent{true}; // whether current().mode is Silent, so that the default case takes no lock

// Whether `name` matches `pattern`. The pattern may leave out the namespace, the overload, or both.
bool matches(const std::string& pattern, const std::string& name) {
  const auto matches_whole = [&](const std::string& text) { return fnmatch(pattern.c_str(), text.c_str(), 0) == 0; };
  const std::string short_name = name.substr(name.find("::") + 2);
  return matches_whole(name) || matches_whole(name.substr(0, name.find('.'))) || matches_whole(short_name) ||
         matches_whole(short_name.substr(0, short_name.find('.')));
}

C10_NOINLINE void apply_policy(const OperatorTraits& op) {
  const FallbackPolicy policy = fallback_policy();
  if (policy.mode == FallbackMode::Silent ||
      std::any_of(policy.allowed.begin(), policy.allowed.end(), [&](const auto& p) { return matches(p, op.name); })) {
    return;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      policy.mode == FallbackMode::Warn,
      "The operator '",
      op.name,
      "' has no kernel of its own on the ",
      identity.device,
      " device, and ",
      identity.module,
      ".fallback refuses to run the CPU's in its place. To allow it, add '",
      op.name,
      "' to the `allow` list of ",
      identity.module,
      ".fallback.set_policy, or to TORCH_OPENREG_FALLBACK.");
  if (!op.fallback.warned.exchange(true)) {
    TORCH_WARN(
        "The operator '",
        op.name,
        "' has no kernel of its own on the ",
        identity.device,
        " device and falls back to the CPU's. This warning comes once per "
        "operator; ",
        identity.module,
        ".fallback counts the calls.");
  }
}

} // namespace

FallbackPolicy fallback_policy() {
  const std::lock_guard lock(policy_mutex);
  return current();
}

void set_fallback_policy(FallbackPolicy policy) {
  for_each_traits([](const OperatorTraits& op) { op.fallback.warned = false; });
  const std::lock_guard lock(policy_mutex);
  silent = policy.mode == FallbackMode::Silent;
  current() = std::move(policy);
}

std::vector<std::pair<std::string, uint64_t>> fallback_counts() {
  std::vector<std::pair<std::string, uint64_t>> counts;
  for_each_traits([&](const OperatorTraits& op) {
    if (const uint64_t calls = op.fallback.calls; calls > 0) {
      counts.emplace_back(op.name, calls);
    }
  });
  return counts;
}

void reset_fallback_counts() {
  for_each_traits([](const OperatorTraits& op) { op.fallback.calls = 0; });
}

void note_fallback(const OperatorTraits& op) {
  if (C10_UNLIKELY(!silent.load(std::memory_order_relaxed))) {
    apply_policy(op);
  }
  op.fallback.calls.fetch_add(1, std::memory_order_relaxed);
}

void note_fallback(const c10::FunctionSchema& op) {
  note_fallback(traits_of(op));
}

} // namespace at::openreg
