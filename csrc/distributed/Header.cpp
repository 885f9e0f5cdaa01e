#include "distributed/Header.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace c10d::openreg {
namespace {

const char* name_of(ReduceOp::RedOpType op) {
  constexpr const char* kNames[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  return op < std::size(kNames) ? kNames[op] : "UNUSED";
}

} // namespace

bool checks_headers() {
  static const bool checks = [] {
    const char* value = std::getenv("OCCL_CHECK");
    const std::string_view setting = value == nullptr || *value == '\0' ? "1" : value; // empty means unset
    TORCH_CHECK_VALUE(
        setting == "0" || setting == "1",
        "OCCL_CHECK is '",
        setting,
        "'. Set it to 1 (the default) or 0, or unset it.");
    return setting == "1";
  }();
  return checks;
}

Header make_header(const Request& request) {
  Header header{};
  header.sequence = request.sequence;
  header.root = request.verb == Verb::send || request.verb == Verb::recv ? -1 : request.root;
  header.type = request.type;
  header.dtype = static_cast<int8_t>(request.dtype);
  header.op = request.op;
  header.dims = static_cast<uint8_t>(std::min<size_t>(request.shape.size(), 255));
  std::copy_n(request.shape.begin(), std::min(request.shape.size(), kMaxShownDims), header.shape);
  return header;
}

Header make_header(const Request& request, const Header& sent) {
  Header own = make_header(request);
  if (request.verb == Verb::recv) {
    own.type = OpType::RECV; // also for a recv from any rank
    own.sequence = sent.sequence;
  }
  return own;
}

std::string describe(const Header& header) {
  std::string text = c10::str(
      "CollectiveFingerPrint(SequenceNumber=", header.sequence, ", OpType=", c10d::opTypeToString(header.type));
  if (header.type != OpType::BARRIER) {
    text += ", TensorShape=[";
    for (size_t i = 0; i < std::min<size_t>(header.dims, kMaxShownDims); ++i) {
      text += c10::str(i > 0 ? ", " : "", header.shape[i]);
    }
    text += header.dims > kMaxShownDims ? ", ...]" : "]";
    text += c10::str(", TensorDtypes=", c10::toString(static_cast<at::ScalarType>(header.dtype)));
  }
  if (header.op != ReduceOp::UNUSED) {
    text += c10::str(", ReduceOp=", name_of(static_cast<ReduceOp::RedOpType>(header.op)));
  }
  if (header.root >= 0) {
    text += c10::str(", Root=", header.root);
  }
  return text + ")";
}

bool matches(const Header& a, const Header& b) {
  return a.type == b.type && a.dtype == b.dtype && a.op == b.op && a.root == b.root;
}

bool fits(const Header& own, const Header& sent, uint64_t room) {
  if (!checks_headers()) {
    return sent.total <= room;
  }
  Header received = sent;
  received.type = sent.type == OpType::SEND ? OpType::RECV : sent.type;
  return matches(own, received) && sent.total == room;
}

void throw_mismatch(int rank, const Header& own, int other_rank, const Header& other) {
  throw Refusal(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      c10::str(
          "Detected mismatch between collectives on ranks. Rank ",
          rank,
          " is running collective: ",
          describe(own),
          ", but Rank ",
          other_rank,
          " is running collective: ",
          describe(other),
          "."));
}

Plan make_plan(const Request& request, int size) {
  Plan plan{make_header(request), std::vector<uint64_t>(size), std::vector<uint64_t>(size)};
  const auto bytes = [size](const std::vector<at::Tensor>& tensors, int rank) -> uint64_t {
    return tensors.empty() ? 0 : tensors[tensors.size() == 1 && size > 1 ? 0 : rank].nbytes();
  };
  for (int rank = 0; rank < size; ++rank) {
    const bool is_root = rank == request.root;
    plan.sends[rank] = is_to_root(request.verb) && !is_root ? 0 : bytes(request.inputs, rank);
    plan.expects[rank] = is_from_root(request.verb) && !is_root ? 0 : bytes(request.outputs, rank);
  }
  return plan;
}

size_t plan_bytes(int size) {
  return sizeof(Header) + 2 * sizeof(uint64_t) * size;
}

void write_plan(const Plan& plan, char* to) {
  const size_t list = plan.sends.size() * sizeof(uint64_t);
  std::memcpy(to, &plan.header, sizeof(Header));
  std::memcpy(to + sizeof(Header), plan.sends.data(), list);
  std::memcpy(to + sizeof(Header) + list, plan.expects.data(), list);
}

Plan read_plan(const char* from, int size) {
  Plan plan{{}, std::vector<uint64_t>(size), std::vector<uint64_t>(size)};
  const size_t list = size * sizeof(uint64_t);
  std::memcpy(&plan.header, from, sizeof(Header));
  std::memcpy(plan.sends.data(), from + sizeof(Header), list);
  std::memcpy(plan.expects.data(), from + sizeof(Header) + list, list);
  return plan;
}

void check_plans(int rank, const std::vector<Plan>& plans) {
  if (!checks_headers()) {
    return;
  }
  const int size = static_cast<int>(plans.size());
  const auto is_known = [&](int other) { return !plans[other].sends.empty(); };
  for (int other = 0; other < size; ++other) {
    if (is_known(other) && !matches(plans[rank].header, plans[other].header)) {
      throw_mismatch(rank, plans[rank].header, other, plans[other].header);
    }
  }
  // All pairs of ranks are compared: if the collective fails for two other ranks, it must not begin on this rank. The
  // pairs with this rank come first, so the message names them.
  for (const bool own : {true, false}) {
    for (int sender = 0; sender < size; ++sender) {
      for (int receiver = 0; receiver < size; ++receiver) {
        const bool involved = sender == rank || receiver == rank;
        if (involved == own && is_known(sender) && is_known(receiver) &&
            plans[sender].sends[receiver] != plans[receiver].expects[sender]) {
          const int first = sender == rank ? sender : receiver;
          const int second = first == sender ? receiver : sender;
          throw_mismatch(first, plans[first].header, second, plans[second].header);
        }
      }
    }
  }
}

} // namespace c10d::openreg
