#include "distributed/GroupOptions.h"

namespace c10d::openreg {

c10::intrusive_ptr<GroupOptions> GroupOptions::for_split(
    const std::vector<int>& ranks, const c10::intrusive_ptr<Backend::Options>& options) const {
  auto made = c10::make_intrusive<GroupOptions>(options ? options->timeout : timeout);
  made->is_high_priority_stream = is_high_priority_stream;
  made->config = config;
  for (const int rank : ranks) {
    made->global_ranks_in_group.push_back(global_ranks_in_group.empty() ? rank : global_ranks_in_group.at(rank));
  }
  if (options) {
    made->group_name = options->group_name;
    made->group_desc = options->group_desc;
  }
  return made;
}

} // namespace c10d::openreg
