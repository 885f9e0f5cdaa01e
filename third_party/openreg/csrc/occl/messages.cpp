#include <algorithm>
#include <cstring>

#include "occl/communicator.h"

// Send and recv of SharedCommunicator, through the pipes.
namespace occl {

void SharedCommunicator::send(const Request& request) {
  const std::lock_guard turn(peers_[request.root].sending);
  const Deadline deadline(request.timeout);
  checkStep();
  if (mailboxes_[request.root]->failed != 0) {
    throw Error(Error::Code::failed, "Rank " + std::to_string(request.root) + " has failed in a collective");
  }
  const Buffer& data = request.inputs[0];
  Header header = request.header;
  header.total = data.bytes;
  write(request.root, &header, sizeof(Header), deadline);
  write(request.root, data.data, header.total, deadline);
}

void SharedCommunicator::receive(Request& request) {
  int from = request.root;
  std::unique_lock<std::mutex> turn;
  if (from >= 0) {
    turn = std::unique_lock(peers_[from].receiving);
  }
  const Deadline deadline(request.timeout);
  checkStep();
  if (from < 0) {
    turn = awaitAnySender(from, deadline);
  }
  const Buffer& data = request.outputs[0];
  Header header;
  read(from, &header, sizeof(Header), deadline);
  const Header own = headerFor(request, header);
  const bool isTaken = fits(own, header, data.bytes);
  read(from, isTaken ? data.data : nullptr, header.total, deadline);
  if (!isTaken) {
    throwMismatch(rank_, own, from, header);
  }
  request.source = from;
}

// Waits until a message from any rank begins. Sets `from` to its sender, and returns the lock of that sender's pipe.
std::unique_lock<std::mutex> SharedCommunicator::awaitAnySender(int& from, const Deadline& deadline) {
  std::unique_lock<std::mutex> turn;
  wait(mailboxes_[rank_]->bell, -1, deadline, [&] {
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
  return turn;
}

// Writes at most a quarter of the pipe at a time, so that the other rank can read meanwhile.
void SharedCommunicator::write(int to, const void* data, size_t bytes, const Deadline& deadline) {
  Pipe& leaving = pipe(rank_, to);
  for (size_t done = 0; done < bytes;) {
    const uint32_t position = leaving.written.load();
    const auto part =
        static_cast<uint32_t>(std::min<size_t>({bytes - done, pipeBytes_ / 4, pipeBytes_ - position % pipeBytes_}));
    wait(mailboxes_[rank_]->bell, to, deadline, [&] { return pipeBytes_ - (position - leaving.read.load()) >= part; });
    std::memcpy(leaving.data() + position % pipeBytes_, static_cast<const char*>(data) + done, part);
    leaving.written = position + part;
    mailboxes_[to]->bell.increment();
    done += part;
  }
}

// Reads the bytes into `data`. If `data` is null, throws the bytes away.
void SharedCommunicator::read(int from, void* data, size_t bytes, const Deadline& deadline) {
  Pipe& arriving = pipe(from, rank_);
  for (size_t done = 0; done < bytes;) {
    const uint32_t position = arriving.read.load();
    const auto part =
        static_cast<uint32_t>(std::min<size_t>({bytes - done, pipeBytes_ / 4, pipeBytes_ - position % pipeBytes_}));
    wait(mailboxes_[rank_]->bell, from, deadline, [&] { return arriving.written.load() - position >= part; });
    if (data != nullptr) {
      std::memcpy(static_cast<char*>(data) + done, arriving.data() + position % pipeBytes_, part);
    }
    arriving.read = position + part;
    mailboxes_[from]->bell.increment();
    done += part;
  }
}

} // namespace occl
