#include "simulator/borrowed/random/RandomChoice.h"

namespace at::openreg {

const char* default_random_numbers() {
  return "philox";
}

} // namespace at::openreg
