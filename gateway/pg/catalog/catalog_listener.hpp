#pragma once

#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/connection/session_slot.hpp>

#include <atomic>
#include <chrono>
#include <thread>

namespace fencegate::pg {

/// How long a change of an exposed table may go unseen that no notification tells of: alter table, create or replace
/// function. Names that are not known yet are looked up sooner, see catalog_store::refresh.
inline constexpr std::chrono::milliseconds catalog_recheck{2'000};

/// Keeps the catalog up to date: a thread with a connection that listens to `fencing_catalog`.
///
/// What expose_table, expose_function and hide change is read when their transaction commits. The catalog is read anew
/// every catalog_recheck too, and whenever a connection had to be made anew: nobody tells what was missed meanwhile.
class catalog_listener {
  public:
    catalog_listener(const postgres_config& cfg, catalog_store& catalogs) : slot_(cfg), catalogs_(catalogs) {}
    ~catalog_listener() { stop(); }
    catalog_listener(const catalog_listener&) = delete;
    catalog_listener& operator=(const catalog_listener&) = delete;

    void start();
    /// Ends the thread; bounded, as a connection that does not answer is cut.
    void stop();
    /// Cuts a connection on which an answer is overdue. Any thread.
    void enforce_deadlines(std::chrono::steady_clock::time_point now);

  private:
    void loop();
    void follow();
    void pause(std::chrono::steady_clock::time_point until) const;

    session_slot slot_;
    catalog_store& catalogs_;
    std::atomic<bool> ending_{false};
    int wake_ = -1;  ///< An eventfd that stop() makes readable.
    std::thread thread_;
};

}  // namespace fencegate::pg
