#include "simulator/sanitizer/Report.h"

#include <c10/util/StringUtil.h>

#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegStream.h"

namespace c10::openreg::sanitizer {
namespace {

std::string name_of_device(int device) {
  return Device(identity.type, static_cast<DeviceIndex>(device)).str();
}

} // namespace

const char* name_of(FindingKind kind) {
  constexpr const char* kNames[] = {"race", "init", "memory", "leak", "graph"};
  return kNames[static_cast<int>(kind)];
}

const char* in_words(Access::Action action) {
  constexpr const char* kWords[] = {"reads", "writes", "frees", "allocates", "makes", "captures", "replays"};
  return kWords[static_cast<int>(action)];
}

std::string name_of_stream(orStream_t stream, int device) {
  if (device < 0) {
    return "the host";
  }
  try {
    const Stream known = getStreamFromExternal(stream, static_cast<DeviceIndex>(device));
    return known.id() == 0 ? "the default stream of " + name_of_device(device)
                           : c10::str("stream ", known.id(), " of ", name_of_device(device));
  } catch (const std::exception&) { // a library made the stream, such as a communication stream
    return c10::str("the library's stream ", static_cast<const void*>(stream), " of ", name_of_device(device));
  }
}

std::string place_of(const Access& access) {
  switch (access.action) {
    case Access::Action::Make:
      return "";
    case Access::Action::Allocate:
      return access.device < 0 ? "the host" : name_of_device(access.device);
    default:
      return name_of_stream(access.stream, access.device);
  }
}

std::string describe(const Access& access) {
  if (access.action == Access::Action::Make) {
    return c10::str(access.name, " makes a handle, at ", describe(access.site));
  }
  std::string what;
  if (access.extent.empty()) {
    what = access.action == Access::Action::Replay ? "a graph" : "a value";
  } else if (!access.shape.empty()) {
    what = c10::str("a tensor of shape [", c10::Join(", ", access.shape), "], ", access.item, " bytes an element");
  } else {
    what = c10::str(access.extent.end - access.extent.begin, " bytes");
  }
  return c10::str(
      access.name, " ", in_words(access.action), " ", what, " on ", place_of(access), ", at ", describe(access.site));
}

std::string to_text(const Report& report) {
  std::string text = c10::str(name_of(report.kind), ": ", report.problem);
  for (const Access& access : report.accesses) {
    text += "\n  " + describe(access);
  }
  if (report.block != 0) {
    text +=
        c10::str("\n  The memory is a block of ", report.block, " bytes, allocated at ", describe(report.allocated));
  }
  text += report.details;
  return report.remedy.empty() ? text : text + "\n  " + report.remedy;
}

} // namespace c10::openreg::sanitizer
