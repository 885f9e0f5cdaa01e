#include "simulator/sanitizer/Accesses.h"

#include "simulator/ThreadOwned.h"

namespace c10::openreg::sanitizer {
namespace {

Access to_access(const orOperand& operand) {
  Access access;
  access.extent = Extent(operand);
  access.action = operand.access & orAccessWrite ? Access::Action::Write : Access::Action::Read;
  access.reads = operand.access & orAccessRead;
  access.shape.assign(operand.sizes, operand.sizes + operand.dims);
  access.strides.assign(operand.strides, operand.strides + operand.dims);
  access.item = operand.itemSize;
  return access;
}

} // namespace

void collect_operand(const orOperand* operand, void* context) {
  auto* const accesses = static_cast<std::vector<Access>*>(context);
  accesses->push_back(to_access(*operand));
  if (accesses->back().extent.empty()) {
    accesses->pop_back();
  }
}

namespace {

thread_local constinit ThreadOwned<std::vector<Access>> accesses;

} // namespace

std::vector<Access>& collect(const orActivity& activity) {
  std::vector<Access>& collected = *accesses;
  collected.clear();
  orActivityVisitOperands(&activity, collect_operand, &collected);
  return collected;
}

} // namespace c10::openreg::sanitizer
