#pragma once

#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/connection/session_slot.hpp>

#include <atomic>
#include <chrono>
#include <thread>

namespace fencegate::pg {

/// How long a change without a notification (alter table, create or replace function) may stay unnoticed. Unknown names
/// are looked up sooner, see catalog_store::refresh.
inline constexpr std::chrono::milliseconds catalog_recheck{1'500};

/// Keeps the catalog up to date: a thread with a connection that listens to `fencing_catalog`.
///
/// expose_table, expose_function and hide send a notification when their transaction commits. The catalog is read then,
/// within catalog_store::change_limit: anyone who can connect can send notifications without end. It is also read every
/// catalog_recheck, and after each reconnect, because notifications may have been missed.
class catalog_listener {
  public:
    catalog_listener(const postgres_config& cfg, catalog_store& catalogs) : slot_(cfg), catalogs_(catalogs) {}
    ~catalog_listener() { stop(); }
    catalog_listener(const catalog_listener&) = delete;
    catalog_listener& operator=(const catalog_listener&) = delete;

    void start();
    /// Ends the thread. Does not wait for PostgreSQL: the connection is cut.
    void stop();
    /// Cuts a connection on which an answer is overdue.
    ///
    /// Threads: any.
    void enforce_deadlines(std::chrono::steady_clock::time_point now);

  private:
    void loop();
    void listen();
    void pause(std::chrono::steady_clock::time_point until) const;

    session_slot slot_;
    catalog_store& catalogs_;
    limits::request_bucket readings_;
    std::atomic<bool> ending_{false};
    int wake_ = -1;  ///< An eventfd that stop() makes readable.
    std::thread thread_;
};

}  // namespace fencegate::pg
