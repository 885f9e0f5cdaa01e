#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "openreg.h"

// The part of an event that several processes share (openreg_ipc.h).
namespace openreg {

struct Event;
struct SharedPage;

// Every record of the event, by any process, has a number. The page that the processes map has the number of the last
// record, and tells for each of the latest records whether its device has reached it.
class SharedEvent {
 public:
  // Maps the page of the descriptor. The result owns both. On failure, closes the descriptor and returns null, with
  // errno set.
  static std::shared_ptr<SharedEvent> map(int fd);

  explicit SharedEvent(int fd, SharedPage* page) : fd(fd), page_(page) {}
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  // Notes that this process records the event, and returns the number of the record.
  uint64_t record();

  // Notes that the device has reached the record.
  void reach(uint64_t number);

  // The number of the last record; 0: there is none.
  uint64_t last() const;
  bool isReached(uint64_t number) const;

  // Whether the process that made the record has ended.
  bool isAbandoned(uint64_t number) const;

  const int fd;

 private:
  SharedPage* const page_;
};

// If another process made the last record of the event, makes the event's mark stand for that record. If the record is
// reached already, the mark has no stream. Otherwise the mark belongs to a hidden stream with one item. A thread of
// this process completes the item when the other process's device has reached the record, or when that process has
// ended.
orError_t followOtherProcesses(const std::shared_ptr<Event>& event);

} // namespace openreg
