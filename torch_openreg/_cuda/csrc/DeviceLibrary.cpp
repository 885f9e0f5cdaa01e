// How the device library presents its devices under the type cuda: CUDA_VISIBLE_DEVICES selects devices, and the texts of
// errors name CUDA.
#include <openreg.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace {

// A UUID in the form of NVML: "GPU-" and five groups of hexadecimal digits.
std::string uuid_text(const orUuid_t& uuid) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "GPU";
  int position = 0;
  for (const unsigned char byte : uuid.bytes) {
    if (position == 0 || position == 4 || position == 6 || position == 8 || position == 10) {
      text += '-';
    }
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
    ++position;
  }
  return text;
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

bool is_uuid(std::string_view text) {
  return text.starts_with("GPU-");
}

// The integer at the start of an item, as strtoul reads it: "1gpu" is 1. Negative: there is none.
long long leading_index(std::string_view item) {
  item.remove_prefix(std::min(item.find_first_not_of(" \t\n\v\f\r"), item.size()));
  if (item.starts_with('+')) {
    item.remove_prefix(1);
  }
  long long index = -1;
  const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), index);
  return error == std::errc::result_out_of_range ? std::numeric_limits<long long>::max() : index;
}

// The device whose UUID begins with `item`; -1 if there is none, or more than one.
int index_of_uuid(std::string_view item, const orUuid_t* uuids, int count) {
  int found = -1;
  for (int index = 0; index < count; ++index) {
    if (uuid_text(uuids[index]).starts_with(item)) {
      if (found != -1) {
        return -1;
      }
      found = index;
    }
  }
  return found;
}

// Returns read(item) for each item, up to the first value for which `exists` is false. Returns no values if one is
// repeated.
template <class Items, class Read, class Exists>
auto read_until(const Items& items, Read read, Exists exists) {
  std::vector<decltype(read(*items.begin()))> values;
  for (const auto& item : items) {
    const auto value = read(item);
    if (std::ranges::find(values, value) != values.end()) {
      return decltype(values)();
    }
    if (!exists(value)) {
      break;
    }
    values.push_back(value);
  }
  return values;
}

// CUDA's rules, as in PyTorch's _parse_visible_devices and _transform_uuid_to_ordinals (torch/cuda/__init__.py). Every
// value is valid: it lists indices, or beginnings of UUIDs. A repeated item hides every device. The first item that is
// no device ends the list.
int select_devices(const char* value, const orUuid_t* uuids, int count, int* selected) {
  const std::vector<std::string_view> items = split(value);
  if (is_uuid(value)) {
    const auto given = read_until(items, [](std::string_view item) { return item; }, is_uuid);
    const auto index = [&](std::string_view uuid) { return index_of_uuid(uuid, uuids, count); };
    const auto indices = read_until(given, index, [](int found) { return found >= 0; });
    return static_cast<int>(std::ranges::copy(indices, selected).out - selected);
  }
  const auto indices = read_until(items, leading_index, [](long long index) { return index >= 0; });
  const auto end = std::ranges::find_if(indices, [&](long long index) { return index >= count; });
  return static_cast<int>(std::copy(indices.begin(), end, selected) - selected);
}

const char* text_of_error(orError_t error) {
  switch (error) {
    case orErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case orErrorDevicesUnavailable:
      return "CUDA-capable device(s) is/are busy or unavailable";
    case orErrorNoDevice:
      return "no CUDA-capable device is detected";
    default:
      return nullptr;
  }
}

} // namespace

extern const orDeviceIdentity cuda_device_identity; // module.cpp passes it to the device library
const orDeviceIdentity cuda_device_identity{"CUDA_VISIBLE_DEVICES", &select_devices, &text_of_error};
