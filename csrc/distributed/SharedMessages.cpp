#include <algorithm>
#include <cstring>

#include "distributed/SharedEngine.h"

// Send and recv of SharedEngine, through the pipes.
namespace c10d::openreg {

void SharedEngine::send(const Request& request) {
  const std::lock_guard turn(peers_[request.root].sending);
  const Deadline deadline(request.timeout);
  TORCH_CHECK(mailboxes_[rank_]->failed == 0, "An earlier collective of this rank failed");
  TORCH_CHECK(mailboxes_[request.root]->failed == 0, "Rank ", request.root, " has failed in a collective");
  const at::Tensor& data = request.inputs[0];
  Header header = make_header(request);
  header.total = data.nbytes();
  write(request.root, &header, sizeof(Header), deadline);
  write(request.root, data.data_ptr(), header.total, deadline);
}

void SharedEngine::receive(Request& request) {
  int from = request.root;
  std::unique_lock<std::mutex> turn;
  if (from >= 0) {
    turn = std::unique_lock(peers_[from].receiving);
  }
  const Deadline deadline(request.timeout);
  TORCH_CHECK(mailboxes_[rank_]->failed == 0, "An earlier collective of this rank failed");
  if (from < 0) {
    wait(mailboxes_[rank_]->bell, from, deadline, [&] {
      for (from = 0; from < size_; ++from) {
        const Pipe& arriving = pipe(from, rank_);
        turn = std::unique_lock(peers_[from].receiving, std::try_to_lock);
        if (turn && arriving.written.load() != arriving.read.load()) {
          return true;
        }
      }
      turn = {};
      return false;
    });
  }
  const at::Tensor& data = request.outputs[0];
  Header header;
  read(from, &header, sizeof(Header), deadline);
  const Header own = make_header(request, header);
  const bool fits = openreg::fits(own, header, data.nbytes());
  read(from, fits ? data.data_ptr() : nullptr, header.total, deadline);
  if (!fits) {
    throw_mismatch(rank_, own, from, header);
  }
  request.source = from;
}

// Writes at most a quarter of the pipe at a time, so that the other rank can read meanwhile.
void SharedEngine::write(int to, const void* data, size_t bytes, const Deadline& deadline) {
  Pipe& leaving = pipe(rank_, to);
  for (size_t done = 0; done < bytes;) {
    const uint32_t position = leaving.written.load();
    const auto part =
        static_cast<uint32_t>(std::min<size_t>({bytes - done, pipe_bytes_ / 4, pipe_bytes_ - position % pipe_bytes_}));
    wait(mailboxes_[rank_]->bell, to, deadline, [&] { return pipe_bytes_ - (position - leaving.read.load()) >= part; });
    std::memcpy(leaving.data() + position % pipe_bytes_, static_cast<const char*>(data) + done, part);
    leaving.written = position + part;
    mailboxes_[to]->bell.increment();
    done += part;
  }
}

// Reads the bytes into `data`. If `data` is null, throws the bytes away.
void SharedEngine::read(int from, void* data, size_t bytes, const Deadline& deadline) {
  Pipe& arriving = pipe(from, rank_);
  for (size_t done = 0; done < bytes;) {
    const uint32_t position = arriving.read.load();
    const auto part =
        static_cast<uint32_t>(std::min<size_t>({bytes - done, pipe_bytes_ / 4, pipe_bytes_ - position % pipe_bytes_}));
    wait(mailboxes_[rank_]->bell, from, deadline, [&] { return arriving.written.load() - position >= part; });
    if (data != nullptr) {
      std::memcpy(static_cast<char*>(data) + done, arriving.data() + position % pipe_bytes_, part);
    }
    arriving.read = position + part;
    mailboxes_[from]->bell.increment();
    done += part;
  }
}

} // namespace c10d::openreg
