#include "runtime/memory/OpenRegAllocatorConfig.h"

#include <c10/util/env.h>

#include <algorithm>
#include <bit>
#include <unordered_set>

namespace c10::openreg {
namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;

std::atomic<double> first_memory_fraction{1};

// Settings of CUDA's allocator. PyTorch reads PYTORCH_CUDA_ALLOC_CONF for every accelerator, so a program for CUDA may
// set them. The device accepts them all. Only per_process_memory_fraction has an effect; most of the others influence
// only the speed of CUDA's allocator.
const std::unordered_set<std::string> kKeysOfCuda{
    "backend",
    "graph_capture_record_stream_reuse",
    "per_process_memory_fraction",
    "pinned_free_catch_all",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register", // every build of PyTorch knows ROCm's names, too
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "throw_on_cudamalloc_oom"};

void after_settings_changed(const std::string& settings) {
  const c10::CachingAllocator::ConfigTokenizer tokens(settings);
  for (size_t i = 0; i + 2 < tokens.size(); ++i) {
    if (tokens[i] == "backend" && tokens[i + 2] != "native") {
      TORCH_CHECK_VALUE(
          tokens[i + 2] == "cudaMallocAsync",
          "Unknown allocator backend, options are native and cudaMallocAsync"); // the text of CUDA's allocator
      TORCH_WARN_ONCE(
          "the allocator backend ", tokens[i + 2], " is not available; the device uses its own allocator, native");
    }
    if (tokens[i] == "per_process_memory_fraction") {
      const double fraction = tokens.toDouble(i + 2);
      TORCH_CHECK_VALUE(0 <= fraction && fraction <= 1, "per_process_memory_fraction is invalid, set it in [0.0, 1.0]");
      first_memory_fraction = fraction;
    }
  }
  if (AcceleratorAllocatorConfig::use_expandable_segments()) {
    TORCH_WARN_ONCE("expandable_segments not supported on this platform");
  }
  const auto& divisions = AcceleratorAllocatorConfig::roundup_power2_divisions();
  divides_powers_of_two.store(
      std::any_of(divisions.begin(), divisions.end(), [](size_t n) { return n > 1; }), std::memory_order_relaxed);
}

// Once a hook is registered, PyTorch refuses settings that neither it nor the hook knows.
const bool config_is_registered = [] {
  std::unordered_set<std::string> keys = kKeysOfCuda;
  // A key that PyTorch itself knows must not be registered: that would throw.
  std::erase_if(keys, [](const std::string& key) { return AcceleratorAllocatorConfig::getKeys().count(key) != 0; });
  AcceleratorAllocatorConfig::registerDeviceConfigParserHook(&after_settings_changed, keys);
  return true;
}();

} // namespace

void read_allocator_settings() {
  if (const auto settings = c10::utils::get_env("OPENREG_ALLOC_CONF")) {
    c10::CachingAllocator::setAllocatorSettings(*settings); // calls the hook
  } else {
    after_settings_changed(AcceleratorAllocatorConfig::instance().last_allocator_settings());
  }
}

double memory_fraction_at_start() {
  return first_memory_fraction;
}

void set_block_alignment(size_t bytes) {
  TORCH_CHECK_VALUE(
      std::has_single_bit(bytes) && bytes >= kMinBlockSize && bytes <= kSmallSize,
      "The alignment of allocations is ",
      bytes,
      " bytes, but must be a power of two from ",
      kMinBlockSize,
      " to ",
      kSmallSize,
      ".");
  block_alignment_now = bytes;
}

size_t round_up_to_division_slowly(size_t size) {
  const size_t divisions = AcceleratorAllocatorConfig::roundup_power2_divisions(size);
  if (divisions > 1 && size > kMinBlockSize * divisions) {
    const size_t step = std::bit_floor(size) / divisions;
    size = (size + step - 1) / step * step;
  }
  return size;
}

} // namespace c10::openreg
