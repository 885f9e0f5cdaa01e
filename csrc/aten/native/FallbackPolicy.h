#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../../runtime/OpenRegException.h"

// What the fallback does besides running an operator. It counts, and on request it warns or refuses, so that a vendor sees
// which operators still lack a kernel.
//
// Rule: the setting belongs to the process, as CUDA's synchronisation debug mode does: a backward may run on other
// threads than the program that asked.
namespace at::openreg {

struct OperatorTraits;

enum class FallbackMode : uint8_t { Silent, Warn, Error };

struct FallbackPolicy {
  FallbackMode mode = FallbackMode::Silent;
  std::vector<std::string> allowed; // glob patterns, "aten::sort.stable", "sort", "_foreach_*"; these stay silent
};

OPENREG_API FallbackPolicy fallback_policy();
OPENREG_API void set_fallback_policy(FallbackPolicy policy);                 // every operator warns once more
OPENREG_API std::vector<std::pair<std::string, uint64_t>> fallback_counts(); // of the operators that took the fallback
OPENREG_API void reset_fallback_counts();

// Called by the fallback before an operator runs. Throws if the policy refuses the operator.
void note_fallback(const OperatorTraits& op);

} // namespace at::openreg
