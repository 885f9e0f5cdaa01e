#pragma once

#include <c10/util/Exception.h>

#include <optional>
#include <string>
#include <vector>

#include "distributed/Engine.h"

// LITERALINCLUDE START: HEADER RULES
// A header describes a collective. A rank sends it to the others before the data, in the same message if the data is
// small. So every rank that gets a header finds a mismatch before it has written a byte of that data to its outputs,
// and the check costs no round trip. OCCL_CHECK=0, on all ranks, turns the comparison off.
//
// Rule: a header has the same length on all ranks, whatever they call. Otherwise a rank could not receive the header of
// a rank that calls another collective.
// LITERALINCLUDE END: HEADER RULES
namespace c10d::openreg {

constexpr size_t kMaxShownDims = 8;

// Thrown if the calls of two ranks do not match, or if the group was aborted. The user gets this exception unchanged.
// To failures of the transport, CollectiveCall::explain() adds the description of the collective.
class Refusal : public c10::DistBackendError {
 public:
  using c10::DistBackendError::DistBackendError;
};

struct Header {
  uint64_t sequence;
  uint64_t inlined; // how many bytes of data are in the same message
  uint64_t total;   // how many bytes of data the receiver gets
  int32_t root;
  OpType type;
  int8_t dtype;
  uint8_t op;
  uint8_t dims;
  int64_t shape[kMaxShownDims];
};

bool checks_headers();

Header make_header(const Request& request);

// The header that a receiver compares with the header `sent`. For a recv, the result has the sequence number of `sent`,
// because send and recv count their messages separately.
Header make_header(const Request& request, const Header& sent);

// Describes a collective in the words of PyTorch's TORCH_DISTRIBUTED_DEBUG=DETAIL.
std::string describe(const Header& header);

// Whether the two headers can belong to one collective. Does not compare sequence numbers, shapes or byte counts.
bool matches(const Header& a, const Header& b);

// Whether a receiver that has room for `room` bytes takes the message. `own` is make_header(request, sent).
bool fits(const Header& own, const Header& sent, uint64_t room);

[[noreturn]] void throw_mismatch(int rank, const Header& own, int other_rank, const Header& other);

// The plan of a rank for one collective: the header, how many bytes the rank sends to each rank, and how many bytes it
// expects from each rank. A rank gives its plan to the others no later than its first data. GlooEngine uses plans only
// in collectives in which every rank waits for all others; SharedEngine uses plans in all collectives.
// In a broadcast and in a scatter, a rank reads only its own plan and the root's. In every other collective all ranks
// read all plans, so check_plans() has the same result on all ranks.
struct Plan {
  Header header;
  std::vector<uint64_t> sends;
  std::vector<uint64_t> expects;
};

Plan make_plan(const Request& request, int size);
size_t plan_bytes(int size);
void write_plan(const Plan& plan, char* to);
Plan read_plan(const char* from, int size);

// Throws if the plans of two ranks do not fit together, unless OCCL_CHECK=0. `plans` has one entry for each rank. The
// entry of a rank whose plan was not read is empty.
void check_plans(int rank, const std::vector<Plan>& plans);

} // namespace c10d::openreg
