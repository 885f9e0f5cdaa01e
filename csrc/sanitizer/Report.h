#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "Clocks.h"
#include "Extent.h"
#include "Site.h"

// What a check has found. Made of numbers while the sanitizer's lock is held; words come later, when Python may be asked.
namespace c10::openreg::sanitizer {

enum class Kind { Race, Init, Memory, Leak };

// One thing that a program did to memory.
struct Access {
  enum class Verb { Read, Write, Free } verb = Verb::Read;
  bool reads = true; // a write that also reads
  Actor actor = kHost;
  uint64_t time = 0;
  Site site = 0;
  const char* name = ""; // of the operator; stays
  orStream_t stream = nullptr;
  int device = -1; // -1: the host
  Extent extent{};
  SmallVector<int64_t, 4> shape{}; // of the tensor; empty if not known
  size_t item = 0;                 // bytes of an element; 0 if not known

  bool writes() const {
    return verb != Verb::Read;
  }
};

struct Report {
  Kind kind;
  std::string problem{};          // one sentence
  std::string remedy{};           // what to call
  std::vector<Access> accesses{}; // the one that revealed it first
  size_t block = 0;               // bytes of the block
  Site allocated = 0;             // where the block was allocated
  std::string details{};
};

const char* name_of(Kind kind);
std::string name_of_stream(orStream_t stream, int device);
std::string describe(const Access& access);

// The whole report. May ask Python.
std::string to_text(const Report& report);

} // namespace c10::openreg::sanitizer
