#pragma once

#include <gateway/domain/write_request.hpp>
#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/connection/session.hpp>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fencegate::pg {

/// Fewest writes for which one statement is cheaper than one each.
inline constexpr std::size_t group_min = 4;

/// One update in the place of the same update of several writes: the values of all come as arrays, a place each.
///
/// Every row is tied to its own write's resource: an old row of another resource makes the statement fail with 22012,
/// and the answer says of every new row whether it still has that resource. What the statement sets off besides is the
/// reason for `recheck`. So the writes need not be kept apart by the guard and have one turn together.
struct group_statement {
    std::string sql;             ///< Parameters: an array for each of the update's own, then the resources.
                                 ///< Rows: place from 1 on, whether the row is of its write's resource.
    compat::parameters recheck;  ///< For recheck_sql().
    std::size_t parameters = 0;  ///< The update's own.
};

/// The statement for updates of the shape of `op`. Empty where the table or a type does not lend itself to it, or `op`
/// does more than compare and change single values.
std::optional<group_statement> group_update(const catalog& known, const update_operation& op);

/// Behind the update, in its transaction: one row, true if it may have been one (fencing.shared_resource_expression).
const std::string& recheck_sql();

/// The values for group_statement::sql: of each write the parameters of its own statement, and its resource.
class group_values {
  public:
    explicit group_values(std::size_t parameters) : columns_(parameters + 1) {}
    void add(const compat::parameters& values, const std::string& resource);
    compat::parameters take();

  private:
    std::vector<std::string> columns_;
};

/// What the update answered, by place.
class group_answer {
  public:
    group_answer(const answer_rows& rows, std::size_t places);
    /// Rows that it changed for the write at this place; none if one of them is no longer of the write's resource.
    std::optional<std::int64_t> changed(std::size_t place) const { return changed_[place - 1]; }

  private:
    std::vector<std::optional<std::int64_t>> changed_;
};

/// Statements that were tried in vain, so that they are not tried for every batch. Forgets all when it is full, and so
/// tries again some day. Threads: safe.
class group_refusals {
  public:
    bool has(const std::string& sql) const;
    void add(const std::string& sql);

  private:
    static constexpr std::size_t most = 256;
    mutable std::mutex mutex_;
    std::set<std::string> refused_;
};

}  // namespace fencegate::pg
