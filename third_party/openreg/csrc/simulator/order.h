#pragma once

#include <string>

namespace openreg {

// Reads OPENREG_ORDER, and begins to write or to follow an order. Returns what is wrong with the value, or an empty text.
std::string readOrder();

} // namespace openreg
