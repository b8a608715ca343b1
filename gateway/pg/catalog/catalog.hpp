#pragma once

#include <gateway/limits/request_bucket.hpp>
#include <gateway/pg/catalog/catalog_field.hpp>
#include <gateway/pg/connection/session_slot.hpp>

#include <boost/json/array.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace fencegate::pg {

struct exposed_table {
    std::string target;                ///< Identifier, quoted and with its schema.
    std::set<std::string> operations;  ///< select, insert, update, delete
    std::vector<catalog_field> columns;
    std::string shared_resource_expression;  ///< Empty: one statement must not update for several writes.
    std::vector<std::string> primary_key{};  ///< Names of its columns, exposed or not; empty: there is none.
    std::vector<catalog_foreign_key> foreign_keys{};
    /// A view, or a table with row security: statistics may tell of rows that callers can't see.
    bool hides_rows = false;
};

/// A function that operations may call. Arguments have their declared names; those without a default are required.
struct exposed_function {
    std::string target;
    std::vector<catalog_field> arguments;
    bool returns_set = false;
    bool returns_void = false;
    bool changes_nothing = false;          ///< Declared stable or immutable.
    std::vector<catalog_field> columns{};  ///< Of the rows that it returns, or its output arguments.
    bool returns_row = false;              ///< Returns rows of columns, not single values.
};

/// What the operator had exposed (fencing.api_catalog) at one moment. Immutable once it is shared.
struct catalog {
    std::map<std::string, exposed_table> tables;
    std::map<std::string, exposed_function> functions;
    std::string source;            ///< The text that was read, so that two catalogs can be compared.
    std::uint64_t generation = 0;  ///< Grows with each catalog that differs from the one before.
};

/// A table or function for the document that describes what is exposed.
struct described_object {
    std::string name;
    bool is_function = false;
    std::string description;                             ///< Its comment in PostgreSQL.
    std::set<std::string> operations;                    ///< Of a table, as exposed_table::operations.
    bool changes_nothing = false, returns_void = false;  ///< Of a function.
    /// JSON Schemas: of a table the rows, the rows to insert, and changes; of a function the arguments, and the result.
    boost::json::array schemas;
};

/// Reads what is exposed (fencing.describe_api), tables first, in the order of the names. Throws as session::exec does.
std::vector<described_object> describe_exposed(session& session);

/// The catalog that all workers share. After it has changed, a session drops its prepared statements, which would keep
/// the types with which they were prepared.
///
/// Threads: safe.
/// Limits:  the catalog is read ten times at once, however many unknown names and refused values callers send; then
///          refresh() reads it once a second, refresh_since() ten times a second.
class catalog_store {
  public:
    static constexpr limits::bucket_size lookup_limit{std::chrono::seconds(1), 10};
    static constexpr limits::bucket_size change_limit{std::chrono::milliseconds(100), 10};

    /// Returns the current catalog; reads it with `session` if none was read yet. Throws as session::exec does.
    std::shared_ptr<const catalog> get(session& session);

    /// Returns the catalog after a name was not found in `seen`, or a statement that was built from it was refused.
    /// Reads it again, unless another worker has begun to since this call or the limit is reached. Throws as
    /// session::exec does.
    std::shared_ptr<const catalog> refresh(session& session, const std::shared_ptr<const catalog>& seen);

    /// The same after a statement that was refused at `moment`, for a refusal that is kept: it must not follow from a
    /// former catalog. Null: unknown, because the limit is reached. Throws as session::exec does.
    std::shared_ptr<const catalog> refresh_since(session& session, const std::shared_ptr<const catalog>& seen,
                                                 std::chrono::steady_clock::time_point moment);

    /// Reads the catalog again. Throws as session::exec does.
    void reload(session& session);

  private:
    std::shared_ptr<const catalog> current() const;
    void load(session& session);

    /// Returns the catalog. Reads it again if it is still `seen` and was not read since `moment`; null if the limit is
    /// reached then.
    std::shared_ptr<const catalog> read_since(session& session, const std::shared_ptr<const catalog>& seen,
                                              std::chrono::steady_clock::time_point moment,
                                              const limits::bucket_size& limit, limits::request_bucket& readings);

    std::mutex loading_;  ///< Held while the catalog is read, so that only one worker reads it.
    limits::request_bucket lookups_, certain_lookups_;  ///< Guarded by loading_.
    mutable std::mutex mutex_;
    std::shared_ptr<const catalog> current_;
    std::chrono::steady_clock::time_point loaded_at_;  ///< When the last reading began.
};

/// The source of the catalog for the write path, so that a test can have its own. Its functions throw as
/// write_session's do.
class catalog_source {
  public:
    virtual ~catalog_source() = default;
    virtual std::shared_ptr<const catalog> get() = 0;
    /// Returns the catalog after a name was not found in `seen`; see catalog_store::refresh.
    virtual std::shared_ptr<const catalog> refresh(const std::shared_ptr<const catalog>& seen) = 0;
    /// Returns the catalog after a statement built from `seen` was refused, or null; see catalog_store::refresh_since.
    virtual std::shared_ptr<const catalog> refresh_since(const std::shared_ptr<const catalog>& seen,
                                                         std::chrono::steady_clock::time_point moment) = 0;
};

/// The catalog that all workers share, read with a worker's session.
class slot_catalog final : public catalog_source {
  public:
    slot_catalog(session_slot& slot, catalog_store& catalogs) : slot_(slot), catalogs_(catalogs) {}

    std::shared_ptr<const catalog> get() override { return catalogs_.get(slot_.get()); }
    std::shared_ptr<const catalog> refresh(const std::shared_ptr<const catalog>& seen) override {
        return catalogs_.refresh(slot_.get(), seen);
    }
    std::shared_ptr<const catalog> refresh_since(const std::shared_ptr<const catalog>& seen,
                                                 std::chrono::steady_clock::time_point moment) override {
        return catalogs_.refresh_since(slot_.get(), seen, moment);
    }

  private:
    session_slot& slot_;
    catalog_store& catalogs_;
};

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
