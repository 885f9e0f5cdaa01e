// Streams under load: several host threads with streams of their own on two devices allocate, copy, launch, wait and
// free at random. Every buffer's contents are known, and every byte that is read back is compared.
//
//     stress_streams [--seconds 10] [--seed N] [--mode inline|async|chaos|switching] [--threads 8]
//
// The seed decides what each thread does; it is printed, and chosen at random if it is not given. Exit status 0: every
// value was right, every failure was reported, all memory was given back.

#include <cstring>
#include <memory>
#include <stdexcept>

#include "stress.h"

namespace {

using namespace stress;

constexpr size_t kMaxBuffers = 12;
constexpr size_t kMaxWords = 16384;
constexpr const char* kInjected = "injected";

std::atomic<uint64_t> injectedFailures{0};
std::atomic<uint64_t> reportedFailures{0};

// For calls that wait: they may return a failure that was injected, by this thread or by another.
void checkWait(orError_t error, const char* call) {
  if (error == orErrorLaunchFailure && std::strstr(orGetLastErrorMessage(), kInjected) != nullptr) {
    ++reportedFailures;
    try {
      orRethrowLaunchFailure();
      die("a failure without its exception");
    } catch (const std::runtime_error& thrown) {
      if (thrown.what() != std::string(kInjected)) {
        die("a failure with the wrong exception");
      }
    }
  } else if (error != orSuccess) {
    die(std::string(call) + ": " + orGetLastErrorMessage());
  }
}

void check(orError_t error, const char* call) {
  if (error != orSuccess) {
    die(std::string(call) + ": " + orGetLastErrorMessage());
  }
}

#define CHECK(call) check(call, #call)
#define CHECK_WAIT(call) checkWait(call, #call)

// Device or pinned memory whose words all have the value `value` once the events `used` are done. Every use waits for
// the use before it.
struct Buffer {
  int device; // -1: pinned
  uint32_t* data = nullptr;
  size_t words;
  uint32_t value;
  std::array<orEvent_t, kDevices> used{}; // an event records only streams of its own device
};

// A stream that all threads launch on. Nothing but the stream's order protects the count.
orStream_t sharedStream = nullptr;
uint64_t sharedCount = 0;
std::atomic<uint64_t> sharedLaunches{0};

struct OwnStream {
  orStream_t handle;
  int device;
};

class Worker : Choices<OwnStream, Buffer> {
 public:
  Worker(uint64_t seed, bool switchesModes) : Choices(seed, switchesModes) {
    for (int i = 0; i < kStreamsPerThread; ++i) {
      streams_.push_back(makeStream(i % kDevices));
    }
  }

  void act() {
    const size_t choice = below(100);
    if (buffers_.empty() || choice < 12) {
      return allocate();
    }
    if (choice < 18) {
      release();
    } else if (choice < 43) {
      compute();
    } else if (choice < 58) {
      copy();
    } else if (choice < 68) {
      upload();
    } else if (choice < 72) {
      clear();
    } else if (choice < 82) {
      verify();
    } else if (choice < 88) {
      wait();
    } else if (choice < 90) {
      injectFailure();
    } else if (choice < 97) {
      launchShared();
    } else if (choice < 99) {
      replaceStream();
    } else {
      switchMode();
    }
  }

  void finish() {
    while (!buffers_.empty()) {
      verify();
      release();
    }
    for (auto& [handle, device] : streams_) {
      CHECK_WAIT(orStreamSynchronize(handle));
      CHECK(orStreamDestroy(handle));
    }
  }

 private:
  OwnStream makeStream(int device) {
    OwnStream stream{nullptr, device};
    CHECK(orSetDevice(device));
    CHECK(orStreamCreateWithPriority(&stream.handle, 0, -static_cast<int>(below(4))));
    return stream;
  }

  // Computes a kernel on this thread. Sometimes a second kernel runs inside the first one, often on another stream.
  void onThisThread(orStream_t stream, const std::function<void()>& compute) {
    const orKernel kernel{"on this thread", nullptr, nullptr};
    orKernelScope scope;
    while (const orError_t error = orKernelBegin(&scope, stream, &kernel)) {
      CHECK_WAIT(error); // the error of earlier work; the kernel has not begun
    }
    if (below(4) == 0 && stream != sharedStream) {
      onThisThread(sharedStream == nullptr || below(2) == 0 ? anyStream().handle : stream, [] {});
    }
    compute();
    orKernelEnd(&scope, false);
  }

  static void begin(const Buffer& buffer, const OwnStream& stream) {
    for (orEvent_t event : buffer.used) {
      CHECK(orStreamWaitEvent(stream.handle, event, 0));
    }
  }

  static void end(const Buffer& buffer, const OwnStream& stream) {
    CHECK(orEventRecord(buffer.used[stream.device], stream.handle));
  }

  void allocate() {
    if (buffers_.size() == kMaxBuffers) {
      return release();
    }
    Buffer buffer{static_cast<int>(below(kDevices + 1)) - 1, nullptr, 1 + below(kMaxWords), random32(), {}};
    const size_t bytes = buffer.words * sizeof(uint32_t);
    void* data = nullptr;
    if (buffer.device >= 0) {
      CHECK(orSetDevice(buffer.device));
      if (below(16) == 0) { // tries to allocate more than the device has
        if (orMalloc(&data, size_t{1} << 40) != orErrorMemoryAllocation) {
          die("a device gave more memory than it has");
        }
      }
      if (orMalloc(&data, bytes) == orErrorMemoryAllocation) { // this happens, because the capacity is small
        return buffers_.empty() ? void() : release();
      }
    } else {
      CHECK(orMallocHost(&data, bytes));
    }
    buffer.data = static_cast<uint32_t*>(data);
    for (int device = 0; device < kDevices; ++device) {
      CHECK(orSetDevice(device));
      CHECK(orEventCreate(&buffer.used[device]));
    }
    OwnStream& stream = anyStream();
    CHECK(orLaunchKernel(stream.handle, fill, buffer.data, buffer.words, buffer.value));
    end(buffer, stream);
    buffers_.push_back(buffer);
  }

  // Frees memory that queued work may still use: orFree and orFreeHost wait for that work.
  void release() {
    Buffer& buffer = anyBuffer();
    CHECK(buffer.device >= 0 ? orFree(buffer.data) : orFreeHost(buffer.data));
    for (orEvent_t event : buffer.used) {
      CHECK(orEventDestroy(event));
    }
    buffer = buffers_.back();
    buffers_.pop_back();
  }

  void compute() {
    Buffer& to = anyBuffer();
    const Buffer& from = anyBuffer();
    OwnStream& stream = anyStream();
    const size_t words = to.words;
    if (from.words < words) {
      return;
    }
    begin(to, stream);
    begin(from, stream);
    if (below(3) == 0) {
      onThisThread(stream.handle, [&] { stepAll(to.data, from.data, words); });
      end(from, stream);
      end(to, stream);
      to.value = step(from.value);
      return;
    }
    const unsigned int flags = below(2) == 0 ? orLaunchMayRunInline : orLaunchDefault;
    struct Call {
      uint32_t* to;
      const uint32_t* from;
      size_t words;
    };
    const orHostFn_t kernel = [](void* data) {
      const std::unique_ptr<Call> call(static_cast<Call*>(data));
      stepAll(call->to, call->from, call->words);
    };
    CHECK(orLaunch(stream.handle, kernel, new Call{to.data, from.data, words}, flags));
    end(from, stream);
    end(to, stream);
    to.value = step(from.value);
  }

  void copy() {
    Buffer& to = anyBuffer();
    const Buffer& from = anyBuffer();
    OwnStream& stream = anyStream();
    if (from.words < to.words || &to == &from) {
      return;
    }
    begin(to, stream);
    begin(from, stream);
    CHECK(orMemcpyAsync(to.data, from.data, to.words * sizeof(uint32_t), orMemcpyDefault, stream.handle));
    end(from, stream);
    end(to, stream);
    to.value = from.value;
  }

  // The source may be overwritten as soon as the call returns.
  void upload() {
    Buffer& to = anyBuffer();
    OwnStream& stream = anyStream();
    to.value = random32();
    std::vector<uint32_t> source(to.words, to.value);
    begin(to, stream);
    CHECK(orMemcpyAsync(to.data, source.data(), to.words * sizeof(uint32_t), orMemcpyDefault, stream.handle));
    std::fill(source.begin(), source.end(), 0);
    end(to, stream);
  }

  void clear() {
    Buffer& to = anyBuffer();
    OwnStream& stream = anyStream();
    begin(to, stream);
    CHECK(orMemsetAsync(to.data, 0x11, to.words * sizeof(uint32_t), stream.handle));
    end(to, stream);
    to.value = 0x11111111;
  }

  void verify() {
    const Buffer& from = anyBuffer();
    OwnStream& stream = anyStream();
    begin(from, stream);
    if (from.device < 0) { // pinned memory is read in place, after the work that uses it
      for (orEvent_t event : from.used) {
        CHECK_WAIT(orEventSynchronize(event));
      }
      return expect(from.data, from.words, from.value, "in pinned memory");
    }
    std::vector<uint32_t> read(from.words);
    CHECK(orMemcpyAsync(read.data(), from.data, from.words * sizeof(uint32_t), orMemcpyDefault, stream.handle));
    expect(read.data(), from.words, from.value, "in device memory");
  }

  void wait() {
    OwnStream& stream = anyStream();
    switch (below(5)) {
      case 0:
        CHECK_WAIT(orStreamSynchronize(stream.handle));
        break;
      case 1:
        CHECK(orSetDevice(stream.device));
        CHECK_WAIT(orDeviceSynchronize());
        break;
      case 2:
        if (const orError_t error = orStreamQuery(stream.handle); error != orErrorNotReady) {
          CHECK(error);
        }
        break;
      default:
        for (orEvent_t event : anyBuffer().used) {
          if (const orError_t error = orEventQuery(event); error != orErrorNotReady) {
            CHECK(error);
          }
        }
    }
  }

  void injectFailure() {
    ++injectedFailures;
    CHECK(orLaunchKernel(anyStream().handle, [] { throw std::runtime_error(kInjected); }));
  }

  void launchShared() {
    ++sharedLaunches;
    const auto count = [](void*) { ++sharedCount; };
    if (below(3) == 0) {
      onThisThread(sharedStream, [] { ++sharedCount; });
    } else if (below(2) == 0) {
      CHECK(orLaunchHostFunc(sharedStream, count, nullptr));
    } else {
      CHECK(orLaunch(sharedStream, count, nullptr, static_cast<unsigned int>(below(2))));
    }
  }

  // Destroys a stream and makes a new one. The work that is queued on the old stream still runs.
  void replaceStream() {
    OwnStream& stream = anyStream();
    CHECK(orStreamDestroy(stream.handle));
    stream = makeStream(stream.device);
  }
};

size_t freeMemory() {
  size_t sum = 0;
  for (int device = 0; device < kDevices; ++device) {
    size_t free = 0;
    size_t total = 0;
    CHECK(orSetDevice(device));
    CHECK(orMemGetInfo(&free, &total));
    sum += free;
  }
  return sum;
}

} // namespace

int main(int argc, char** argv) {
  const Options options = start(argc, argv, "2M"); // small enough to run out of
  const size_t before = freeMemory();
  CHECK(orStreamCreate(&sharedStream));
  const uint64_t actions = runThreads<Worker>(options);
  CHECK(orStreamSynchronize(sharedStream));
  CHECK(orStreamDestroy(sharedStream));
  for (int device = 0; device < kDevices; ++device) {
    CHECK(orSetDevice(device));
    while (const orError_t error = orDeviceSynchronize()) { // the failure of work on a destroyed stream
      checkWait(error, "orDeviceSynchronize()");
    }
  }
  if (sharedCount != sharedLaunches) {
    die("lost launches: " + std::to_string(sharedCount) + " of " + std::to_string(sharedLaunches) + " ran");
  }
  if (freeMemory() != before) {
    die("memory was not given back");
  }
  if (reportedFailures > injectedFailures || (reportedFailures == 0 && injectedFailures > 10)) {
    die("wrong number of failures");
  }
  std::printf(
      "%llu actions, %llu launches on the shared stream, %llu failures injected, %llu reported: all right\n",
      static_cast<unsigned long long>(actions),
      static_cast<unsigned long long>(sharedCount),
      static_cast<unsigned long long>(injectedFailures),
      static_cast<unsigned long long>(reportedFailures));
  return 0;
}
