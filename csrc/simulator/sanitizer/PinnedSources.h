#pragma once

#include <vector>

#include "simulator/sanitizer/Report.h"

// The pinned memory that queued copies read, and a checksum of its bytes for each copy. The host must not change these
// bytes before it has waited for the copy. Many writes of the host are no operators (NumPy, C code), so nothing reports
// them. The checksum finds them: if it has changed when the host has waited, the host wrote too early.
//
// Rule: a checksum is compared before the next write that is ordered after the copy.
namespace c10::openreg::sanitizer {

class PinnedSources {
 public:
  // A copy is about to be queued that reads this pinned memory.
  void add(const Access& read);

  // A method gives these bytes to code that may write them, as Tensor.numpy does. If a copy of them is queued already, a
  // report about it names this line.
  void expose(const Access& exposed);

  // The bytes of `extent` are about to be written or freed. Adds a report for each copy that reads some of these bytes,
  // if the copy's bytes have changed already. Forgets these copies.
  void check_overlapping(const Extent& extent, std::vector<Report>& found);
  // The same for all copies that the host knows to be done.
  void check_done(const Clocks& clocks, std::vector<Report>& found);
  // The same for all copies.
  void check_all(std::vector<Report>& found);

  // Forgets the copies that read these bytes: find_races() has checked a write of the host to them.
  void forget(const Extent& extent);

 private:
  struct Source {
    Access read;
    uint64_t checksum;
    Access exposed; // since the copy was queued
  };
  std::vector<Source> sources_;

  template <class Fn>
  void check_if(const Fn& fn, std::vector<Report>& found);
};

} // namespace c10::openreg::sanitizer
