#include "environment.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "error.h"
#include "hooks.h"
#include "openreg_progress.h"

namespace openreg {
namespace {

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
      !isDeviceMemory(static_cast<size_t>(*amount) * unit)) {
    environment.error = describe(
        "OPENREG_DEVICE_MEMORY",
        text,
        "a number of bytes per device from 1M to 16384G, with an optional suffix K, M or G (for example 16G)");
    return;
  }
  environment.deviceMemory = static_cast<size_t>(*amount) * unit;
}

std::string_view trimmed(std::string_view text) {
  constexpr const char* kSpaces = " \t\n\v\f\r";
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> items;
  while (true) {
    const size_t comma = text.find(',');
    items.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) {
      return items;
    }
    text.remove_prefix(comma + 1);
  }
}

template <typename T>
bool contains(const std::vector<T>& values, T value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// As for CUDA_VISIBLE_DEVICES, an index that does not exist (usually -1) hides itself and all indices after it. Two
// cases that CUDA accepts are errors here: text that is no number (CUDA reads "1gpu" as 1, and other text as an index
// that does not exist), and a repeated index, for which CUDA hides every device.
void readVisibleDevices(std::string_view text, Environment& environment) {
  constexpr const char* kAllowed =
      "different device indices separated by commas (for example 0,1), or an empty value to hide every device";
  environment.visible.clear();
  if (trimmed(text).empty()) {
    return;
  }
  for (const std::string_view item : split(text)) {
    const auto index = parseInteger(trimmed(item));
    if (index && (*index < 0 || *index >= environment.deviceCount)) {
      return;
    }
    if (!index || contains(environment.visible, static_cast<int>(*index))) {
      environment.error = describe("OPENREG_VISIBLE_DEVICES", text, kAllowed);
      return;
    }
    environment.visible.push_back(static_cast<int>(*index));
  }
}

// The variable of orDeviceIdentity. `own` is the value of OPENREG_VISIBLE_DEVICES, or null.
void readIdentityVariable(const orDeviceIdentity& identity, const char* own, Environment& environment) {
  const char* const variable = identity.visibleDevicesVariable;
  const char* const text = std::getenv(variable);
  if (text == nullptr) {
    return;
  }
  std::vector<orUuid> uuids(environment.deviceCount);
  for (int index = 0; index < environment.deviceCount; ++index) {
    std::ranges::copy(deviceUuid(index), uuids[index].bytes);
  }
  std::vector<int> visible(environment.deviceCount);
  visible.resize(identity.selectDevices(text, uuids.data(), environment.deviceCount, visible.data()));
  if (own && visible != environment.visible) {
    environment.error = std::string(variable) + "=\"" + text + "\" and OPENREG_VISIBLE_DEVICES=\"" + own +
                        "\" select different devices: unset one of them";
  }
  environment.visible = std::move(visible);
  environment.visibleVariable = variable;
}

constexpr std::string_view kModes[] = {"inline", "async", "chaos"}; // by orExecutionMode

constexpr const char* kExecutions =
    "inline, async, chaos, early, late or random:SEED with a SEED from 1 to 18446744073709551615";

// Finds the mode and the seed of a mode's name, or of a schedule's. A mode's name leaves the seed as it is. Returns
// whether there is such a name.
bool findExecution(std::string_view name, orExecutionMode& mode, uint64_t& seed) {
  constexpr std::string_view kRandom = "random:";
  if (const auto named = std::find(std::begin(kModes), std::end(kModes), name); named != std::end(kModes)) {
    mode = static_cast<orExecutionMode>(named - std::begin(kModes));
    return true;
  }
  const bool isRandom = name.starts_with(kRandom);
  const uint64_t given = isRandom ? parseInteger<uint64_t>(name.substr(kRandom.size())).value_or(0) : 0;
  if (name != "early" && name != "late" && given == 0) {
    return false;
  }
  mode = name == "early" ? orExecutionInline : orExecutionChaos;
  seed = given;
  return true;
}

void readExecution(std::string_view text, Environment& environment) {
  if (!findExecution(text, environment.executionMode, environment.chaosSeed)) {
    environment.error = describe("OPENREG_EXECUTION", text, kExecutions);
  } else if (environment.executionMode == orExecutionChaos && schedule == nullptr) {
    environment.error = "OPENREG_EXECUTION=\"" + std::string(text) + "\": " + kNoChaos;
  }
}

void readChaosSeed(std::string_view text, Environment& environment) {
  const auto seed = parseInteger<uint64_t>(text);
  if (!seed) {
    environment.error = describe("OPENREG_CHAOS_SEED", text, "an integer from 0 to 18446744073709551615");
    return;
  }
  environment.chaosSeed = *seed;
}

// The value of a variable, or nullptr if the variable is unset or empty.
const char* given(const char* value) {
  return value != nullptr && *value != '\0' ? value : nullptr;
}

} // namespace

std::array<unsigned char, 16> deviceUuid(int index) {
  constexpr std::string_view kMaker = "OpenReg";
  std::array<unsigned char, 16> uuid{};
  std::ranges::copy(kMaker.substr(0, uuid.size() - 1), uuid.begin());
  uuid.back() = static_cast<unsigned char>(index);
  return uuid;
}

bool isDeviceMemory(size_t bytes) {
  return bytes >= kMinDeviceMemory && bytes <= kMaxDeviceMemory;
}

// The numbers are those of an NVIDIA A100, except totalGlobalMem and asyncEngineCount.
const DeviceDescription& ownDevices() {
  static constexpr DeviceDescription kOwn{
      .properties =
          {
              .name = "OpenReg simulated accelerator",
              .uuid = {},
              .totalGlobalMem = size_t{16} << 30,
              .major = 8,
              .minor = 0,
              .multiProcessorCount = 108,
              .warpSize = 32,
              .maxThreadsPerBlock = 1024,
              .maxThreadsPerMultiProcessor = 2048,
              .regsPerMultiprocessor = 65536,
              .sharedMemPerBlock = 48 << 10,
              .sharedMemPerBlockOptin = 163 << 10,
              .sharedMemPerMultiprocessor = 164 << 10,
              .l2CacheSize = 40 << 20,
              .clockRate = 1410000,
              .memoryClockRate = 1215000,
              .memoryBusWidth = 5120,
              .pciDomainID = 0,
              .pciBusID = 0,
              .pciDeviceID = 0,
              .integrated = false,
              .isMultiGpuBoard = false,
              .asyncEngineCount = 1,
              .unifiedAddressing = true,
              .canMapHostMemory = true,
              .concurrentKernels = false, // one thread runs the kernels of all streams
              .streamPrioritiesSupported = true,
          },
      .deviceCount = 2,
      .peerAccess = true};
  return kOwn;
}

Environment readEnvironment(const DeviceDescription& description, const orDeviceIdentity& identity) {
  Environment environment;
  environment.description = description;
  environment.deviceCount = description.deviceCount;
  environment.deviceMemory = description.properties.totalGlobalMem;
  if (const char* text = given(std::getenv("OPENREG_DEVICE_COUNT"))) {
    readDeviceCount(text, environment);
  }
  environment.visible.resize(environment.deviceCount);
  std::iota(environment.visible.begin(), environment.visible.end(), 0);
  if (const char* text = given(std::getenv("OPENREG_DEVICE_MEMORY")); text && environment.error.empty()) {
    readDeviceMemory(text, environment);
  }
  const char* const own = std::getenv("OPENREG_VISIBLE_DEVICES");
  if (own && environment.error.empty()) {
    readVisibleDevices(own, environment);
  }
  if (identity.visibleDevicesVariable && environment.error.empty()) {
    readIdentityVariable(identity, own, environment);
  }
  if (const char* text = given(std::getenv("OPENREG_CHAOS_SEED")); text && environment.error.empty()) {
    readChaosSeed(text, environment);
  }
  if (const char* text = given(std::getenv("OPENREG_EXECUTION")); text && environment.error.empty()) {
    readExecution(text, environment);
  }
  return environment;
}

} // namespace openreg

using namespace openreg;

const char* orGetExecutionModeName(orExecutionMode mode) {
  return static_cast<size_t>(mode) < std::size(kModes) ? kModes[mode].data() : nullptr;
}

orError_t orFindExecution(const char* name, orExecutionMode* mode, uint64_t* seed) {
  enter(__func__);
  if (name == nullptr || mode == nullptr || seed == nullptr) {
    return fail(orErrorInvalidValue, "%s is NULL", name == nullptr ? "name" : mode == nullptr ? "mode" : "seed");
  }
  if (!findExecution(name, *mode, *seed)) {
    const std::string message = "there is no execution mode \"" + std::string(name) + "\": expected " + kExecutions;
    return failVerbatim(orErrorInvalidValue, message.c_str());
  }
  return orSuccess;
}
