#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/OpenRegException.h"

namespace c10 {
struct FunctionSchema;
}

// What the fallback does besides running an operator. The fallback counts the calls of each operator. If the policy
// says so, the fallback also warns, once for each operator, or refuses the call and does not count it. So a vendor sees
// which operators still lack a kernel.
//
// Rule: the policy belongs to the process, not to a thread, because a backward may run on another thread than the code
// that has set the policy. CUDA's synchronisation debug mode follows the same rule.
namespace at::openreg {

struct OperatorTraits;

enum class FallbackMode : uint8_t { Silent, Warn, Error };

struct FallbackPolicy {
  FallbackMode mode = FallbackMode::Silent;
  // Glob patterns such as "aten::sort.stable", "sort" or "_foreach_*". An operator that matches a pattern causes no
  // warning and no error.
  std::vector<std::string> allowed;
};

OPENREG_API FallbackPolicy fallback_policy();
OPENREG_API void set_fallback_policy(FallbackPolicy policy); // an operator that has warned may warn once more
OPENREG_API std::vector<std::pair<std::string, uint64_t>> fallback_counts(); // of the operators that took the fallback
OPENREG_API void reset_fallback_counts();

// Called by the fallback before an operator runs. Counts the call. Warns if the policy says so and the operator has not
// warned under this policy yet. Throws if the policy refuses the operator.
void note_fallback(const OperatorTraits& op);
OPENREG_API void note_fallback(const c10::FunctionSchema& op); // for a fallback in another library

} // namespace at::openreg
