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

/// Fewest writes for which one joined statement is cheaper than one statement each.
inline constexpr std::size_t joined_min = 4;

/// One update that replaces the same update of several writes. The values of all writes are arrays, with one element
/// for each write.
///
/// The statement ties every row to its own write's resource: an old row of another resource makes it fail with 22012,
/// and its result says of every new row whether it still has that resource. `recheck` checks that the update triggers
/// nothing else. So the guard does not have to separate these writes, and one select_write step serves all of them.
struct joined_statement {
    /// Parameters: an array for each parameter of the single update, then the array of resources.
    /// Result: for each updated row the position of its write, from 1 on, and whether it has the write's resource.
    std::string sql;
    compat::parameters recheck;  ///< For recheck_sql().
    std::size_t parameters = 0;  ///< Number of parameters of the single update.
};

/// Returns the joined statement for updates that differ from `op` in their values only. Empty where the table or a type
/// does not allow it, or `op` does more than compare and change single values.
std::optional<joined_statement> join_update(const catalog& known, const update_operation& op);

/// Returns the statement that follows the update in its transaction: one row, true if the update was allowed to be
/// joined (fencing.shared_resource_expression).
const std::string& recheck_sql();

/// Collects the values for joined_statement::sql: for each write the parameters of its single update, and its resource.
class joined_values {
  public:
    explicit joined_values(std::size_t parameters) : columns_(parameters + 1) {}
    void add(const compat::parameters& values, const std::string& resource);
    compat::parameters take();

  private:
    std::vector<std::string> columns_;
};

/// The result of the joined update, by the position of a write in it, from 1 on.
class joined_answer {
  public:
    joined_answer(const answer_rows& rows, std::size_t writes);
    /// Returns the number of rows changed for a write; empty if one of them no longer has the write's resource.
    std::optional<std::int64_t> changed(std::size_t position) const { return changed_[position - 1]; }

  private:
    std::vector<std::optional<std::int64_t>> changed_;
};

/// The updates that could not be joined, by the SQL of one of them, so that this is not tried for every batch. Forgets
/// all when it is full, so that they are tried again later.
///
/// Threads: safe.
class unjoinable_updates {
  public:
    bool has(const std::string& sql) const;
    void add(const std::string& sql);

  private:
    static constexpr std::size_t count_max = 256;
    mutable std::mutex mutex_;
    std::set<std::string> sql_;
};

}  // namespace fencegate::pg
