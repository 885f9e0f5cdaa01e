#pragma once

#include <c10/util/Exception.h>

#include <optional>
#include <string>
#include <vector>

#include "Engine.h"

// LITERALINCLUDE START: HEADER RULES
// What a rank tells the others about its collective. The header travels in front of the data, in the same message if the
// data is small. So a mismatch is found before a byte is written, on every rank that gets the header, and adds no round
// trip. OCCL_CHECK=0, on all ranks, turns the comparison off.
//
// Rule: a header has the same length on all ranks, whatever they call; otherwise the check itself could not be received.
// LITERALINCLUDE END: HEADER RULES
namespace c10d::openreg {

constexpr size_t kMaxShownDims = 8;

// A failure that is our own verdict, and not what an engine's transport says.
class Refusal : public c10::DistBackendError {
 public:
  using c10::DistBackendError::DistBackendError;
};

struct Header {
  uint64_t sequence;
  uint64_t inlined; // bytes of data that follow in the same message
  uint64_t total;   // bytes of data for the receiver
  int32_t root;
  OpType type;
  int8_t dtype;
  uint8_t op;
  uint8_t dims;
  int64_t shape[kMaxShownDims];
};

bool checks_headers();

Header make_header(const Request& request);

// As PyTorch's TORCH_DISTRIBUTED_DEBUG=DETAIL names a collective.
std::string describe(const Header& header);

// Whether the two can be parts of one collective, apart from the sizes.
bool matches(const Header& a, const Header& b);

[[noreturn]] void throw_mismatch(int rank, const Header& own, int other_rank, const Header& other);

// What travels in front of a collective of the shared engine: the header, then the bytes that the rank sends to
// each rank and expects from each. Every rank sees all of them, so all come to the same verdict.
struct Plan {
  Header header;
  std::vector<uint64_t> sends;
  std::vector<uint64_t> expects;
};

Plan make_plan(const Request& request, int size);
size_t plan_bytes(int size);
void write_plan(const Plan& plan, char* to);
Plan read_plan(const char* from, int size);

// Throws if a rank's plan does not fit. An empty plan is that of a rank that need not be asked.
void check_plans(int rank, const std::vector<Plan>& plans);

} // namespace c10d::openreg
