#pragma once

#include <gateway/domain/failure.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/uuid/uuid.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lockcore {
class lock_manager;
}
namespace fencegate::pg {
class database;
}

namespace fencegate::audit {

/// The writes that this gateway acknowledged last, so that it can name those that a failover of PostgreSQL has lost.
///
/// Threads: safe.
/// Limits:  those of the minute before the latest write, and 524,288 of them (13 MiB).
class acknowledged_writes {
  public:
    static constexpr std::chrono::minutes kept_for{1};
    static constexpr std::size_t kept_max = 524'288;
    using time_point = std::chrono::steady_clock::time_point;

    void add(const std::string& write_id, time_point now);
    /// Returns the write ids, the oldest first.
    std::vector<std::string> list() const;
    /// Forgets these write ids.
    void forget(const std::vector<std::string>& write_ids);

  private:
    struct entry {
        time_point at;
        boost::uuids::uuid write_id;
    };
    mutable std::mutex mutex_;
    std::deque<entry> entries_;
};

class event_sink;

/// Notices that PostgreSQL was promoted, restored or replaced, and makes the change of the storage generation: draws a
/// floor above every token, announces it to the nodes, and sets it in PostgreSQL, which lets nothing in before that.
/// Several gateways may do it at once. Afterwards it finds out which writes that this gateway acknowledged are gone.
///
/// Threads:  check(), read() and acknowledged() from any thread.
/// Lifetime: the register and the lock manager outlive the run of `io`.
/// Limits:   one query a second; while the generation is changing five.
/// Source:   docs/protocol.md, STORAGE GENERATION.
class storage_watch {
  public:
    struct readings {
        bool lets_writes_in = true;     ///< Whether PostgreSQL did when it last answered.
        std::uint64_t changes = 0;      ///< Changes of the generation that this gateway has seen.
        std::uint64_t lost_writes = 0;  ///< Acknowledged writes that were gone after them.
    };

    /// `request_timeout`: how long a request can last; for as long after a change lost writes are looked for.
    storage_watch(pg::database& database, event_sink& events, boost::asio::io_context& io,
                  std::chrono::milliseconds request_timeout);
    ~storage_watch();

    /// Begins, on `io`.
    void start(lockcore::lock_manager& locks);

    /// Fails with storage_unavailable if nothing is let in now: the generation is changing, or the nodes know of a
    /// change that this PostgreSQL does not: it was replaced and still answers. So a call can end before it takes a
    /// lease; PostgreSQL and pg::session_slot refuse it in any case.
    result<void> check() const;
    readings read() const;
    /// The write service adds each write that it acknowledges.
    acknowledged_writes& acknowledged();

  private:
    struct impl;
    std::shared_ptr<impl> impl_;  ///< Shared with the coroutine.
};

}  // namespace fencegate::audit
