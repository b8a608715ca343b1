#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace fencegate::pg {

class session;

/// A column or an argument. `type` as PostgreSQL writes it in a cast, with its schema unless that is pg_catalog.
struct catalog_field {
    std::string name;
    std::string type;
    bool has_default = false;  ///< Arguments only.
    std::string base{};        ///< Columns only: what the type is made of, where it is a domain.
    std::string operators{};   ///< Columns only: the quoted schema of the type's own comparisons; empty: pg_catalog's.

    /// The type that says how values are read and added.
    const std::string& value_type() const { return base.empty() ? type : base; }
};

struct exposed_table {
    std::string target;                ///< Quoted and qualified.
    std::set<std::string> operations;  ///< select, insert, update, delete
    std::vector<catalog_field> columns;
    std::string shared_resource_expression;  ///< Empty: one statement must not serve several writes.
};

/// A function that operations may call. Names of arguments as declared; only those without a default must be given.
struct exposed_function {
    std::string target;
    std::vector<catalog_field> arguments;
    bool returns_set = false;
    bool returns_void = false;
    bool changes_nothing = false;  ///< Declared stable or immutable.
};

/// What the operator exposed (fencing.api_catalog) at one time. Never changes once made.
struct catalog {
    std::map<std::string, exposed_table> tables;
    std::map<std::string, exposed_function> functions;
    std::string source;            ///< What it was read from, so that two can be compared.
    std::uint64_t generation = 0;  ///< Higher in each that differs from the one before.
};

/// The catalog that all workers share. Where it has changed, a session's prepared statements are made anew: they keep
/// the types that they were prepared with.
///
/// Threads: safe.
/// Limits:  refresh() reads it at most once a `reload_interval`, however many unknown names callers send.
class catalog_store {
  public:
    static constexpr std::chrono::milliseconds reload_interval{1'000};

    /// The catalog as it is known, read by `via` if none was read yet. Throws what session::exec throws.
    std::shared_ptr<const catalog> get(session& via);

    /// The catalog after a name of `seen` was not found: read anew, unless another worker just did or the interval has
    /// not passed.
    std::shared_ptr<const catalog> refresh(session& via, const std::shared_ptr<const catalog>& seen);

    /// Reads it anew. Throws what session::exec throws.
    void reload(session& via);

  private:
    std::shared_ptr<const catalog> current() const;
    void load(session& via);

    std::mutex loading_;  ///< Held while it is read, so that it is read once.
    mutable std::mutex mutex_;
    std::shared_ptr<const catalog> current_;
    std::chrono::steady_clock::time_point loaded_at_;
};

}  // namespace fencegate::pg
