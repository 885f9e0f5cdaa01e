#include "aten/native/InlineOrQueued.h"

namespace at::openreg {
namespace {

constinit IsQueueable answer = nullptr;

} // namespace

bool is_queueable(const c10::OperatorHandle& op) {
  return answer != nullptr && answer(op);
}

void set_is_queueable(IsQueueable chosen) {
  answer = chosen;
}

} // namespace at::openreg
