#pragma once

#include <gateway/config/config.hpp>
#include <gateway/pg/database.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace fencegate::audit {

/// Makes signed digests of the history and of recorded changes (pg/history/history_digest.hpp), one each
/// audit.digest_interval_ms, and appends all digests, those of other gateways too, to audit.digest_file. Of several
/// gateways one makes the next digest. Without audit.digest_key_file it does nothing.
///
/// A digest covers ids below which no transaction can still add rows, so an open transaction delays it.
///
/// Threads:  lag() from any thread.
/// Limits:   digest_ids_max ids of each table a digest; no work in any transaction of others.
/// Lifetime: the database outlives the run of `io`.
class digest_maker {
  public:
    digest_maker(const audit_config& cfg, std::string gateway, pg::database& database, boost::asio::io_context& io);
    ~digest_maker();

    /// Begins, on `io`.
    void start();
    /// Returns for how long rows may have been without a digest; empty if none are made.
    std::optional<std::chrono::steady_clock::duration> lag() const;

  private:
    struct impl;
    std::shared_ptr<impl> impl_;  ///< Shared with the coroutine.
};

}  // namespace fencegate::audit
