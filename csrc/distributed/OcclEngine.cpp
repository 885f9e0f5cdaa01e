#include "distributed/OcclEngine.h"

#include "distributed/OcclRequest.h"

namespace c10d::openreg {

void OcclEngine::abort() {
  communicator_->abort();
}

void OcclEngine::run(CollectiveRequest& request) {
  occl::Request converted = to_occl(request);
  communicator_->run(converted);
  request.source = converted.source;
}

} // namespace c10d::openreg
