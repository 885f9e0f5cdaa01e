// What a transport of collectives needs, whatever moves its bytes: the description of a call that the ranks compare, and
// reductions. occl uses these functions itself.
//
// LITERALINCLUDE START: HEADER RULES
// A header describes a collective. A rank sends it to the others before the data, in the same message if the data is
// small. So every rank that gets a header finds a mismatch before it has written a byte of that data to its outputs,
// and the check costs no round trip. OCCL_CHECK=0, on all ranks, turns the comparison off.
//
// Rule: a header has the same length on all ranks, whatever they call. Otherwise a rank could not receive the header of
// a rank that calls another collective.
// LITERALINCLUDE END: HEADER RULES
#ifndef OCCL_TRANSPORT_H
#define OCCL_TRANSPORT_H

#include <algorithm>

#include "occl.h"

namespace occl {

// ---- time

// The time at which a request fails with a timeout.
class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds timeout) : end_(std::chrono::steady_clock::now() + timeout) {}

  std::chrono::milliseconds left() const {
    using namespace std::chrono;
    return std::max(milliseconds(1), duration_cast<milliseconds>(end_ - steady_clock::now()));
  }
  bool passed() const {
    return std::chrono::steady_clock::now() >= end_;
  }

 private:
  std::chrono::steady_clock::time_point end_;
};

// ---- headers

// Whether ranks compare their headers: OCCL_CHECK. Throws std::invalid_argument if the variable has a bad value.
OPENREG_EXPORT bool checksHeaders();

// Whether several ranks of a group may use one device: OCCL_MULTI_RANK_GPU_ENABLE, as NCCL_MULTI_RANK_GPU_ENABLE. Throws
// std::invalid_argument if the variable has a bad value.
OPENREG_EXPORT bool allowsSharedDevices();

// Where a rank is that uses this device. The other ranks compare it, unless allowsSharedDevices(). Ranks with different
// values of OCCL_HOSTID are on different hosts.
OPENREG_EXPORT RankPlace placeOf(int device);

// The header that a receiver compares with the header `sent`. For a recv, the result has the sequence number of `sent`,
// because send and recv count their messages separately.
OPENREG_EXPORT Header headerFor(const Request& request, const Header& sent);

// Whether a receiver that has room for `room` bytes takes the message. `own` is headerFor(request, sent).
OPENREG_EXPORT bool fits(const Header& own, const Header& sent, uint64_t room);

// Throws an Error that describes both calls in the words of PyTorch's TORCH_DISTRIBUTED_DEBUG=DETAIL, or that says that
// both ranks use one device: the part of NCCL's message behind "Duplicate GPU detected :".
[[noreturn]] OPENREG_EXPORT void throwMismatch(int rank, const Header& own, int otherRank, const Header& other);

// ---- plans

// The plan of a rank for one collective: the header, how many bytes the rank sends to each rank, and how many bytes it
// expects from each rank. A rank gives its plan to the others no later than its first data. A transport may leave plans
// out in collectives in which not every rank waits for all others.
// In a broadcast and in a scatter, a rank reads only its own plan and the root's. In every other collective all ranks
// read all plans, so checkPlans() has the same result on all ranks.
struct Plan {
  Header header;
  std::vector<uint64_t> sends;
  std::vector<uint64_t> expects;
};

OPENREG_EXPORT Plan makePlan(const Request& request, int size);
OPENREG_EXPORT size_t planBytes(int size);
OPENREG_EXPORT void writePlan(const Plan& plan, char* to);
OPENREG_EXPORT Plan readPlan(const char* from, int size);

// Throws if the plans of two ranks do not fit together, unless OCCL_CHECK=0. `plans` has one entry for each rank. The
// entry of a rank whose plan was not read is empty.
OPENREG_EXPORT void checkPlans(int rank, const std::vector<Plan>& plans);

// ---- reductions, on the calling thread

// The size of an element.
OPENREG_EXPORT size_t sizeOf(DataType type);

// into[i] = a[i] OP b[i]. `into` may be `a` or `b`.
OPENREG_EXPORT void combine(const Reduction& reduction, void* into, const void* a, const void* b, size_t count);

// Divides the data by the reduction's divisor.
OPENREG_EXPORT void finishReduction(const Reduction& reduction, void* data, size_t count);

// into[i] = from[i] * factor, with the factor rounded to the type of the data.
OPENREG_EXPORT void multiply(DataType type, void* into, const void* from, double factor, size_t count);

} // namespace occl

#endif // OCCL_TRANSPORT_H
