// What the stress programs share: options, a thread's random choices, and the run of the threads.
#pragma once

#include <openreg_launch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace stress {

constexpr int kDevices = 2;
constexpr int kStreamsPerThread = 4;

[[noreturn]] inline void die(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what.c_str());
  std::_Exit(1);
}

// ---- Kernels. They take device or pinned addresses.

inline void fill(void* data, size_t words, uint32_t value) {
  std::fill_n(static_cast<uint32_t*>(orGetKernelPointer(data)), words, value);
}

inline uint32_t step(uint32_t value) {
  return value * 1664525 + 1013904223;
}

inline void stepAll(void* to, const void* from, size_t words) {
  const auto* source = static_cast<const uint32_t*>(orGetKernelPointer(from));
  std::transform(source, source + words, static_cast<uint32_t*>(orGetKernelPointer(to)), step);
}

inline void expect(const uint32_t* data, size_t words, uint32_t value, const char* where) {
  for (size_t i = 0; i < words; ++i) {
    if (data[i] != value) {
      die(std::string("wrong value ") + where + ": word " + std::to_string(i) + " of " + std::to_string(words) +
          " is " + std::to_string(data[i]) + ", not " + std::to_string(value));
    }
  }
}

// ---- Threads

// A thread's streams and buffers, and what it chooses at random among them.
template <class Stream, class Buffer>
class Choices {
 protected:
  Choices(uint64_t seed, bool switchesModes) : random_(seed), switchesModes_(switchesModes) {}

  size_t below(size_t count) {
    return random_() % count;
  }

  uint32_t random32() {
    return static_cast<uint32_t>(random_());
  }

  Stream& anyStream() {
    return streams_[below(streams_.size())];
  }

  Buffer& anyBuffer() {
    return buffers_[below(buffers_.size())];
  }

  void switchMode() {
    if (switchesModes_ && below(8) == 0 &&
        orSetExecutionMode(static_cast<orExecutionMode>(below(3)), random_()) != orSuccess) {
      die(orGetLastErrorMessage());
    }
  }

  std::vector<Stream> streams_;
  std::vector<Buffer> buffers_;

 private:
  std::mt19937_64 random_;
  const bool switchesModes_;
};

struct Options {
  double seconds = 10;
  uint64_t seed = std::random_device()();
  std::string mode = "async"; // or inline, chaos, or switching: starts with async, and one thread changes the mode
  size_t threads = 8;
};

// Reads the options, prints them, and sets the environment of the device, which must not have started.
inline Options start(int argc, char** argv, const char* deviceMemory) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--seconds") {
      options.seconds = std::atof(argv[i + 1]);
    } else if (name == "--seed") {
      options.seed = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (name == "--mode") {
      options.mode = argv[i + 1];
    } else if (name == "--threads") {
      options.threads = std::strtoull(argv[i + 1], nullptr, 10);
    } else {
      die("unknown option " + name);
    }
  }
  std::printf(
      "%s --seconds %g --seed %llu --mode %s --threads %zu\n",
      program_invocation_short_name,
      options.seconds,
      static_cast<unsigned long long>(options.seed),
      options.mode.c_str(),
      options.threads);
  std::fflush(stdout);
  alarm(static_cast<unsigned int>(options.seconds * 10 + 120)); // a deadlock ends here, with SIGALRM

  setenv("OPENREG_EXECUTION", options.mode == "switching" ? "async" : options.mode.c_str(), 1);
  setenv("OPENREG_CHAOS_SEED", std::to_string(options.seed).c_str(), 1);
  setenv("OPENREG_DEVICE_COUNT", std::to_string(kDevices).c_str(), 1);
  setenv("OPENREG_DEVICE_MEMORY", deviceMemory, 1);
  return options;
}

// Runs a Worker(seed, switchesModes) in each thread until the time is over. Returns the number of all actions.
template <class Worker>
uint64_t runThreads(const Options& options) {
  using Clock = std::chrono::steady_clock;
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.seconds));
  std::atomic<uint64_t> actions{0};
  std::vector<std::thread> running;
  for (size_t i = 0; i < options.threads; ++i) {
    running.emplace_back([&, i] {
      try {
        Worker worker(options.seed + i, options.mode == "switching" && i == 0);
        uint64_t own = 0; // an atomic count would order the threads, and hide races from ThreadSanitizer
        for (; Clock::now() < until; ++own) {
          worker.act();
        }
        worker.finish();
        actions += own;
      } catch (const std::exception& error) {
        die(error.what());
      }
    });
  }
  for (std::thread& thread : running) {
    thread.join();
  }
  return actions;
}

} // namespace stress
