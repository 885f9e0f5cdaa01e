#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/sanitizer/Clocks.h"
#include "simulator/sanitizer/Extent.h"
#include "simulator/sanitizer/Site.h"

// The findings of the checks. A Report is made while the sanitizer's lock is held, so it has the lines of the program
// as numbers (Site.h). The text of these lines is made later, without the lock, because it may need Python.
namespace c10::openreg::sanitizer {

enum class FindingKind { Race, Init, Memory, Leak, Graph };

// One access of the program to memory.
struct Access {
  // For leaks. Allocate: of memory. Make: of a handle (LeakCheck.h), whose report has no extent and no stream. For
  // graphs. Capture: a node that will use the memory. Replay: of a graph, without an extent.
  enum class Action { Read, Write, Free, Allocate, Make, Capture, Replay } action = Action::Read;
  bool reads = true; // whether a write also reads
  Actor actor = kHost;
  uint64_t time = 0;
  Site site = 0;
  const char* name = ""; // as Finding::Part::name in Session.h; valid until the process ends
  orStream_t stream = nullptr;
  int device = -1; // -1: the host
  Extent extent{};
  SmallVector<int64_t, 4> shape{};   // the tensor's shape; empty if it is not known
  SmallVector<int64_t, 4> strides{}; // bytes, one for each dimension of `shape`; empty if they are not known
  size_t item = 0;                   // the size of one element in bytes; 0 if it is not known

  bool writes() const {
    return action != Action::Read;
  }
};

struct Report {
  FindingKind kind;
  std::string problem{};          // one sentence
  std::string remedy{};           // what to change in the program
  std::vector<Access> accesses{}; // first the access that revealed the problem
  size_t block = 0;               // the size of the block in bytes
  Site allocated = 0;             // where the block was allocated
  std::string details{};
};

const char* name_of(FindingKind kind);
const char* in_words(Access::Action action); // "reads"
std::string name_of_stream(orStream_t stream, int device);
std::string place_of(const Access& access); // the stream, or the device that has the memory; empty for a handle
std::string describe(const Access& access);

// The whole report. May take Python's interpreter lock.
std::string to_text(const Report& report);

} // namespace c10::openreg::sanitizer
