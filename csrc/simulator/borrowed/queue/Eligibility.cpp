#include "simulator/borrowed/queue/Eligibility.h"

#include <ATen/core/enum_tag.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>

#include "aten/native/Arguments.h"
#include "aten/native/OperatorTraits.h"
#include "simulator/ThreadOwned.h"
#include "simulator/borrowed/queue/MetaKernels.h"

namespace at::openreg {
namespace {

// LITERALINCLUDE START: QUEUE ELIGIBILITY
QueueRule find_rule(const c10::OperatorHandle& op) {
  using Results = QueueRule::Results;
  const c10::FunctionSchema& schema = op.schema();
  const auto& arguments = schema.arguments();
  const auto writes = [](const c10::Argument& each) { return each.alias_info() && each.alias_info()->isWrite(); };
  for (const c10::Argument& result : schema.returns()) {
    const bool is_view = result.alias_info() && !writes(result);
    if (is_view || result.type()->kind() != c10::TypeKind::TensorType) {
      return {};
    }
  }
  const SyncRule* const sync = traits_of(schema).sync;
  if (sync && sync->waits_always()) {
    return {}; // with CUDA the host waits in this operator, so it waits here too
  }
  if (const c10::KernelFunction* meta = meta_kernel(op.operator_name())) {
    return {Results::Meta, meta};
  }
  if (op.hasTag(at::Tag::inplace_view)) {
    return {};
  }
  for (const char* name :
       {"aten::_embedding_bag",
        "aten::_embedding_bag_forward_only",
        "aten::_native_batch_norm_legit",
        "aten::_native_batch_norm_legit_functional"}) {
    if (schema.name() == name) {
      return {}; // some results have other sizes than those that PyTorch's meta kernel computes
    }
  }
  const auto written = std::count_if(arguments.begin(), arguments.end(), writes);
  if (written > 0 && schema.returns().empty()) {
    return {Results::WrittenLists};
  }
  if (written == 0 || !schema.name().ends_with('_')) {
    return {Results::PyTorchMeta};
  }
  const bool only_self = written == 1 && writes(arguments[0]) && schema.returns().size() == 1;
  return {only_self ? Results::InPlace : Results::PyTorchMeta};
}
// LITERALINCLUDE END: QUEUE ELIGIBILITY

// The rules of PyTorch's own operators, by schema. These schemas exist until the process ends.
thread_local constinit c10::openreg::ThreadOwned<ska::flat_hash_map<const c10::FunctionSchema*, QueueRule>> known_rules;

} // namespace

QueueRule queue_rule_of(const c10::OperatorHandle& op) {
  auto& known = *known_rules;
  const auto found = known.find(&op.schema());
  if (C10_LIKELY(found != known.end())) {
    return found->second;
  }
  QueueRule rule = find_rule(op);
  const auto& arguments = op.schema().arguments();
  const auto generator = std::find_if(arguments.begin(), arguments.end(), is_generator);
  if (generator != arguments.end()) {
    rule.generator = generator - arguments.begin();
  }
  if (traits_of(op.schema()).builtin) { // the schema of another operator may be removed
    known[&op.schema()] = rule;
  }
  return rule;
}

bool can_be_queued(const c10::OperatorHandle& op) {
  const QueueRule::Results results = find_rule(op).results;
  return results != QueueRule::Results::Unknown && results != QueueRule::Results::PyTorchMeta;
}

} // namespace at::openreg
