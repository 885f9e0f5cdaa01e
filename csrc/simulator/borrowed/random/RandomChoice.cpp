#include "simulator/borrowed/random/RandomChoice.h"

namespace at::openreg {

// Results can then be compared with the CPU's, bit for bit.
const char* default_random_numbers() {
  return "cpu";
}

} // namespace at::openreg
