#include <cstdlib>
#include <cstring>

#include "occl_transport.h"

namespace occl {
namespace {

std::string describe(const Header& header) {
  std::string text =
      "CollectiveFingerPrint(SequenceNumber=" + std::to_string(header.sequence) + ", OpType=" + header.function.text();
  if (header.verb != Verb::barrier) {
    text += ", TensorShape=[";
    for (size_t i = 0; i < std::min<size_t>(header.dims, Header::kShownDims); ++i) {
      text += (i > 0 ? ", " : "") + std::to_string(header.shape[i]);
    }
    text += header.dims > Header::kShownDims ? ", ...]" : "]";
    text += std::string(", TensorDtypes=") + header.dataType.text();
  }
  if (header.reduceOp != Name()) {
    text += std::string(", ReduceOp=") + header.reduceOp.text();
  }
  if (header.root >= 0) {
    text += ", Root=" + std::to_string(header.root);
  }
  return text + ")";
}

// The value of an environment variable that is 1 or 0.
bool isSet(const char* name, const char* value, bool byDefault) {
  const std::string_view setting = value == nullptr || *value == '\0' ? (byDefault ? "1" : "0") : value; // empty: unset
  if (setting != "0" && setting != "1") {
    throw std::invalid_argument(
        std::string(name) + " is '" + value + "'. Set it to " +
        (byDefault ? "1 (the default) or 0" : "0 (the default) or 1") + ", or unset it.");
  }
  return setting == "1";
}

bool shareDevice(const Header& a, const Header& b) {
  return a.place.host != 0 && a.place.host == b.place.host && a.place.device == b.place.device;
}

// Whether the two headers can belong to one collective, or to one message of two ranks. Does not compare sequence numbers,
// shapes or byte counts.
bool matches(const Header& a, const Header& b) {
  const bool sameCall = a.function == b.function || (a.verb == Verb::recv && b.verb == Verb::send);
  return sameCall && !shareDevice(a, b) && a.dataType == b.dataType && a.reduceOp == b.reduceOp && a.root == b.root;
}

} // namespace

bool checksHeaders() {
  static const bool checks = isSet("OCCL_CHECK", std::getenv("OCCL_CHECK"), true);
  return checks;
}

bool allowsSharedDevices() {
  static const bool allows = isSet("OCCL_MULTI_RANK_GPU_ENABLE", std::getenv("OCCL_MULTI_RANK_GPU_ENABLE"), false);
  return allows;
}

Header headerFor(const Request& request, const Header& sent) {
  Header own = request.header;
  if (request.verb == Verb::recv) {
    own.sequence = sent.sequence;
  }
  return own;
}

bool fits(const Header& own, const Header& sent, uint64_t room) {
  return checksHeaders() ? matches(own, sent) && sent.total == room : sent.total <= room;
}

void throwMismatch(int rank, const Header& own, int otherRank, const Header& other) {
  if (shareDevice(own, other)) {
    throw Error(
        Error::Code::duplicateDevice,
        "rank " + std::to_string(rank) + " and rank " + std::to_string(otherRank) + " both on device " +
            std::to_string(own.place.device) +
            ". Several ranks may use one device only if OCCL_MULTI_RANK_GPU_ENABLE=1.");
  }
  throw Error(
      Error::Code::mismatch,
      "Detected mismatch between collectives on ranks. Rank " + std::to_string(rank) +
          " is running collective: " + describe(own) + ", but Rank " + std::to_string(otherRank) +
          " is running collective: " + describe(other) + ".");
}

Plan makePlan(const Request& request, int size) {
  Plan plan{request.header, std::vector<uint64_t>(size), std::vector<uint64_t>(size)};
  const auto bytes = [size](const std::vector<Buffer>& buffers, int rank) -> uint64_t {
    return buffers.empty() ? 0 : buffers[buffers.size() == 1 && size > 1 ? 0 : rank].bytes;
  };
  for (int rank = 0; rank < size; ++rank) {
    const bool isRoot = rank == request.root;
    plan.sends[rank] = isToRoot(request.verb) && !isRoot ? 0 : bytes(request.inputs, rank);
    plan.expects[rank] = isFromRoot(request.verb) && !isRoot ? 0 : bytes(request.outputs, rank);
  }
  return plan;
}

size_t planBytes(int size) {
  return sizeof(Header) + 2 * sizeof(uint64_t) * size;
}

void writePlan(const Plan& plan, char* to) {
  const size_t list = plan.sends.size() * sizeof(uint64_t);
  std::memcpy(to, &plan.header, sizeof(Header));
  std::memcpy(to + sizeof(Header), plan.sends.data(), list);
  std::memcpy(to + sizeof(Header) + list, plan.expects.data(), list);
}

Plan readPlan(const char* from, int size) {
  Plan plan{{}, std::vector<uint64_t>(size), std::vector<uint64_t>(size)};
  const size_t list = size * sizeof(uint64_t);
  std::memcpy(&plan.header, from, sizeof(Header));
  std::memcpy(plan.sends.data(), from + sizeof(Header), list);
  std::memcpy(plan.expects.data(), from + sizeof(Header) + list, list);
  return plan;
}

void checkPlans(int rank, const std::vector<Plan>& plans) {
  if (!checksHeaders()) {
    return;
  }
  const int size = static_cast<int>(plans.size());
  const auto isKnown = [&](int other) { return !plans[other].sends.empty(); };
  for (int other = 0; other < size; ++other) {
    if (other != rank && isKnown(other) && !matches(plans[rank].header, plans[other].header)) {
      throwMismatch(rank, plans[rank].header, other, plans[other].header);
    }
  }
  // All pairs of ranks are compared: if the collective fails for two other ranks, it must not begin on this rank. The
  // pairs with this rank come first, so the message names them.
  for (const bool own : {true, false}) {
    for (int sender = 0; sender < size; ++sender) {
      for (int receiver = 0; receiver < size; ++receiver) {
        const bool involved = sender == rank || receiver == rank;
        if (involved == own && isKnown(sender) && isKnown(receiver) &&
            plans[sender].sends[receiver] != plans[receiver].expects[sender]) {
          const int first = sender == rank ? sender : receiver;
          const int second = first == sender ? receiver : sender;
          throwMismatch(first, plans[first].header, second, plans[second].header);
        }
      }
    }
  }
}

} // namespace occl
