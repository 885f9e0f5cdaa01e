#include <algorithm>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "error.h"
#include "hooks.h"
#include "scheduler.h"
#include "scheduler_state.h"

// The failures of work that was launched, in every execution mode. A stream keeps its first failure (engine.cpp). The
// functions here take it, drop it, or return it from a call that waits.

namespace openreg {
namespace {

std::string reasonOf(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown exception";
  }
}

// Removes the first failure whose stream matches, and returns it.
template <typename Matches>
std::optional<Failure> takeFailureIf(Matches&& matches) {
  auto& failures = scheduler->failures;
  const auto it = std::find_if(failures.begin(), failures.end(), [&](const Failure& f) { return matches(*f.stream); });
  if (it == failures.end()) {
    return std::nullopt;
  }
  std::optional<Failure> failure(std::move(*it));
  failures.erase(it);
  return failure;
}

} // namespace

std::optional<Failure> takeFailure(const Stream& stream) {
  return takeFailureIf([&](const Stream& failed) { return &failed == &stream; });
}

std::optional<Failure> takeFailureOfDevice(int device) {
  return takeFailureIf([&](const Stream& failed) { return failed.device == device; });
}

void printFailures(size_t first) {
  for (size_t i = first; i < scheduler->failures.size(); ++i) {
    const Failure& failure = scheduler->failures[i];
    std::fprintf(
        stderr,
        "openreg: a function that was queued on a stream of device %d ran at exit, and failed: %s\n",
        failure.stream->device,
        reasonOf(failure.exception).c_str());
  }
}

int dropFailure(const std::exception_ptr& exception) {
  std::vector<Failure> dropped; // deleted after the lock has been given up
  const Locked locked;
  auto& failures = scheduler->failures;
  const auto begin = std::stable_partition(
      failures.begin(), failures.end(), [&](const Failure& failure) { return failure.exception != exception; });
  dropped.assign(std::move_iterator(begin), std::move_iterator(failures.end()));
  failures.erase(begin, failures.end());
  return static_cast<int>(dropped.size());
}

orError_t report(std::optional<Failure> failure) {
  if (!failure) {
    return orSuccess;
  }
  try {
    std::rethrow_exception(failure->exception);
  } catch (const WorkError& error) {
    return failVerbatim(error.code, error.what());
  } catch (...) {
  }
  const std::string reason = reasonOf(failure->exception);
  setLaunchFailure(std::move(failure->exception));
  return fail(
      orErrorLaunchFailure,
      "a function launched earlier on a stream of device %d failed: %s. The device is usable; what the function should "
      "have written is not",
      failure->stream->device,
      reason.c_str());
}

orError_t reportOrLost(std::optional<Failure> failure, int device) {
  const orError_t lost = checkDevice(device);
  return lost != orSuccess ? lost : report(std::move(failure));
}

} // namespace openreg
