// The caching allocators under load: several host threads with streams of their own on two devices allocate, launch,
// copy, hand buffers to each other and free them while queued work still uses them. Every buffer's contents are known,
// and every byte that is read back is compared.
//
//     stress_allocator [--seconds 10] [--seed N] [--mode inline|async|chaos|switching] [--threads 8]
//
// The seed decides what each thread does; it is printed, and chosen at random if it is not given. Exit status 0: every
// value was right, memory ran out only where it should, all memory was given back.

#include <ATen/core/CachingHostAllocator.h>

#include "runtime/OpenRegStream.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"
#include "stress.h"

namespace {

using namespace stress;
using c10::Stream;
using c10::openreg::device_allocator;
using c10::openreg::OpenRegStream;

constexpr size_t kMaxBuffers = 10;
constexpr size_t kMaxWords = size_t{1} << 20; // 4 MiB of the 48 MiB of a device: 8 threads run out of memory

at::HostAllocator* host_allocator() {
  return at::getHostAllocator(c10::DeviceType::PrivateUse1);
}

// Memory whose words all have the value `value` once the events `used` are done. Every use waits for the use before it.
struct Buffer {
  int device;                 // -1: pinned
  std::optional<Stream> home; // the current stream at the allocation; none for pinned memory
  c10::DataPtr data;
  size_t words;
  uint32_t value;
  std::array<orEvent_t, kDevices> used{}; // an event records only streams of its own device
};

// Buffers on their way from one thread to another.
std::mutex mailboxLock;
std::vector<Buffer> mailbox;

std::atomic<uint64_t> outOfMemory{0};

class Worker : Choices<Stream, Buffer> {
 public:
  // Every second worker has a memory pool of its own.
  Worker(uint64_t seed, bool switchesModes) : Choices(seed, switchesModes), pool_(0, seed % 2 == 0 ? seed + 1 : 0) {
    for (int i = 0; i < kStreamsPerThread; ++i) {
      streams_.push_back(c10::openreg::getStreamFromPool(-static_cast<int>(below(4)), i % kDevices));
    }
  }

  void act() {
    const size_t choice = below(100);
    if (buffers_.empty() || choice < 25) {
      allocate();
    } else if (choice < 40) {
      release();
    } else if (choice < 60) {
      compute();
    } else if (choice < 75) {
      copy();
    } else if (choice < 85) {
      verify();
    } else if (choice < 93) {
      exchange();
    } else if (choice < 95) {
      wait();
    } else if (choice < 99) {
      manage();
    } else {
      switchMode();
    }
  }

  void finish() {
    while (!buffers_.empty()) {
      verify();
      release();
    }
  }

 private:
  // ---- using buffers: each use waits for the uses before it, and is announced to the allocators

  static void begin(const Buffer& buffer, Stream stream) {
    for (orEvent_t event : buffer.used) {
      OPENREG_CHECK(orStreamWaitEvent(OpenRegStream(stream).stream(), event, 0));
    }
  }

  static void end(const Buffer& buffer, Stream stream) {
    OPENREG_CHECK(orEventRecord(buffer.used[stream.device_index()], OpenRegStream(stream).stream()));
    if (!buffer.home) {
      host_allocator()->record_event(buffer.data.get(), buffer.data.get_context(), stream);
    } else if (*buffer.home != stream) {
      device_allocator()->recordStream(buffer.data, stream);
    }
  }

  // ---- actions

  void allocate() {
    if (buffers_.size() == kMaxBuffers) {
      return release();
    }
    Buffer buffer{static_cast<int>(below(kDevices + 1)) - 1, std::nullopt, {}, 0, random32(), {}};
    buffer.words = 1 + below(size_t{1} << below(21)); // all orders of magnitude are equally likely
    const size_t bytes = std::min(buffer.words, kMaxWords) * sizeof(uint32_t);
    if (buffer.device < 0) {
      buffer.words = std::min(buffer.words, kMaxWords / 16);
      buffer.data = host_allocator()->allocate(buffer.words * sizeof(uint32_t));
    } else if (!allocateOnDevice(buffer, below(64) == 0 ? size_t{1} << 40 : bytes)) {
      return buffers_.empty() ? void() : release();
    }
    for (int device = 0; device < kDevices; ++device) {
      buffer.used[device] =
          c10::openreg::create_event(c10::openreg::getDefaultOpenRegStream(static_cast<c10::DeviceIndex>(device)));
    }
    const Stream stream = buffer.home && below(4) != 0 ? *buffer.home : anyStream();
    if (buffer.home && stream != *buffer.home) { // the earlier uses of the memory ran on its home stream
      const orEvent_t ready = buffer.used[buffer.device];
      OPENREG_CHECK(orEventRecord(ready, OpenRegStream(*buffer.home).stream()));
      OPENREG_CHECK(orStreamWaitEvent(OpenRegStream(stream).stream(), ready, 0));
    }
    OPENREG_CHECK(orLaunchKernel(OpenRegStream(stream).stream(), fill, buffer.data.get(), buffer.words, buffer.value));
    end(buffer, stream);
    buffers_.push_back(std::move(buffer));
  }

  bool allocateOnDevice(Buffer& buffer, size_t bytes) {
    Stream home = anyStream();
    while (home.device_index() != buffer.device) {
      home = anyStream();
    }
    const c10::openreg::CurrentDevice current(home.device_index());
    const auto previous = c10::openreg::getCurrentOpenRegStream(home.device_index());
    c10::openreg::setCurrentOpenRegStream(OpenRegStream(home));
    const bool pooled = pool_.second != 0 && below(4) == 0;
    if (pooled) {
      const auto thread = std::this_thread::get_id();
      device_allocator()->begin_allocate_to_pool(
          home.device_index(), pool_, [thread](Stream) { return std::this_thread::get_id() == thread; });
    }
    try {
      buffer.data = device_allocator()->allocate(bytes);
      buffer.home = home;
    } catch (const c10::OutOfMemoryError&) {
      ++outOfMemory;
    }
    if (pooled) {
      device_allocator()->end_allocate_to_pool(home.device_index(), pool_);
      device_allocator()->release_pool(home.device_index(), pool_);
    }
    c10::openreg::setCurrentOpenRegStream(previous);
    if (buffer.home && bytes > (size_t{1} << 30)) {
      die("a device gave more memory than it has");
    }
    return buffer.home.has_value();
  }

  // Frees a buffer without waiting for the work that uses it: the allocators must keep its memory until then.
  void release() {
    const Buffer gone = takeOut(anyBuffer());
    for (orEvent_t event : gone.used) {
      OPENREG_CHECK(orEventDestroy(event));
    }
  }

  Buffer takeOut(Buffer& buffer) {
    std::swap(buffer, buffers_.back());
    Buffer taken = std::move(buffers_.back());
    buffers_.pop_back();
    return taken;
  }

  void compute() {
    Buffer& to = anyBuffer();
    const Buffer& from = anyBuffer();
    const Stream stream = anyStream();
    if (from.words < to.words) {
      return;
    }
    begin(to, stream);
    begin(from, stream);
    OPENREG_CHECK(orLaunchKernel(OpenRegStream(stream).stream(), stepAll, to.data.get(), from.data.get(), to.words));
    end(from, stream);
    end(to, stream);
    to.value = step(from.value);
  }

  // Copies between two buffers, each on one of the two devices or in pinned memory.
  void copy() {
    Buffer& to = anyBuffer();
    const Buffer& from = anyBuffer();
    const Stream stream = anyStream();
    if (from.words < to.words || &to == &from) {
      return;
    }
    begin(to, stream);
    begin(from, stream);
    OPENREG_CHECK(orMemcpyAsync(
        to.data.get(), from.data.get(), to.words * sizeof(uint32_t), orMemcpyDefault, OpenRegStream(stream).stream()));
    end(from, stream);
    end(to, stream);
    to.value = from.value;
  }

  void verify() {
    const Buffer& from = anyBuffer();
    const Stream stream = anyStream();
    begin(from, stream);
    std::vector<uint32_t> read(from.words);
    OPENREG_CHECK(orMemcpyWithStream(
        read.data(), from.data.get(), from.words * sizeof(uint32_t), orMemcpyDefault, OpenRegStream(stream).stream()));
    expect(read.data(), read.size(), from.value, from.home ? "in device memory" : "in pinned memory");
  }

  void exchange() {
    const std::lock_guard lock(mailboxLock);
    if (mailbox.size() < kMaxBuffers) {
      mailbox.push_back(takeOut(anyBuffer()));
    }
    if (below(2) == 0) {
      buffers_.push_back(std::move(mailbox.front()));
      mailbox.erase(mailbox.begin());
    }
  }

  void wait() {
    const Stream stream = anyStream();
    if (below(2) == 0) {
      OPENREG_CHECK(orStreamSynchronize(OpenRegStream(stream).stream()));
    } else {
      c10::openreg::device_synchronize(stream.device_index());
    }
  }

  // Manages the allocators while other threads use them.
  void manage() {
    const auto device = static_cast<c10::DeviceIndex>(below(kDevices));
    switch (below(8)) {
      case 0:
        return device_allocator()->emptyCache({0, 0});
      case 1:
        return host_allocator()->empty_cache();
      case 2:
        return device_allocator()->resetPeakStats(device);
      case 3:
        return device_allocator()->set_memory_fraction(below(2) == 0 ? 1 : 0.75, device);
      case 4: {
        c10::openreg::HistoryOptions options;
        options.max_entries = 100;
        return device_allocator()->record_history(below(2) == 0 ? std::optional(options) : std::nullopt, false);
      }
      case 5: {
        for (const auto& segment : device_allocator()->snapshot().segments) {
          size_t size = 0;
          for (const auto& block : segment.blocks) {
            size += block.size;
          }
          if (size != segment.total_size) {
            die("a segment's blocks do not fill it");
          }
        }
        return;
      }
      case 6:
        host_allocator()->get_stats();
        return;
      default:
        const auto stats = device_allocator()->getDeviceStats(device);
        if (stats.allocated_bytes[0].current > stats.reserved_bytes[0].current) {
          die("more is allocated than is reserved");
        }
    }
  }

  const c10::MempoolId_t pool_;
};

void checkNothingIsLeft(const std::vector<size_t>& before) {
  for (c10::DeviceIndex device = 0; device < kDevices; ++device) {
    c10::openreg::device_synchronize(device);
    const auto stats = device_allocator()->getDeviceStats(device);
    if (stats.allocated_bytes[0].current != 0 || stats.requested_bytes[0].current != 0) {
      die("memory is still allocated on device " + std::to_string(device));
    }
  }
  device_allocator()->emptyCache({0, 0});
  host_allocator()->empty_cache();
  if (!device_allocator()->snapshot().segments.empty()) {
    die("the allocator kept a segment");
  }
  if (const auto stats = host_allocator()->get_stats(); stats.allocated_bytes.current != 0) {
    die("pinned memory was not given back");
  }
  for (c10::DeviceIndex device = 0; device < kDevices; ++device) {
    const auto stats = device_allocator()->getDeviceStats(device);
    if (stats.active_bytes[0].current != 0 || stats.inactive_split_bytes[0].current != 0 ||
        stats.reserved_bytes[0].current != 0 || stats.segment[0].current != 0) {
      die("the statistics of device " + std::to_string(device) + " do not return to 0");
    }
    if (device_allocator()->getMemoryInfo(device).first != before[device]) {
      die("memory of device " + std::to_string(device) + " was not given back");
    }
  }
}

} // namespace

int main(int argc, char** argv) {
  const Options options = start(argc, argv, "48M"); // small enough to run out of

  // PyTorch's own libraries are not instrumented, so ThreadSanitizer cannot see how they order their first uses. What
  // they make at a first use is therefore made here, before there are threads.
  std::vector<size_t> before;
  for (c10::DeviceIndex device = 0; device < kDevices; ++device) {
    device_allocator()->getDeviceStats(device);
    before.push_back(device_allocator()->getMemoryInfo(device).first);
  }
  const uint64_t actions = runThreads<Worker>(options);
  for (Buffer& buffer : mailbox) {
    for (orEvent_t event : buffer.used) {
      OPENREG_CHECK(orEventDestroy(event));
    }
  }
  mailbox.clear();
  checkNothingIsLeft(before);
  if (actions > 2000 && outOfMemory == 0) {
    die("memory never ran out");
  }
  std::printf(
      "%llu actions, memory ran out %llu times: all right\n",
      static_cast<unsigned long long>(actions),
      static_cast<unsigned long long>(outOfMemory));
  return 0;
}
