#include "environment.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string_view>
#include <vector>

namespace openreg {
namespace {

constexpr int kMaxDevices = 64;
constexpr size_t kMinDeviceMemory = size_t{1} << 20;
constexpr size_t kMaxDeviceMemory = size_t{1} << 44;

template <typename Integer = long long>
std::optional<Integer> parseInteger(std::string_view text) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::string describe(const char* variable, std::string_view value, const char* allowed) {
  return std::string(variable) + "=\"" + std::string(value) + "\" is not valid: expected " + allowed;
}

void readDeviceCount(std::string_view text, Environment& environment) {
  const auto count = parseInteger(text);
  if (!count || *count < 1 || *count > kMaxDevices) {
    environment.error = describe("OPENREG_DEVICE_COUNT", text, "a number of devices from 1 to 64");
    return;
  }
  environment.deviceCount = static_cast<int>(*count);
}

void readDeviceMemory(std::string_view text, Environment& environment) {
  constexpr std::string_view kSuffixes = "KMG";
  size_t unit = 1;
  std::string_view digits = text;
  if (!text.empty()) {
    const size_t suffix = kSuffixes.find(static_cast<char>(std::toupper(static_cast<unsigned char>(text.back()))));
    if (suffix != std::string_view::npos) {
      unit = size_t{1} << 10 * (suffix + 1);
      digits.remove_suffix(1);
    }
  }
  const auto amount = parseInteger(digits);
  if (!amount || *amount < 0 || static_cast<size_t>(*amount) > kMaxDeviceMemory / unit ||
      static_cast<size_t>(*amount) * unit < kMinDeviceMemory) {
    environment.error = describe(
        "OPENREG_DEVICE_MEMORY",
        text,
        "a number of bytes per device from 1M to 16384G, with an optional suffix K, M or G (for example 16G)");
    return;
  }
  environment.deviceMemory = static_cast<size_t>(*amount) * unit;
}

// As CUDA_VISIBLE_DEVICES: an index that does not exist (-1 is the usual one) hides itself and all that follow. Unlike
// CUDA, which takes what it cannot read as such an index and hides every device when one is repeated, both are errors.
// Devices are alike, so that only their number matters, not which of them are visible.
void readVisibleDevices(std::string_view text, Environment& environment) {
  constexpr const char* kAllowed =
      "different device indices separated by commas (for example 0,1), or an empty value to hide every device";
  std::vector<long long> visible;
  bool ended = text.find_first_not_of(' ') == std::string_view::npos;
  for (std::string_view rest = text; !ended;) {
    const size_t comma = rest.find(',');
    std::string_view item = rest.substr(0, comma);
    item.remove_prefix(std::min(item.find_first_not_of(' '), item.size()));
    item = item.substr(0, item.find_last_not_of(' ') + 1);
    const auto index = parseInteger(item);
    if (!index || std::find(visible.begin(), visible.end(), *index) != visible.end()) {
      environment.error = describe("OPENREG_VISIBLE_DEVICES", text, kAllowed);
      return;
    }
    ended = *index < 0 || *index >= environment.deviceCount || comma == std::string_view::npos;
    if (*index >= 0 && *index < environment.deviceCount) {
      visible.push_back(*index);
    }
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
  }
  environment.visibleCount = static_cast<int>(visible.size());
}

void readExecutionMode(std::string_view text, Environment& environment) {
  constexpr std::string_view kModes[] = {"inline", "async", "chaos"};
  const auto mode = std::find(std::begin(kModes), std::end(kModes), text);
  if (mode == std::end(kModes)) {
    environment.error = describe("OPENREG_EXECUTION", text, "inline, async or chaos");
    return;
  }
  environment.executionMode = static_cast<orExecutionMode>(mode - std::begin(kModes));
}

void readChaosSeed(std::string_view text, Environment& environment) {
  const auto seed = parseInteger<uint64_t>(text);
  if (!seed) {
    environment.error = describe("OPENREG_CHAOS_SEED", text, "an integer from 0 to 18446744073709551615");
    return;
  }
  environment.chaosSeed = *seed;
}

} // namespace

Environment readEnvironment() {
  Environment environment;
  if (const char* text = std::getenv("OPENREG_DEVICE_COUNT")) {
    readDeviceCount(text, environment);
  }
  environment.visibleCount = environment.deviceCount;
  if (const char* text = std::getenv("OPENREG_DEVICE_MEMORY"); text && environment.error.empty()) {
    readDeviceMemory(text, environment);
  }
  if (const char* text = std::getenv("OPENREG_VISIBLE_DEVICES"); text && environment.error.empty()) {
    readVisibleDevices(text, environment);
  }
  if (const char* text = std::getenv("OPENREG_EXECUTION"); text && environment.error.empty()) {
    readExecutionMode(text, environment);
  }
  if (const char* text = std::getenv("OPENREG_CHAOS_SEED"); text && environment.error.empty()) {
    readChaosSeed(text, environment);
  }
  return environment;
}

} // namespace openreg
